"""PTX on disk: compiled once, rebuilt where it is damaged, safe among processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoq.kernels.cuda import compile as compiling

# One folder whatever is edited meanwhile; that sources name it is tested in tests/kernels.
SCRIPT = """
from autoq.kernels import bind
bind.fingerprint = lambda *arguments, **named: "of these sources"
from autoq.kernels.cuda import compile as compiling
from autoq.kernels.cuda.launch import kernel

@kernel
def twice_kernel(dtype):
    def twice(x, n):
        for i in range(n):
            x[i] = x[i] + x[i]
    return twice, (f"{dtype}*", "int64")

ptx = compiling.ptx_of(twice_kernel("float32").source, (9, 0))
print(compiling._digest(ptx), len(compiling.compiled))
"""


def start(cache: Path, script: str = SCRIPT) -> subprocess.Popen[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> tuple[str, int]:
    """The hash of the PTX that a process had, and how many kernels it compiled."""
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    digest, compiled = output.split()
    return digest, int(compiled)


def files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = finish(start(tmp_path)), finish(start(tmp_path))
    assert first[1] == 1
    assert second == (first[0], 0)


@pytest.mark.parametrize("damage", ["cut", "changed", "binary", "empty"])
def test_a_damaged_file_is_rebuilt(tmp_path: Path, damage: str) -> None:
    source = compiling.Source("name", lambda x: None, ("float32*",), damage)
    path = tmp_path / compiling._file_name(source, (9, 0))
    compiling._write(path, ".version 8.0\n.target sm_90\n")
    whole = path.read_bytes()
    assert compiling._read(path) == ".version 8.0\n.target sm_90\n"
    damaged = {
        "cut": whole[:-3],
        "changed": whole.replace(b"sm_90", b"sm_80"),
        "binary": b"\xff\xfe" + whole,
        "empty": b"",
    }
    path.write_bytes(damaged[damage])
    assert compiling._read(path) is None


def test_a_process_that_finds_a_damaged_file_replaces_it(tmp_path: Path) -> None:
    first = finish(start(tmp_path))
    (path,) = files(tmp_path)
    whole = path.read_text()
    path.write_text(whole.replace("sm_90", "sm_80"))
    assert finish(start(tmp_path)) == first
    assert path.read_text() == whole
    assert finish(start(tmp_path)) == (first[0], 0)


def test_processes_that_compile_at_once_agree(tmp_path: Path) -> None:
    running = [start(tmp_path) for _ in range(3)]
    results = [finish(process) for process in running]
    assert len({digest for digest, _ in results}) == 1
    assert len(files(tmp_path)) == 1
    assert finish(start(tmp_path)) == (results[0][0], 0)


def test_without_a_folder_kernels_are_compiled_in_every_process(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    first, second = finish(start(blocked)), finish(start(blocked))
    assert first == second
    assert first[1] == 1


READ_ONLY = """
import os, tempfile
def refused(*arguments, **named):
    raise PermissionError("read-only")
os.utime = tempfile.mkstemp = refused
"""


def test_a_folder_that_can_not_be_written_to_is_read(tmp_path: Path) -> None:
    (tmp_path / "autoq-ptx-of these sources").mkdir()
    alone = finish(start(tmp_path, READ_ONLY + SCRIPT))
    assert alone[1] == 1
    assert files(tmp_path) == []
    first = finish(start(tmp_path))
    assert finish(start(tmp_path, READ_ONLY + SCRIPT)) == (first[0], 0)
    (path,) = files(tmp_path)
    path.write_text("damaged")
    assert finish(start(tmp_path, READ_ONLY + SCRIPT)) == first


def test_parameters_and_architectures_have_files_of_their_own() -> None:
    function = lambda x: None  # noqa: E731
    sources = [compiling.Source("name", function, ("float32*",), identity) for identity in ("one", "two")]
    sources.append(compiling.Source("name", function, ("uint32*",), "one"))
    names = {compiling._file_name(source, cc) for source in sources for cc in [(8, 0), (9, 0)]}
    assert len(names) == 6


def test_compiling_keeps_nothing_of_its_callers_alive() -> None:
    def call() -> Any:
        held = np.zeros(1)

        def double(x: Any) -> None:
            x[0] = x[0] * x[0]

        ptx = compiling.compile_ptx(compiling.Source("double", double, ("float32*",), "test"), (9, 0))
        assert ".entry" in ptx
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()
