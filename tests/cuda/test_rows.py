"""Rows stay in registers: no local memory up to sm_90, no more registers than a block can have."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from autoq.kernels.cuda.compile import for_driver, ptx_of
from autoq.kernels.cuda.row_kernels import Shape

from .representatives.rows import REPRESENTATIVES

REGISTERS = 1 << 16
CASES = [entry for entry in REPRESENTATIVES if any(isinstance(p, Shape) for p in entry[1])]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c[0].__name__}" for i, c in enumerate(CASES)])
def test_rows_are_held_in_registers(case, tmp_path):
    factory, parameters, *_ = case
    ptx = ptx_of(factory(*parameters).source, (9, 0))
    assert ".local" not in ptx
    if shutil.which("ptxas") is None:
        return
    (tmp_path / "kernel.ptx").write_text(for_driver(ptx, 13000))
    command = ["ptxas", "-arch=sm_90", "-v", "-o", str(tmp_path / "out"), str(tmp_path / "kernel.ptx")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    used = int(re.findall(r"Used (\d+) registers", said)[0])
    threads = next(p for p in parameters if isinstance(p, Shape)).threads
    assert -(-used // 8) * 8 * threads <= REGISTERS
