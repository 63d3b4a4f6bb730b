"""Default dtypes, promotion, and how autoq's functions of the standard behave beyond it."""

from __future__ import annotations

import itertools

import array_api_strict as strict
import numpy as np
import pytest

import autoq as aq


def test_python_numbers_get_the_default_dtypes():
    defaults = aq.__array_namespace_info__().default_dtypes()
    assert aq.asarray(1.5).dtype == aq.full(2, 1.5).dtype == defaults["real floating"] == aq.float32
    assert aq.asarray(3).dtype == aq.full(2, 3).dtype == aq.arange(3).dtype == defaults["integral"]
    assert aq.asarray(True).dtype == aq.full(2, True).dtype == aq.bool
    for made in (aq.zeros(2), aq.ones(2), aq.empty(2), aq.eye(2), aq.linspace(0, 1, 3), aq.arange(0.0, 1.0)):
        assert made.dtype == defaults["real floating"]
    found = (aq.argmax([1.0]), aq.argsort([1.0]), *aq.nonzero([1.0]), aq.searchsorted([1.0], [1.0]))
    assert all(x.dtype == defaults["indexing"] for x in found)


def test_lists_of_arrays_and_tensors_keep_their_dtype():
    for dtype in (aq.float64, aq.float32, aq.int64):
        x = aq.tensor([1, 2], dtype=dtype, device="cpu")
        for entries in ([x, x], [[x], [x]], [x.numpy()], (x[0],)):
            assert aq.tensor(entries).dtype == dtype


def test_none_stands_for_the_default_dtype():
    for make in (aq.zeros, aq.ones, aq.empty, aq.eye):
        assert make(2, dtype=None, device=None).dtype == aq.float32
    assert aq.linspace(0, 1, 3, dtype=None).dtype == aq.float32
    assert aq.arange(3, dtype=None).dtype == aq.int64


def test_a_float64_range_is_one():
    np.testing.assert_array_equal(aq.arange(0, 1, 0.1, dtype=aq.float64).numpy(), np.arange(0, 1, 0.1))


def test_constants():
    assert (aq.e, aq.pi) == (np.e, np.pi)
    assert aq.inf == float("inf")
    assert aq.nan != aq.nan
    assert aq.newaxis is None
    assert aq.ones(3)[aq.newaxis, :].shape == (1, 3)


def test_numbers_do_not_change_the_dtype_of_a_tensor():
    for dtype in (aq.dtypes.int8, aq.uint16, aq.float16, aq.bfloat16, aq.float64):
        assert (aq.ones(2, dtype=dtype) + 1).dtype == (1 + aq.ones(2, dtype=dtype)).dtype == dtype


def test_integers_do_not_vote_where_there_are_floats():
    assert (aq.ones(2, dtype=aq.int64) + aq.ones(2, dtype=aq.float16)).dtype == aq.float16
    assert aq.result_type(aq.int64, aq.float16) == aq.float16
    assert aq.result_type(aq.bool, 1) == aq.int64
    assert aq.result_type(aq.dtypes.int8, 0.5) == aq.float32


def test_a_tensor_without_axes_does_not_decide_a_dtype_that_the_standard_lets_it_decide():
    vector, scalar = aq.ones(2, dtype=aq.float32), aq.ones((), dtype=aq.float64)
    assert (vector * scalar).dtype == aq.result_type(vector, scalar) == aq.float32
    assert (scalar * aq.ones((), dtype=aq.float32)).dtype == aq.float64


def test_result_type_of_quantized_formats_is_that_of_ops():
    x, w = aq.ones((2, 32)).quantize(aq.mxfp8), aq.ones((2, 32)).quantize(aq.mxfp4).inhibit()
    assert aq.result_type(x, w) == (x * w).dtype
    assert aq.result_type(w, w) == (w * w).dtype == aq.float32
    assert aq.result_type(aq.mxfp8, aq.float32) == aq.float32


def test_quantized_formats_are_real_floating_and_decode_to_float32():
    assert aq.isdtype(aq.int8, "real floating")
    assert not aq.isdtype(aq.int8, "integral")
    assert aq.isdtype(aq.dtypes.int8, "integral")
    assert aq.can_cast(aq.mxfp4, aq.float32)
    assert not aq.can_cast(aq.mxfp4, aq.float16)
    assert not aq.can_cast(aq.float32, aq.mxfp4)


def test_mixed_kinds_cannot_be_cast():
    kinds = (aq.bool, aq.int32, aq.float64)
    assert not any(aq.can_cast(a, b) for a in kinds for b in kinds if a is not b)
    assert aq.can_cast(aq.bfloat16, aq.float32)
    assert not aq.can_cast(aq.uint8, aq.dtypes.int8)


def test_finfo_of_the_short_floats():
    assert aq.finfo(aq.bfloat16).eps == 2.0**-7
    assert aq.finfo(aq.float16).max == 65504.0
    for wrong in (aq.int32, aq.mxfp8):
        with pytest.raises(aq.errors.DTypeError):
            aq.finfo(wrong)
    with pytest.raises(aq.errors.DTypeError):
        aq.iinfo(aq.float32)


def test_int64_sums_are_exact_under_exact_precision():
    big = aq.asarray([2**60, 1])
    with aq.precision("exact"):
        assert aq.sum(big).item() == 2**60 + 1
    big += 1
    assert big.tolist() == [2**60 + 1, 2]


