"""Kernels compile for every architecture: no float64, no local memory, no contraction, no spills.

The representatives for sm_90, and for the others one of them a template and widths of its elements.
``make test-ptx`` compiles all combinations of parameters for all.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autoq.kernels.cuda.compile import Source, for_driver, ptx_of

from .listing import CAPABILITIES, Capability, Listed, cases, listed, widths

CASES = cases()
REFUSED = (".f64", ".local", "fma.")
# The oldest CUDA whose drivers read the kernels on every architecture that is tested.
DRIVER = 13000


@pytest.mark.parametrize(
    ("kernel", "capability"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_kernel_compiles_and_holds_nothing_slow(
    kernel: Listed, capability: Capability, tmp_path: Path
) -> None:
    ptx = ptx_of(kernel.factory(*kernel.parameters).source, capability)
    architecture = f"sm_{capability[0]}{capability[1]}"
    assert f".target {architecture}" in ptx
    for text in REFUSED:
        if text not in kernel.allowed:
            assert text not in ptx, f"{kernel.factory.__name__}{kernel.parameters}: {text}"
    if shutil.which("ptxas"):
        assert spilled(ptx, architecture, tmp_path) == 0


def spilled(ptx: str, architecture: str, folder: Path) -> int:
    """Bytes of registers that the assembler keeps in memory."""
    source = folder / "kernel.ptx"
    source.write_text(for_driver(ptx, DRIVER))
    done = subprocess.run(
        ["ptxas", f"-arch={architecture}", "-v", "-o", str(folder / "kernel.cubin"), str(source)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return sum(int(count) for count in re.findall(r"(\d+) bytes spill", done.stderr))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_template_is_compiled_with_all_widths(capability: Capability) -> None:
    listed_for = {(k.factory, widths(k.parameters)) for k in listed() if k.oldest <= capability}
    compiled = {(k.factory, widths(k.parameters)) for _, k, each in CASES if each == capability}
    assert compiled == listed_for
    assert len({factory for factory, _ in compiled}) > 30


def test_every_exception_has_a_reason_and_is_needed() -> None:
    uses: dict[tuple[str, str], list[tuple[Listed, Capability]]] = {}
    for _, kernel, capability in CASES:
        for text, reason in kernel.allowed.items():
            assert text in REFUSED
            assert len(reason.split()) > 2, f"{kernel.factory.__name__}: why may {text} be there?"
            uses.setdefault((kernel.factory.__name__, text), []).append((kernel, capability))
    unused = [
        use
        for use, places in uses.items()
        if not any(use[1] in ptx_of(k.factory(*k.parameters).source, capability) for k, capability in places)
    ]
    assert unused == []


def test_what_is_refused_is_seen() -> None:
    from numba import cuda

    def wrong(x, y, n):
        held = cuda.local.array(64, "float64")
        for i in range(n):
            held[i & 63] = x[i & 31] * 0.5
        y[0] = held[n & 63]

    ptx = ptx_of(Source("wrong", wrong, ("float32*", "float32*", "int64"), "refused"), (9, 0))
    assert ".f64" in ptx
    assert ".local" in ptx
