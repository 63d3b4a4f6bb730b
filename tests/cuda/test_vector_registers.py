"""The vector product's usual kernels on Hopper, whose 1024 threads have 64 registers each."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

from autoq import schemes
from autoq.kernels.codec import Codec
from autoq.kernels.cuda import vector
from autoq.kernels.cuda.compile import ptx_of
from autoq.kernels.cuda.decode import decoding
from autoq.kernels.cuda.vector_decode import form_of
from autoq.kernels.cuda.vector_kernels import Shape, vector_kernel
from autoq.kernels.cuda.vector_stage import columns_of
from autoq.storage.plan import plan_of
from benchmarks.gpu.vector import SWEPT

from .test_ptx import spilled

needs_ptxas = pytest.mark.skipif(
    which("ptxas") is None, reason="ptxas, which allots registers, isn't installed"
)


@needs_ptxas
@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [("nvfp4", "float32", 1), ("nvfp4", "float32", 2), ("nvfp4", "bfloat16", 8), ("mxfp4", "float32", 1)],
)
def test_no_register_is_kept_in_memory(
    name: str, kind: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector, "current_device", lambda: 0)
    monkeypatch.setattr(vector, "device_capability", lambda device: vector.HOPPER)
    form = form_of(*codec_of(name))
    assert form is not None
    shape = vector.usual_shape(form, columns_of(rows, kind))
    assert shape.threads == 1024
    assert spills(name, kind, rows, shape, tmp_path) == 0


@needs_ptxas
@pytest.mark.parametrize(("name", "parts"), [(name, parts) for name in SWEPT for parts in SWEPT[name]])
def test_no_other_shape_that_is_timed_keeps_registers_in_memory(
    name: str, parts: tuple[int, ...], tmp_path: Path
) -> None:
    assert spills(name, "float32", 1, Shape(*parts), tmp_path) == 0


def codec_of(name: str) -> tuple[Codec, int]:
    scheme = schemes.scheme(name)
    return decoding(plan_of(scheme).codec), scheme.block[-1]


def spills(name: str, kind: str, rows: int, shape: Shape, folder: Path) -> int:
    ptx = ptx_of(vector_kernel(*codec_of(name), kind, rows, shape).source, vector.HOPPER)
    assert ".local" not in ptx
    return spilled(ptx, "sm_90", folder)
