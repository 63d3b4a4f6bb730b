"""ResolvedOutput: the type rule of built-in ops for functions without a tape (S12, S17)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autoq as aq
from autoq.context import Observer, observing
from autoq.devices import beside, same_memory, to_host
from autoq.storage import QTensor, convert
from autoq.storage.rewrite import _amax_of, rewritten
from tests.examples import scaled
from tests.storage.tensors import (
    DEVICE,
    check_invariants,
    names,
    quantized,
    same_floats,
    small_names,
    tensors,
)

RNG = np.random.default_rng(1)
DTYPES = [aq.float64, aq.float32, aq.float16, aq.mxfp8, aq.nvfp4, aq.mxfp8_2d, aq.fp8_e4m3]


def signal(dtype: Any, shape: tuple[int, ...] = (4, 64)) -> Any:
    return aq.tensor(RNG.standard_normal(shape).astype(np.float32)).astype(dtype)


@pytest.mark.parametrize("b", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("a", DTYPES, ids=lambda d: d.name)
def test_it_resolves_and_encodes_as_a_built_in_op_does(a: Any, b: Any) -> None:
    for x, y in (
        (signal(a), signal(b)),
        (signal(a).inhibit(), signal(b).inhibit()),
        (signal(a), signal(b).inhibit()),
    ):
        out = aq.ResolvedOutput.of(x, y)
        made, expected = out.write(out.read(x) * out.read(y)), x * y
        assert made.tensor_type is expected.tensor_type
        assert same_floats(made.numpy(), expected.numpy())
        assert not made.requires_grad


def test_numbers_arrays_and_out_dtype_are_taken() -> None:
    x = signal(aq.mxfp8)
    assert aq.ResolvedOutput.of(x, 2.0).dtype == aq.mxfp8
    assert aq.ResolvedOutput.of(x, np.ones(64, np.float16)).dtype == aq.float16
    assert aq.ResolvedOutput.of(x, out_dtype="nvfp4").dtype == aq.nvfp4
    assert aq.ResolvedOutput.of(x, np.arange(64)).dtype == aq.mxfp8


def test_strict_resolution_holds_here_too() -> None:
    with aq.dtype_resolution("strict"), pytest.raises(aq.errors.ResolutionError):
        aq.ResolvedOutput.of(signal(aq.mxfp8), signal(aq.float32))


def test_reading_copies_nothing_that_matches_and_cannot_be_written_through() -> None:
    x, y = signal(aq.float32), signal(aq.float64)
    out = aq.ResolvedOutput.of(x)
    assert same_memory(out.read(x), x.value)
    if x.device == "cpu":  # arrays on a GPU have no such flag
        with pytest.raises(ValueError, match="read-only"):
            out.read(x)[0] = 1.0
    wide = aq.ResolvedOutput.of(x, y)
    assert wide.read(x).dtype == wide.read(y).dtype == wide.compute == np.float64
    assert same_memory(wide.read(y), y.value)
    assert out.read(signal(aq.mxfp8)).dtype == np.float32
    assert out.read(3.0) == 3.0


def test_what_is_written_is_on_the_device_of_the_operands(device: str) -> None:
    x = signal(aq.mxfp8)
    out = aq.ResolvedOutput.of(x, 2.0)
    for array in (x.numpy(), out.read(x)):
        assert out.write(array).device == out.written_into(x).write(array).device == device
    assert aq.ResolvedOutput.of(2.0).write(x.numpy()).device == "cpu"


def test_exact_precision_reads_float64_for_what_accumulates() -> None:
    x = signal(aq.mxfp8)
    with aq.precision("exact"):
        assert aq.ResolvedOutput.of(x, accumulates=True).read(x).dtype == np.float64
        assert aq.ResolvedOutput.of(x).read(x).dtype == np.float32


def test_without_an_axis_a_quantized_result_is_float32() -> None:
    x = signal(aq.mxfp8)
    assert aq.ResolvedOutput.of(x).write(np.float32(1.5)).dtype == aq.float32
    assert aq.ResolvedOutput.of(x).write(np.arange(32)).dtype == aq.mxfp8


@pytest.mark.parametrize("dtype", [*DTYPES, aq.nvfp4_2d, aq.mxfp4], ids=lambda d: d.name)
def test_written_into_keeps_type_flag_and_untouched_bits(dtype: Any) -> None:
    target = signal(dtype, (64, 64)).inhibit()
    out = aq.ResolvedOutput.of(signal(aq.float64), target).written_into(target)
    new = out.read(target).copy()
    new[40, 3] += 0.5
    changed = out.write(new)
    assert changed.tensor_type is target.tensor_type
    assert changed.numpy()[40, 3] != target.numpy()[40, 3]
    assert same_floats(changed.numpy()[:32], target.numpy()[:32])
    assert same_floats(changed.numpy()[:, 32:], target.numpy()[:, 32:])


def test_a_scale_of_the_whole_tensor_stays_and_values_beyond_it_saturate() -> None:
    q = signal(aq.fp8_e4m3)
    out = aq.ResolvedOutput.of(q).written_into(q)
    new = out.read(q).copy()
    largest = np.abs(new).max()
    new[1, 1] = 100 * largest
    changed = out.write(new)
    assert changed.qtensor.scales.tobytes() == q.qtensor.scales.tobytes()
    assert changed.numpy()[1, 1] <= 1.2 * float(largest)
    two = signal(aq.nvfp4)
    again = aq.ResolvedOutput.of(two).written_into(two)
    new = again.read(two).copy()
    new[0, 0] = 1000.0
    assert to_host(again.write(new).qtensor.tensor_scale) == to_host(two.qtensor.tensor_scale)


def test_wrong_arrays_are_named() -> None:
    q = signal(aq.mxfp8)
    with pytest.raises(aq.errors.DTypeError, match="object"):
        aq.ResolvedOutput.of(q).write(np.array([None]))
    with pytest.raises(aq.errors.ShapeError, match=r"\(3,\)"):
        aq.ResolvedOutput.of(q).written_into(q).write(np.ones(3, np.float32))


@settings(max_examples=scaled(150), deadline=None)
@given(st.data(), tensors(st.one_of(small_names, names)))
def test_rewriting_touches_only_blocks_with_changes(data: Any, q: QTensor) -> None:
    x = to_host(q.dequantize())
    again = rewritten(q, beside(x, q.words))
    assert again is q if DEVICE == "cpu" else again.same_bits(q)  # a GPU doesn't wait to learn of no change
    if not q.size:
        return
    place = tuple(data.draw(st.integers(0, n - 1)) for n in q.shape)
    new = x.copy()
    new[place] = x[place] * 0.5 + 1.0
    changed = rewritten(q, beside(new, q.words))
    check_invariants(changed)
    assert changed.layout == q.layout
    check_tensor_scale(changed, q)
    changed, q = changed.to("cpu"), q.to("cpu")
    stored = tuple(place[axis] for axis in q.layout.inverse)
    extents = q.scheme.extents(q.ndim)
    block = tuple(
        slice(None) if not e else slice(i // e * e, (i // e + 1) * e)
        for i, e in zip(stored, extents, strict=True)
    )
    touched = np.zeros(q.storage_shape, bool)
    touched[block] = True
    if q.scheme.block is None:
        touched[...] = False
        touched[stored] = True
        assert changed.scales.tobytes() == q.scales.tobytes()
    untouched = ~touched.transpose(q.layout.order)
    assert same_floats(changed.dequantize()[untouched], x[untouched])
    assert np.array_equal(changed.codes()[untouched], q.codes()[untouched])
    if q.scheme.block is not None and not q.scheme.tensor_scale:
        whole = np.where(untouched, 0, new) if q.scheme.calibration == "abs_max" else new
        fresh = QTensor.encode(np.ascontiguousarray(whole.transpose(q.layout.inverse)), q.scheme)
        assert same_floats(fresh.dequantize()[block], changed.dequantize().transpose(q.layout.inverse)[block])


def check_tensor_scale(changed: QTensor, q: QTensor) -> None:
    """The scale of the whole tensor is there or not as before, and the same."""
    assert (changed.tensor_scale is None) == (q.tensor_scale is None)
    if q.tensor_scale is not None:
        assert to_host(changed.tensor_scale) == to_host(q.tensor_scale)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "nvfp4_2d", "fp8_e4m3", "int8"])
@pytest.mark.parametrize("calibration", ["abs_max", "abs_mean"])
def test_blocks_encoded_apart_have_the_bits_of_blocks_encoded_together(name: str, calibration: str) -> None:
    scheme = aq.scheme(name)
    if calibration == "abs_mean" and scheme.tensor_scale:
        return  # two levels take their scales of the largest magnitude
    x = np.random.default_rng(15).standard_normal((33, 70)).astype(np.float32)
    q = quantized(x, scheme.replace(calibration=calibration))
    new = q.dequantize()
    new[:, ::16] = 0.75 * new[:, ::16] + 0.53  # in every block: one that keeps its values keeps its scale
    assert (to_host(new) != to_host(q.dequantize()))[:, ::16].all()
    changed = rewritten(q, new)
    amax = _amax_of(q)
    whole = convert.encode(new, q.scheme, tensor_amax=amax)
    if scheme.block is not None:
        assert changed.same_bits(QTensor.make(*whole, q.scheme, q.shape))
    check_tensor_scale(changed, q)


class Encoded(Observer):
    """Counts encoded values."""

    values = 0

    def launched(self, kernel: str, values: int) -> None:
        self.values += values * kernel.startswith("quantize")


def test_only_touched_blocks_are_encoded() -> None:
    with aq.default_device("cpu"):  # a GPU encodes all and takes those
        q = signal(aq.mxfp8, (8, 256))
    new = q.numpy().copy()
    new[3, 40:42] = 1.0
    with observing(Encoded()) as seen:
        rewritten(q.qtensor, new)
    assert seen.values == 32  # type: ignore[attr-defined]
