"""The vector product's usual kernels on Hopper, whose 1024 threads have 64 registers each."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

from autoq import schemes
from autoq.kernels.cuda import vector
from autoq.kernels.cuda.compile import ptx_of
from autoq.kernels.cuda.decode import decoding
from autoq.kernels.cuda.vector_decode import form_of
from autoq.kernels.cuda.vector_kernels import vector_kernel
from autoq.kernels.cuda.vector_stage import columns_of
from autoq.storage.plan import plan_of

from .test_ptx import spilled


@pytest.mark.skipif(which("ptxas") is None, reason="ptxas, which allots registers, isn't installed")
@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [("nvfp4", "float32", 1), ("nvfp4", "float32", 2), ("nvfp4", "bfloat16", 8), ("mxfp4", "float32", 1)],
)
def test_no_register_is_kept_in_memory(
    name: str, kind: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector, "current_device", lambda: 0)
    monkeypatch.setattr(vector, "device_capability", lambda device: vector.HOPPER)
    codec, block = decoding(plan_of(schemes.scheme(name)).codec), schemes.scheme(name).block[-1]
    form = form_of(codec, block)
    assert form is not None
    shape = vector.usual_shape(form, columns_of(rows, kind))
    assert shape.threads == 1024
    ptx = ptx_of(vector_kernel(codec, block, kind, rows, shape).source, vector.HOPPER)
    assert spilled(ptx, "sm_90", tmp_path) == 0
