"""Every bit pattern of a float32 through every encoder and scale rule, every code through every decoder.

The device is held against the same scalar source compiled for the CPU. Run them side by side, since most of
the time goes into compiling: ``pytest -n 8 -m "gpu and exhaustive"``.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autoq.schemes import ELEMENTS, SCALES, QuantScheme
from autoq.storage import convert
from autoq.storage.plan import codec_of

from .sweep import Sweep, first_difference, limits_of, top

pytestmark = [pytest.mark.gpu, pytest.mark.exhaustive]

# What a tensor scale is taken of in the sweeps of block rules: ordinary, and the ends of the range.
TENSOR_AMAX = (2688.0, 3.0e38, 1.2e-38, 1e-42, 0.0)
MINIFLOATS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
MX = (*MINIFLOATS, "mxint8")
QUOTIENTS = ("e4m3", "e5m2", "int8", "int4", "int2", "int8_full", "int4_full", "int2_full")
# Elements whose encoders differ in more than their range.
DISTINCT = (*MX, "int8", "int4", "int2")
ROUNDINGS = ("nearest", "stochastic", "stochastic8")
# One element a kind, for what others share but for constants.
MAIN = ("e4m3", "e2m1", "int8")
FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def rule_schemes() -> list[QuantScheme]:
    """A scheme for every scale format and rule, on the elements that named schemes use them for."""
    found = [QuantScheme(element, (16,), "ue8m0", scale_rule=rule) for element in MX for rule in POWERS]
    found += [QuantScheme(element, (16,), "f32", scale_rule=rule) for element in QUOTIENTS for rule in USUAL]
    for scale in ("ue4m3", "f16", "bf16"):
        found += [
            QuantScheme(element, (16,), scale, scale_rule=rule) for element in MAIN[:2] for rule in USUAL
        ]
    for scale in ("ue4m3", "f16"):
        found += [QuantScheme("e2m1", (16,), scale, True, rule) for rule in SCALES[scale].two_level_rules]
    return found


POWERS = SCALES["ue8m0"].rules
USUAL = SCALES["f32"].rules


def names(schemes: list[QuantScheme]) -> list[str]:
    return [f"{s.element}-{s.scale}{'-two' * s.tensor_scale}-{s.scale_rule}" for s in schemes]


@pytest.mark.parametrize("element", sorted(ELEMENTS))
def test_every_float_through_every_encoder(element: str) -> None:
    codec = codec_of(QuantScheme(element))
    for limits in (top(codec), limits_of(codec)) if element in DISTINCT else (top(codec),):
        differs = first_difference(Sweep("codes", codec), limits)
        assert differs is None, f"{element}: the code of {differs:#010x} differs"


@pytest.mark.parametrize(
    ("element", "rounding"),
    [*((element, "stochastic") for element in DISTINCT), *((element, "stochastic8") for element in MAIN)],
)
def test_every_float_under_stochastic_rounding(element: str, rounding: str) -> None:
    codec = codec_of(QuantScheme(element, rounding=rounding))
    differs = first_difference(Sweep("codes", codec), limits_of(codec))
    assert differs is None, f"{element}, {rounding}: the code of {differs:#010x} differs"


@pytest.mark.parametrize("element", MX)
def test_every_float_where_nan_is_kept(element: str) -> None:
    codec = codec_of(QuantScheme(element, nonfinite="saturate"))
    differs = first_difference(Sweep("codes", codec), top(codec))
    assert differs is None, f"{element}: the code of {differs:#010x} differs"


def quick_sweeps() -> dict[str, Sweep]:
    """The quick ways of fast kernels: by float arithmetic, and by the device's conversions."""
    found = {}
    for element in MINIFLOATS:
        for rounding in ROUNDINGS if element in MAIN else ROUNDINGS[:1]:
            found[f"{element}-{rounding}"] = Sweep("quick8", quick_codec(element, rounding=rounding))
    for element in ("e4m3", "e5m2"):
        for nonfinite in ("propagate", "saturate"):
            codec = quick_codec(element, nonfinite=nonfinite)
            found[f"{element}-converted-{nonfinite}"] = Sweep("quick8", codec, True)
    found["four e4m3"] = Sweep("quick4", quick_codec("e4m3"), True)
    found["four e2m1"] = Sweep("quick4", quick_codec("e2m1"))
    return found


