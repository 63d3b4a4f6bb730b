"""Report: what a section of the GPU benchmark measures, checks and holds against its bars.

A section is ``run(report)``. All figures are of one run: the copy rate is measured beside the kernels, and
so are the peers. Everything is kept as JSON; tables are made from that.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoq.kernels.cuda import launch
from gpu.clock import DeviceClock, HostClock, calls_for

COPY_BYTES = 1 << 30
ROUNDS = 21
LONGEST = 0.05  # seconds of a round by the clock on the wall


class Report:
    """Collects one section's figures.

    Args:
        name: The section's.
        folder: Where ``<name>.json`` is written, anew after every figure; None for nowhere.
        quick: Few rounds and a small copy, to try a section out.
        device: False to measure host time where no device is at hand.
        timed: False to call what would be timed, and no more: kernels get compiled and results checked.

    Attributes:
        copy_rate: Bytes a second that a device-to-device copy of 1 GiB moves, in this run.
        quick: Whether this is a trial: sections then take small sizes.
        rows: The figures, as they go to JSON.
    """

    def __init__(
        self,
        name: str,
        folder: Path | None = None,
        *,
        quick: bool = False,
        device: bool = True,
        timed: bool = True,
    ) -> None:
        self.name, self.folder, self.quick, self.timed = name, folder, quick, timed
        self.rows: list[dict[str, Any]] = []
        self.rounds = 3 if quick else ROUNDS
        self.state = "running"
        self.device = device
        self.write()
        self.clock = (DeviceClock if device else HostClock)(COPY_BYTES if timed and not quick else 1 << 22)
        self.copy_rate: float = self.clock.copy_rate()
        self._add("copy", "device-to-device copy", rate=self.copy_rate)

    def size(self, full: int, least: int = 1 << 12) -> int:
        """``full``, or under ``quick`` a small size in its place: a power of two below it, from ``least``."""
        return min(full, least) if self.quick else full

    def check(self, name: str, passed: Any, detail: str = "") -> bool:
        """Note whether something that is timed is also right; what isn't fails the section.

        ``passed`` may be a function, whose error counts as a failure.
        """
        if callable(passed):
            try:
                passed = passed()
            except Exception as error:
                passed, detail = False, f"{detail} {type(error).__name__}: {error}".strip()
                traceback.print_exc()
        self._add("check", name, passed=bool(passed), detail=detail)
        print(f"  {'right' if passed else 'WRONG'}: {name} {detail}", flush=True)
        return bool(passed)

    def time(
        self,
        name: str,
        functions: Callable[[], object] | Sequence[Callable[[], object]],
        moved: float | None = None,
        flops: float | None = None,
        peer: bool = False,
    ) -> float:
        """Time work on the device by CUDA events: the median of the rounds, after warming up.

        Args:
            name: What is timed.
            functions: One, or several that do the same on different inputs, which take turns.
            moved: Bytes that must move: each input read once, each output written once.
            flops: Floating-point operations of a product.
            peer: Whether it is another library's.

        Returns:
            Seconds a call.
        """
        listed = [functions] if callable(functions) else list(functions)
        if not self.timed:
            return self._called(listed)
        calls, host = calls_for(self.clock, listed)
        launches = self.launches(listed[0])
        samples = [self.clock.sample(listed, calls, host) for _ in range(self.rounds)]
        low, seconds, high = (float(x) for x in np.percentile(samples, (25, 50, 75)))
        row = {"seconds": seconds, "low": low, "high": high, "rounds": len(samples), "calls": calls}
        row |= {"inputs": len(listed), "host": host, "launches": None if peer else launches, "peer": peer}
        if moved is not None:
            row |= {"moved": float(moved), "of_copy": moved / seconds / self.copy_rate}
        if flops is not None:
            row["flops"] = float(flops)
        self._add("time", name, **row)
        return seconds

    def host_time(
        self, name: str, function: Callable[[], object], peer: bool = False, calls: int = 200
    ) -> float:
        """Time what a call costs the host: the device isn't waited for within a round.

        Returns:
            Seconds a call: the median of the rounds.
        """
        return self._by_host("host", name, function, peer, calls)

    def wall_time(
        self, name: str, function: Callable[[], object], peer: bool = False, calls: int = 20
    ) -> float:
        """Time consecutive calls until the device has done them all: what a training loop feels.

        Returns:
            Seconds a call: the median of the rounds.
        """
        return self._by_host("wall", name, function, peer, calls)

    def _by_host(self, kind: str, name: str, function: Callable[[], object], peer: bool, calls: int) -> float:
        if not self.timed:
            return self._called([function])
        for _ in range(3):
            function()
        self.clock.synchronize()
        started = time.perf_counter()
        launches = self.launches(function)
        self.clock.synchronize()
        calls = max(2, min(3 if self.quick else calls, int(LONGEST / (time.perf_counter() - started))))
        samples = []
        for _ in range(self.rounds):
            self.clock.synchronize()
            started = time.perf_counter()
            for _ in range(calls):
                function()
            if kind == "wall":
                self.clock.synchronize()
            samples.append((time.perf_counter() - started) / calls)
        self.clock.synchronize()
        low, seconds, high = (float(x) for x in np.percentile(samples, (25, 50, 75)))
        row = {"seconds": seconds, "low": low, "high": high, "rounds": len(samples), "calls": calls}
        self._add(kind, name, **row, launches=None if peer else launches, peer=peer)
        return seconds

    def _called(self, functions: Sequence[Callable[[], object]]) -> float:
        """Some calls that nobody times: a second in name."""
        for function in functions:
            for _ in range(3):
                function()
        self.clock.synchronize()
        return 1.0

    def launches(self, function: Callable[[], object]) -> int:
        """How many kernels of ours a call launches; those of CuPy and cuBLAS aren't counted."""
        before = launch.launches
        function()
        return launch.launches - before

    def figure(self, name: str, value: float, unit: str, peer: bool = False) -> float:
        """Note a figure that isn't a time of the device: bytes, seconds of a process."""
        self._add("figure", name, value=float(value), unit=unit, peer=peer)
        return value

    def bars(self, name: str, fraction: float, bar: float, *, at_most: bool = False) -> bool:
        """Hold a figure against its bar, which it must reach, or with ``at_most`` stay below."""
        met = fraction <= bar if at_most else fraction >= bar
        self._add("bar", name, reached=float(fraction), bar=float(bar), at_most=at_most, met=bool(met))
        return bool(met)

    def note(self, text: str) -> None:
        """Note something in words: what is missing here, what was tried."""
        self._add("note", text)

    @property
    def failed(self) -> bool:
        """Whether a check failed."""
        return any(row["kind"] == "check" and not row["passed"] for row in self.rows)

    def finish(self, state: str) -> None:
        """Note how the section ended: ``"done"``, or with what error."""
        self.state = state
        self.write()

    def write(self) -> None:
        """Write everything so far as JSON."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            found = {"section": self.name, "state": self.state, "quick": self.quick, "device": self.device}
            text = json.dumps({**found, "rows": self.rows}, indent=1)
            path = self.folder / f"{self.name}.json"
            path.with_suffix(".part").write_text(text)
            path.with_suffix(".part").replace(path)

    def _add(self, kind: str, name: str, **figures: Any) -> None:
        self.rows.append({"kind": kind, "name": name, **figures})
        self.write()
