"""The sweeps of the exhaustive tests, over a few patterns: both sides agree, and a difference is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoq.schemes import QuantScheme
from autoq.storage.plan import codec_of
from tests.gpu import sweep as sweeping
from tests.gpu.sweep import Sweep, first_difference, limits_of, top

WINDOWS = (0x3F7FFFF0, 0x7F7FFFF0, 0xC0DFFFF0, 0xFF7FFFF0)
TWO_LEVEL = QuantScheme("e2m1", (16,), "ue4m3", tensor_scale=True, scale_rule="te")
SWEEPS = {
    "codes": Sweep("codes", codec_of(QuantScheme("e4m3"))),
    "draws": Sweep("codes", codec_of(QuantScheme("e2m1", rounding="stochastic"))),
    "converted": Sweep("quick8", codec_of(QuantScheme("e5m2")), True),
    "converted, saturating": Sweep("quick8", codec_of(QuantScheme("e4m3", nonfinite="saturate")), True),
    "four": Sweep("quick4", codec_of(QuantScheme("e4m3")), True),
    "by arithmetic": Sweep("quick8", codec_of(QuantScheme("e3m2"))),
    "e2m1": Sweep("quick8", codec_of(QuantScheme("e2m1"))),
    "e2m1 drawn": Sweep("quick8", codec_of(QuantScheme("e2m1", rounding="stochastic"))),
    "rule": Sweep("rule", codec_of(QuantScheme("int8", scale="f16"))),
    "given": Sweep("rule", codec_of(QuantScheme("e4m3", scale="ue8m0"), True)),
    "two levels": Sweep("rule", codec_of(TWO_LEVEL)),
    "tensor": Sweep("tensor", codec_of(TWO_LEVEL)),
}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.filterwarnings("ignore:invalid")
@pytest.mark.parametrize("name", sorted(SWEEPS))
def test_device_and_cpu_make_the_same_sums(name: str) -> None:
    chosen = SWEEPS[name]
    for first in WINDOWS:
        for limits in (top(chosen.codec), limits_of(chosen.codec)):
            assert first_difference(chosen, limits, first=first, patterns=32, run=8) is None


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_pattern_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = SWEEPS["codes"]
    right = sweeping.on_host

    def wrong(*arguments: Any) -> np.ndarray:
        first, slots, run = arguments[1:4]
        sums = right(*arguments)
        at = 0x3F800004 - first
        if 0 <= at < slots * run:
            sums[at // run] += np.uint64(1)
        return sums

    monkeypatch.setattr(sweeping, "on_host", wrong)
    found = first_difference(chosen, top(chosen.codec), first=0x3F7FFFF0, patterns=32, run=8)
    assert found == 0x3F800000