def quick_codec(element: str, **fields: str) -> Any:
    return codec_of(QuantScheme(element, scale="ue8m0", **fields))


@pytest.mark.parametrize("name", sorted(quick_sweeps()))
def test_every_float_by_the_quick_ways(name: str) -> None:
    chosen = quick_sweeps()[name]
    differs = first_difference(chosen, top(chosen.codec))
    assert differs is None, f"{name}: one of eight codes from {differs:#010x} on differs"


@pytest.mark.parametrize("scheme", rule_schemes(), ids=names(rule_schemes()))
def test_every_amax_through_every_rule(scheme: QuantScheme) -> None:
    from autoq.kernels.scalar.rules import tensor_factors

    codec = codec_of(scheme)
    for amax in TENSOR_AMAX if scheme.tensor_scale else (1.0,):
        with np.errstate(all="ignore"):
            numbers = tuple(float(x) for x in tensor_factors(codec)(np.float32(amax))[:3])
        differs = first_difference(Sweep("rule", codec), top(codec), numbers, patterns=1 << 31)
        assert differs is None, f"{scheme.name} under {amax}: the scale of {differs:#010x} differs"


@pytest.mark.parametrize("scale", sorted(SCALES))
def test_every_given_scale(scale: str) -> None:
    codec = codec_of(QuantScheme("e4m3", scale=scale), given=True)
    differs = first_difference(Sweep("rule", codec), top(codec), patterns=1 << 31)
    assert differs is None, f"{scale}: the scale of {differs:#010x} differs"


@pytest.mark.parametrize("scale", sorted(SCALES))
def test_every_amax_beside_values_that_are_not_finite(scale: str) -> None:
    # The sign bit of a measure says that such values were left out.
    codec = codec_of(QuantScheme("e4m3", scale=scale, nonfinite="saturate"))
    differs = first_difference(Sweep("rule", codec), top(codec))
    assert differs is None, f"{scale}: the scale of {differs:#010x} differs"


@pytest.mark.parametrize("rule", ["round_up", "te", "torchao", "four_over_six"])
def test_every_amax_of_a_tensor(rule: str) -> None:
    codec = codec_of(QuantScheme("e2m1", (16,), "ue4m3", tensor_scale=True, scale_rule=rule))
    differs = first_difference(Sweep("tensor", codec), top(codec), patterns=1 << 31)
    assert differs is None, f"{rule}: the tensor scale of {differs:#010x} differs"


def every_scale(scale: str) -> np.ndarray:
    """Every stored scale; of float32 every upper half, with two lower ones."""
    dtype = SCALES[scale].stored_dtype
    if scale != "f32":
        return np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    return np.concatenate([upper, upper | 0x5A5B]).view(np.float32)


@pytest.mark.parametrize("scale", sorted(SCALES))
@pytest.mark.parametrize("element", sorted(ELEMENTS))
def test_every_code_times_every_scale(cupy: Any, element: str, scale: str) -> None:
    from autoq.kernels.cuda.dequantize import dequantize
    from autoq.kernels.cuda.dequantize_kernels import stored_type

    bits = ELEMENTS[element].bits
    codes = np.arange(max(1 << bits, 32), dtype=np.uint32) % (1 << bits)
    scheme = QuantScheme(element, (len(codes),), scale)
    scales = every_scale(scale)[:, None]
    line = convert.pack(codes.astype(np.uint8), bits)
    words = np.ascontiguousarray(np.broadcast_to(line, (len(scales), len(line))))
    shape = len(scales), len(codes)
    wanted = convert.dequantize(words, scales, None, scheme, shape)
    held = scales if scales.dtype.kind in "uf" else scales.view(np.uint16)
    arrays = cupy.asarray(words), cupy.asarray(held)
    for dtype, kind in FLOATS.items():
        out = cupy.empty(shape, kind)
        dequantize(*arrays, None, codec_of(scheme), scheme.block, out)
        pattern = stored_type(dtype).replace("float", "uint")
        with np.errstate(over="ignore"):
            expected = wanted.astype(kind)
        nan = np.isnan(wanted)
        found = cupy.asnumpy(out.view(pattern))
        assert (np.isnan(found.view(kind).astype(np.float32)) == nan).all()
        assert (found == expected.view(pattern))[~nan].all(), f"{element}, {scale} to {dtype}"