def test_asarray_shares_memory_unless_it_must_not():
    a = aq.tensor(np.ones(3)).value  # on the default device, where NumPy's arrays would be copied to
    assert aq.asarray(a).shares_memory(aq.asarray(a))
    assert not aq.asarray(a, copy=True).shares_memory(aq.asarray(a))
    with pytest.raises(ValueError, match="copy=False"):
        aq.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        aq.asarray(a, dtype=aq.float32, copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        aq.reshape(aq.ones((2, 3)).T, (6,), copy=False)
    x = aq.ones(2)
    assert aq.asarray(x) is x
    assert aq.astype(x, aq.float32, copy=False) is x
    assert not aq.astype(x, aq.float32).shares_memory(x)


def test_copies_stay_on_the_tape():
    x = aq.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    (aq.asarray(x, copy=True) * aq.reshape(x, (2, 2), copy=True).reshape(4)).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0, 8.0]


def test_gradients_pass_what_is_made_of_other_ops():
    x = aq.tensor([3.0, 1.0, 3.0], requires_grad=True)
    (aq.unique_values(x) * aq.tensor([1.0, 10.0])).sum().backward()
    assert x.grad.tolist() == [10.0, 1.0, 0.0]
    x = aq.tensor([1.0, 4.0, 9.0], requires_grad=True)
    (aq.diff(x) * aq.tensor([1.0, 10.0])).sum().backward()
    assert x.grad.tolist() == [-1.0, -9.0, 10.0]
    x, high = aq.tensor([1.0, 4.0], requires_grad=True), aq.tensor([2.0, 3.0], requires_grad=True)
    aq.clip(x, 0.0, high).sum().backward()
    assert (x.grad.tolist(), high.grad.tolist()) == ([1.0, 0.0], [0.0, 1.0])
    x = aq.tensor([1.0, 2.0], requires_grad=True)
    aq.sum(x, dtype=aq.float64).backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_packed_operands():
    q = aq.tensor([[1.0, -2.0] * 16]).quantize(aq.mxfp8)
    assert aq.unique_values(q).tolist() == [-2.0, 1.0]
    assert aq.nonzero(q)[1].shape == (32,)
    assert aq.clip(q, aq.tensor(0.0)).dtype == aq.mxfp8
    assert aq.concat([q, q], axis=None).shape == (64,)
    assert aq.diff(q, axis=0).shape == (0, 32)
    assert aq.imag(q).tolist() == [[0.0] * 32]
    assert aq.signbit(q).tolist() == [[False, True] * 16]


@pytest.mark.parametrize("call", [
    lambda: aq.tensor([1.5]) & 1, lambda: ~aq.tensor([1.5]), lambda: aq.tensor([True]) << 1,
    lambda: aq.asarray(1j), lambda: aq.ones(2, dtype="complex64"),
    lambda: aq.ones((2, 32), dtype=aq.mxfp8) | 1,
])  # fmt: skip
def test_dtypes_that_a_function_does_not_take(call):
    with pytest.raises(aq.errors.DTypeError):
        call()


@pytest.mark.parametrize("call", [
    lambda: aq.tensor([1, 2]) + 2**70, lambda: aq.tensor([1], dtype=aq.uint8) + 300,
    lambda: aq.tensor([2]) ** -1, lambda: aq.full((2,), 300, dtype=aq.uint8), lambda: aq.tensor([1]) << -1,
    lambda: aq.diff([1.0], n=-1), lambda: aq.searchsorted([1.0], [1.0], side="middle"),
    lambda: aq.searchsorted([1.0, 2.0], [1.0], sorter=[0, 0]), lambda: aq.result_type(1, 2.0),
    lambda: aq.sum(dtype=aq.int64),
    lambda: aq.isdtype(aq.int32, "whole"), lambda: aq.__array_namespace_info__().dtypes(kind="whole"),
])  # fmt: skip
def test_arguments_that_a_function_does_not_take(call):
    with pytest.raises(aq.errors.ArgumentError):
        call()


@pytest.mark.parametrize("call", [
    lambda: aq.nonzero(1.0), lambda: aq.searchsorted([[1.0]], [1.0]), lambda: aq.diff(1.0),
    lambda: aq.searchsorted([1.0, 2.0], [1.0], sorter=[0]), lambda: aq.ones((-1,)),
])  # fmt: skip
def test_shapes_that_a_function_does_not_take(call):
    with pytest.raises(aq.errors.ShapeError):
        call()


def test_unknown_devices():
    for call in (aq.zeros, aq.arange, aq.eye, lambda n, device: aq.asarray([n], device=device)):
        with pytest.raises(aq.errors.DeviceError):
            call(2, device="mars")


def test_info_names_the_limits():
    info = aq.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64
    }  # fmt: skip
    assert aq.ones((1,) * 64).ndim == 64
    assert info.default_device() in info.devices()
    everything = info.dtypes()
    assert {name: dtype.name for name, dtype in everything.items()} == {name: name for name in everything}
    assert info.dtypes(kind="complex floating") == {}


KINDS = ["bool", "integral", "real floating"]
DTYPES_OF = {kind: sorted(aq.__array_namespace_info__().dtypes(kind=kind)) for kind in KINDS}
PAIRS = [pair for names in DTYPES_OF.values() for pair in itertools.product(names, repeat=2)]


def open_by_the_standard(pair):
    return "uint64" in pair and any(name.startswith("int") for name in pair)


@pytest.mark.parametrize("pair", [p for p in PAIRS if not open_by_the_standard(p)], ids=" ".join)
def test_result_type_of_dtypes_and_arrays_is_that_of_the_standard(pair):
    expected = strict.result_type(*[getattr(strict, name) for name in pair])
    dtypes = [getattr(aq.dtypes, name) for name in pair]
    for given in itertools.product(*[(dtype, aq.empty(1, dtype=dtype)) for dtype in dtypes]):
        assert str(aq.result_type(*given)) == str(expected).rpartition(".")[2]
