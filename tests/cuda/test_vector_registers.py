"""The vector product's usual kernels on Hopper, whose 1024 threads have 64 registers each."""

from __future__ import annotations

from collections.abc import Callable
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
from autoq.kernels.cuda.vector_stage import PIECES
from autoq.storage.plan import plan_of
from benchmarks.gpu.vector import SHAPES

from .test_ptx import spilled

needs_ptxas = pytest.mark.skipif(
    which("ptxas") is None, reason="ptxas, which allots registers, isn't installed"
)


@pytest.fixture
def capability(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int]], None]:
    """Sets the compute capability of the current device."""

    def choose(found: tuple[int, int]) -> None:
        monkeypatch.setattr(vector, "current_device", lambda: 0)
        monkeypatch.setattr(vector, "device_capability", lambda device: found)

    return choose


@needs_ptxas
@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [
        *[("nvfp4", kind, rows) for kind, rows in (("float32", 1), ("float32", 2), ("bfloat16", 8))],
        *[("mxfp8", kind, 1) for kind in ("float32", "float16", "bfloat16")],
        ("mxfp4", "float32", 1),
    ],
)
def test_no_register_is_kept_in_memory(
    name: str, kind: str, rows: int, tmp_path: Path, capability: Callable[[tuple[int, int]], None]
) -> None:
    capability(vector.HOPPER)
    shape = usual(name, rows, kind)
    assert shape.threads == 1024
    assert spills(name, kind, rows, shape, tmp_path) == 0


@needs_ptxas
@pytest.mark.parametrize(("name", "parts"), [(name, parts) for name in SHAPES for parts in SHAPES[name]])
def test_no_other_shape_that_is_timed_keeps_registers_in_memory(
    name: str, parts: tuple[int, ...], tmp_path: Path
) -> None:
    assert spills(name, "float32", 1, Shape(*parts), tmp_path) == 0


def test_1024_threads_are_for_hopper_and_bytes_of_one_row(
    capability: Callable[[tuple[int, int]], None],
) -> None:
    capability(vector.HOPPER)
    assert {usual("mxfp8", 1, kind) for kind in PIECES} == {Shape(4, 8, 1, 128)}
    assert {usual("mxfp8", rows, "bfloat16") for rows in range(2, 9)} == {Shape(4, 4, 2, 128)}
    assert [usual("mxfp8", rows, "float32") for rows in (2, 3)] == [Shape(4, 4, 2, 128), Shape(2, 4)]
    assert [usual("nvfp4", rows, "float32") for rows in (2, 3)] == [Shape(4, 8, 1, 128), Shape(2, 4)]
    assert usual("int8", 1, "float32") == Shape(4, 4, 1)
    for other in ((8, 0), (10, 0)):
        capability(other)
        assert {usual(name, 1, "float32") for name in ("nvfp4", "mxfp8")} == {Shape(4, 4, 2, 128)}


def usual(name: str, rows: int, kind: str) -> Shape:
    form = form_of(*codec_of(name))
    assert form is not None
    return vector.usual_shape(form, rows, kind)


def codec_of(name: str) -> tuple[Codec, int]:
    scheme = schemes.scheme(name)
    return decoding(plan_of(scheme).codec), scheme.block[-1]


def spills(name: str, kind: str, rows: int, shape: Shape, folder: Path) -> int:
    ptx = ptx_of(vector_kernel(*codec_of(name), kind, rows, shape).source, vector.HOPPER)
    assert ".local" not in ptx
    return spilled(ptx, "sm_90", folder)
