"""Rules, roundings and policies of quantizing in the simulator: the CPU's bytes."""

from __future__ import annotations

import pytest

from autoq.schemes import QuantScheme, scheme

from .quantizing import DRAW, assert_equal_bytes, values

# Values of a block that has no codes may overflow when they are scaled: NumPy warns, devices do not.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in scalar")

CHOICES = {
    "saturating": scheme("mxfp8").replace(nonfinite="saturate"),
    "saturating e5m2": scheme("mxfp8_e5m2").replace(nonfinite="saturate", scale_rule="even"),
    "floor": scheme("mxfp6_e2m3").replace(scale_rule="floor"),
    "torchao": scheme("nvfp4").replace(scale_rule="torchao"),
    "four over six": scheme("nvfp4").replace(scale_rule="four_over_six"),
    "four over six, drawn": scheme("nvfp4").replace(scale_rule="four_over_six", rounding="stochastic"),
    "f16 scales": QuantScheme("int4", (20,), "f16"),
    "mean": QuantScheme("int2", (20,), "bf16", scale_rule="nearest", calibration="abs_mean"),
    "mean, saturating": QuantScheme("int8", (8,), "f32", nonfinite="saturate", calibration="abs_mean"),
    "mean of the tensor": QuantScheme("int8", None, "f32", calibration="abs_mean"),
    "saturating tensor": QuantScheme("e4m3", None, "f32", nonfinite="saturate"),
    "stochastic": QuantScheme("int8", (32,), "f32", rounding="stochastic", nonfinite="saturate"),
    "stochastic8": QuantScheme("e4m3", (32,), "ue4m3", rounding="stochastic8"),
    "stochastic nvfp4": scheme("nvfp4").replace(rounding="stochastic"),
    "two levels of f16": QuantScheme("int8", (16,), "f16", tensor_scale=True),
    "a block a value": QuantScheme("e2m3", (1,), "bf16"),
    "blocks across lines": QuantScheme("e3m2", (4, 1), "ue8m0"),
    "tiles": QuantScheme("e2m1", (2, 6), "ue4m3"),
    "long blocks": QuantScheme("int8", (100,), "f16"),
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("finite", [True, False])
def test_rules_roundings_and_policies_have_the_bytes_of_the_cpu(name: str, finite: bool) -> None:
    s = CHOICES[name]
    assert_equal_bytes(values((5, 41), finite=finite), s, DRAW if s.rounding != "nearest" else None)
