"""The device's quantizer in the simulator: the CPU's bytes of named schemes, given scales, any strides."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy learns of bfloat16)
import numpy as np
import pytest

from autoq.errors import ArgumentError, ShapeError
from autoq.kernels.cuda.measure import amax, first_nonfinite
from autoq.kernels.cuda.quantize import quantize
from autoq.schemes import CATALOG, QuantScheme, scheme
from autoq.storage import convert
from autoq.storage.layout import grid_shape
from autoq.storage.plan import codec_of

from .quantizing import DRAW, assert_equal_bytes, on_device, values

# Values of a block that has no codes may overflow when they are scaled: NumPy warns, devices do not.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in scalar")

KEY = np.array([0x89ABCDEF, 0x01234567, 0x76543210, 0xFEDCBA98], np.uint32)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_named_schemes_have_the_bytes_of_the_cpu(name: str) -> None:
    assert_equal_bytes(values((3, 40)), scheme(name))


GIVEN = {
    "mxfp8": scheme("mxfp8"),
    "int4 f16": QuantScheme("int4", (20,), "f16"),
    "nvfp4": scheme("nvfp4"),
    "torchao": scheme("nvfp4").replace(scale_rule="torchao"),
    "tensor": scheme("int8").replace(block=None),
}


@pytest.mark.parametrize("name", GIVEN)
def test_given_scales_have_the_bytes_of_the_cpu(name: str) -> None:
    s, x = GIVEN[name], values((2, 64), finite=False)
    grid = grid_shape(x.shape, s.extents(2))
    given = np.abs(values(grid, seed=1)).astype(np.float32)
    assert_equal_bytes(x, s, scales=(given, 3.5) if s.tensor_scale else given)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_given_magnitude_replaces_the_measured_one(on_device: bool) -> None:
    x, s = values((2, 64)), scheme("nvfp4")
    words, stored, level = np.zeros((2, 8), np.uint32), np.zeros((2, 4), np.uint8), np.zeros((), np.float32)
    given = np.array(9, np.float32) if on_device else np.float32(9)
    quantize(x, codec_of(s), s.block, words, stored, level, given_amax=given)
    expected = convert.encode(x, s, 9.0)
    assert (words.tobytes(), stored.tobytes()) == (expected.words.tobytes(), expected.scales.tobytes())
    assert level.tobytes() == expected.tensor_scale.tobytes()


@pytest.mark.parametrize("block", [(16,), (4, 4)])
def test_a_key_on_the_device_draws_as_its_numbers(block: tuple[int, ...]) -> None:
    s = scheme("nvfp4").replace(rounding="stochastic", block=block)
    assert_equal_bytes(values((4, 32)), s, KEY, cpu=DRAW)


STRIDES = {
    "transposed": lambda x: x.T,
    "every other line": lambda x: x[::2],
    "every other value": lambda x: x[:, ::2],
    "a part": lambda x: x[1:, 3:],
    "one line repeated": lambda x: np.broadcast_to(x[0], (3, 96)),
    "axes in another order": lambda x: x.reshape(4, 2, 6, 8).transpose(2, 0, 3, 1),
    "many axes": lambda x: x[:, :64].reshape((2, 2) + (2,) * 6).transpose(7, 1, 5, 3, 0, 2, 4, 6),
    "no axes": lambda x: x[1, 1],
    "one value a line": lambda x: x[:, :1],
}


@pytest.mark.parametrize("way", STRIDES)
def test_arrays_of_any_strides_have_the_bytes_of_the_cpu(way: str) -> None:
    x = np.asarray(STRIDES[way](values((4, 96))))
    for name in ("mxfp6_e2m3", "fp8_e4m3") if x.ndim else ("fp8_e4m3",):
        assert_equal_bytes(x, scheme(name))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 32)])
def test_an_array_without_values_launches_nothing(shape: tuple[int, ...]) -> None:
    quantize(np.zeros(shape, np.float32), codec_of(scheme("mxfp8")), (32,), None, None)


def test_a_draw_is_asked_for() -> None:
    s = scheme("mxfp8").replace(rounding="stochastic")
    with pytest.raises(ArgumentError, match="without random numbers"):
        quantize(values((32,)), codec_of(s), (32,), None, None)


def test_blocks_of_too_many_axes_are_refused() -> None:
    s = QuantScheme("e4m3", (2,) * 6, "ue8m0")
    with pytest.raises(ShapeError, match="at most 4 axes"):
        on_device(values((3,) * 6), s)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_largest_finite_magnitude_is_measured(dtype: str) -> None:
    x = values((5, 41), finite=False).astype(dtype)
    for part in (x, x.T, x[:, 1::3], x[:4, :40].copy(), x[0, :1], x[:0]):
        finite = part[np.isfinite(part.astype(np.float32))].astype(np.float32)
        assert amax(part) == np.abs(finite).max(initial=0.0)
        assert amax(part).shape == ()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_first_value_that_is_not_finite_is_found(dtype: str) -> None:
    x = values((6, 40)).astype(dtype)
    assert first_nonfinite(x) == -1
    x[4, 7], x[2, 30], x[5, 0] = np.inf, np.nan, -np.inf
    assert first_nonfinite(x) == 110
    assert first_nonfinite(x.T) == 5
    assert first_nonfinite(x[:0]) == -1
