"""The kernels of the exhaustive tests."""

from __future__ import annotations

from autoq.kernels.cuda.decode import CONVERTS
from autoq.schemes import QuantScheme
from autoq.storage.plan import codec_of
from tests.gpu.sweep import Sweep, sweep_kernel

TWO_LEVEL = QuantScheme("e2m1", (16,), "ue4m3", tensor_scale=True, scale_rule="te")

REPRESENTATIVES = [
    (sweep_kernel, (Sweep("codes", codec_of(QuantScheme("e4m3"))),)),
    (sweep_kernel, (Sweep("codes", codec_of(QuantScheme("int8", rounding="stochastic"))),)),
    (sweep_kernel, (Sweep("quick8", codec_of(QuantScheme("e5m2")), True),), CONVERTS),
    (sweep_kernel, (Sweep("quick8", codec_of(QuantScheme("e2m1"))),)),
    (sweep_kernel, (Sweep("rule", codec_of(TWO_LEVEL)),)),
    (sweep_kernel, (Sweep("tensor", codec_of(TWO_LEVEL)),)),
]
