"""How kernels are compiled and kept: cache, signatures, vector instructions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoq.errors import ArgumentError, ShapeError
from autoq.kernels import bind
from autoq.kernels.cpu import dequantize, quantize
from autoq.kernels.cuda.compile import ptx_folder

from .codecs import CODECS, block_of, results

USE = """
from numba.core import event
class Count(event.Listener):
    compiled = 0
    def on_start(self, event): self.compiled += 1
    def on_end(self, event): pass
count = Count()
event.register("numba:compile", count)
from autoq.kernels.cpu import dequantize, quantize_kernels
from autoq.schemes import scheme
from autoq.storage.plan import codec_of
kernels = [make(codec_of(scheme(name))) for name in {names}
           for make in (quantize_kernels.lines_kernel, dequantize.lines_kernel)]
"""


def in_new_process(script: str, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        timeout=300,
        capture_output=True,
        text=True,
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.compiled
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    script = USE.format(names="['mxfp8', 'int8']") + "print(count.compiled)"
    assert int(in_new_process(script, tmp_path)) > 0
    assert int(in_new_process(script, tmp_path)) == 0


ENCODE = """
import numpy as np
from autoq.schemes import scheme
from autoq.storage.convert import quantize
x = np.linspace(-3, 3, 64, dtype=np.float32)
print([quantize(x, scheme(name)).words.tobytes().hex() for name in {names}])
"""


@pytest.mark.slow
def test_kernels_that_different_processes_compiled_stay_apart(tmp_path: Path) -> None:
    first, second = "mxfp8_e4m3", "mxfp8_e5m2"
    alone = [in_new_process(ENCODE.format(names=[name]), tmp_path).strip(" []\n") for name in (first, second)]
    both = in_new_process(ENCODE.format(names=[first, second]), tmp_path).strip(" []\n").split(", ")
    assert both == alone
    assert both[0] != both[1]


def test_without_a_home_kernels_are_compiled_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*user: Any) -> Any:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(bind.Path, "home", unknown)
    assert bind.chosen_cache() is None
    assert bind.cache_folder.__wrapped__() is None
    assert ptx_folder.__wrapped__() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    if sys.platform != "darwin":
        assert bind.chosen_cache() == Path("/caches/autoq")


def test_an_edit_of_any_source_names_another_cache(tmp_path: Path) -> None:
    for name in ("bind.py", "scalar.py"):
        (tmp_path / name).write_text("x = 1\n")
    before = bind.fingerprint(tmp_path)
    assert bind.fingerprint(tmp_path) == before
    (tmp_path / "scalar.py").write_text("x = 2\n")
    assert bind.fingerprint(tmp_path) != before


def test_only_old_caches_of_other_versions_are_removed(tmp_path: Path) -> None:
    ours, old, young, foreign = (
        tmp_path / name
        for name in (bind.FOLDER + "0", bind.FOLDER + "1", bind.FOLDER + "2", "something else")
    )
    for folder in (ours, old, young, foreign):
        folder.mkdir()
    long_ago = time.time() - 2 * bind.KEPT_SECONDS
    for folder in (ours, old, foreign):
        os.utime(folder, (long_ago, long_ago))
    bind.prune(tmp_path, ours)
    assert sorted(tmp_path.iterdir()) == sorted([ours, young, foreign])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4", "int8"])
def test_kernels_use_vectors_and_no_gathers(name: str, tmp_path: Path) -> None:
    from llvmlite.binding import get_host_cpu_features

    if not get_host_cpu_features().get("avx2"):
        pytest.skip("this CPU has no AVX2")
    script = USE.format(names=repr([name])) + "for k in kernels: print(*k.inspect_asm().values(), '=====')"
    for assembly in in_new_process(script, tmp_path).split("=====")[:2]:
        assert len(re.findall(r"%[yz]mm", assembly)) > 50
        assert "gather" not in assembly


@pytest.mark.compiled
def test_read_only_and_unaligned_input_needs_no_other_kernel() -> None:
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    aligned = results("mxfp8", x)
    quantize.quantize_lines(x, CODECS["mxfp8"], 32, *aligned)
    shifted = np.zeros(64 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(2, 32)
    shifted[...] = x
    shifted.flags.writeable = False
    found = results("mxfp8", x)
    quantize.quantize_lines(shifted, CODECS["mxfp8"], 32, *found)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in aligned]
    assert len(quantize._lines[CODECS["mxfp8"]].signatures) == 1


@pytest.mark.compiled
def test_strided_input_is_refused_rather_than_compiled_for() -> None:
    x = np.zeros((64, 2), np.float32).T
    with pytest.raises(TypeError):
        quantize.quantize_lines(x, CODECS["mxfp8"], 32, *results("mxfp8", x))


def test_results_that_do_not_fit_are_refused() -> None:
    x = np.zeros((2, 64), np.float32)
    words, scales = results("mxfp8", x)
    for short in ((words[:1], scales), (words[:, :60].copy(), scales), (words, scales[:, :1].copy())):
        with pytest.raises(ShapeError, match="quantize"):
            quantize.quantize_lines(x, CODECS["mxfp8"], 32, *short)


def test_arrays_that_do_not_fit_are_refused_in_decoding() -> None:
    words, scales = results("mxfp8", np.zeros((2, 64), np.float32))
    for out in (np.empty((3, 64), np.float32), np.empty((2, 96), np.float32)):
        with pytest.raises(ShapeError, match="dequantize"):
            dequantize.dequantize_lines(words, scales, None, CODECS["mxfp8"], 32, out)
    with pytest.raises(ShapeError, match="decode"):
        dequantize.decode_codes(np.zeros(3, np.uint8), CODECS["mxfp8"], np.empty(4, np.float32))


def test_stochastic_rounding_asks_for_a_draw() -> None:
    x = np.zeros((2, 64), np.float32)
    with pytest.raises(ArgumentError, match="random"):
        quantize.quantize_lines(
            x, CODECS["int8 stochastic"], block_of("int8 stochastic"), *results("int8 stochastic", x)
        )
