"""The first arithmetic on a GPU in a process, by each way that a tensor gets there: on the stand-in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAYS = {
    "device": "x = aq.tensor(a, device='cuda')",
    "number": "x = aq.tensor(a, device='cuda:0')",
    "created": "x = aq.ones(2, device='cuda')",
    "to": "x = aq.tensor(a).to('cuda')",
    "cuda": "x = aq.tensor(a).cuda()",
    "asked first": "x = aq.tensor(a, device=aq.cuda())",
    "block": "with aq.default_device('cuda'): x = aq.tensor(a)",
    "default": "aq.set_default_device('cuda'); x = aq.tensor(a); aq.set_default_device('cpu')",
    "module": "x = aq.nn.LayerNorm(2).to('cuda').weight.detach()",
    "parameter": "x = aq.Parameter(aq.tensor(a), device='cuda').detach()",
    "CuPy": "x = aq.tensor(cupy.ones(2, np.float32))",
    "CuPy, shared": "x = aq.asarray(cupy.ones(2, np.float32))",
    "DLPack": "x = aq.from_dlpack(cupy.ones(2, np.float32))",
    "DLPack, shared": "x = aq.asarray(Exported(cupy.ones(2, np.float32)))",
    "packed": "x = aq.tensor(aq.QTensor.quantize(cupy.ones(2, np.float32), 'mxfp8')).dequantize()",
    "file": "aq.io.save('saved.npz', {'x': h}); x = aq.tensor(aq.io.load('saved.npz', device='cuda')['x'])",
}
PROGRAM = """
import os
import numpy as np
from tests.device.standin import install

install()
import cupy
import autoq as aq

class Exported:
    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

a = np.ones(2, np.float32)
h = aq.tensor(a)
{way}
{use}
"""
ADD = """
total = x + x
assert total.device == "cuda", total.device
assert total.numpy().tolist() == [2.0, 2.0]
"""
MIX = """
for call in (lambda: x + h, lambda: h + x):
    try:
        call()
    except aq.errors.DeviceError as error:
        assert "cpu" in error.given and "cuda" in error.given, error
    else:
        raise AssertionError("not refused")
"""


@pytest.mark.parametrize("use", [ADD, MIX], ids=["add", "mix"])
@pytest.mark.parametrize("way", WAYS)
def test_the_first_arithmetic_is_the_gpus(way: str, use: str, tmp_path: Path) -> None:
    program = PROGRAM.format(way=WAYS[way], use=use)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
