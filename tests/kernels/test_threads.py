"""Threads: results that don't depend on them, errors that come through, a pool that outlives a fork."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from autoq.errors import ShapeError
from autoq.kernels.cpu import dequantize, pool, quantize, reduce

from .codecs import CODECS, block_of, results

DRAW = (5, 7)


@pytest.fixture
def use_threads(monkeypatch: pytest.MonkeyPatch):
    """A function that sets how many threads the kernels use."""

    def use(count: int) -> None:
        for module in (pool, quantize, dequantize, reduce):
            monkeypatch.setattr(module, "threads", lambda: count)

    return use


NAMES = ["mxfp8", "mxfp6 floor", "int8 stochastic"]


@pytest.mark.compiled
@pytest.mark.parametrize("shape", [(3, (1 << 18) + 32), (2048, 160), (700, 451)])
@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_threads(name: str, shape: tuple[int, int], use_threads) -> None:
    check_threads(name, np.random.default_rng(1).standard_normal(shape, dtype=np.float32), use_threads)


@pytest.mark.parametrize("shape", [(3, 64), (6, 32), (7, 45)])
@pytest.mark.parametrize("name", NAMES)
def test_small_pieces_give_the_same(name: str, shape: tuple[int, int], use_threads, monkeypatch) -> None:
    for module in (quantize, dequantize):
        monkeypatch.setattr(module, "PARALLEL_VALUES", 1)
    check_threads(name, np.random.default_rng(1).standard_normal(shape, dtype=np.float32), use_threads)


def check_threads(name: str, x: np.ndarray, use_threads) -> None:
    found = []
    for count in (1, 2, 5):
        use_threads(count)
        words, scales = results(name, x)
        quantize.quantize_lines(x, CODECS[name], block_of(name), words, scales, draw=DRAW)
        out = np.empty_like(x)
        dequantize.dequantize_lines(words, scales, None, CODECS[name], block_of(name), out)
        found.append(words.tobytes() + scales.tobytes() + out.tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.compiled
def test_reductions_do_not_depend_on_threads(use_threads) -> None:
    x = np.random.default_rng(1).standard_normal(1 << 19, dtype=np.float32)
    x[300_000], x[400_000], x[500_000] = np.nan, np.inf, -100
    for count in (1, 2, 5):
        use_threads(count)
        assert reduce.amax(x) == 100
        assert reduce.first_nonfinite(x) == 300_000
    assert reduce.first_nonfinite(x[:1000]) == -1
    assert reduce.amax(x[:0]) == 0


def test_small_pieces_that_do_not_fit_are_refused(use_threads, monkeypatch) -> None:
    use_threads(2)
    for module in (quantize, dequantize):
        monkeypatch.setattr(module, "PARALLEL_VALUES", 1)
    x = np.ones((4, 64), np.float32)
    words, scales = results("mxfp8", x)
    for short in ((words, scales[:, :1]), (words[:, :60], scales)):
        short = tuple(np.ascontiguousarray(a) for a in short)
        with pytest.raises(ShapeError, match="dequantize"):
            dequantize.dequantize_lines(*short, None, CODECS["mxfp8"], 32, np.empty_like(x))
        with pytest.raises(ShapeError, match="quantize"):
            quantize.quantize_lines(x, CODECS["mxfp8"], 32, *short)


def test_an_error_in_a_piece_reaches_the_caller() -> None:
    def fail(start: int, stop: int) -> None:
        raise ValueError(str(start))

    with pytest.raises(ValueError, match="0"):
        pool.run(fail, [(0, 1), (1, 2)])
    with pytest.raises(ValueError, match="1"):
        pool.run(lambda start, stop: start and fail(start, stop), [(0, 1), (1, 2)])


def test_ranges_cover_everything_once() -> None:
    for count in (0, 1, 7, 64):
        pieces = pool.ranges(count, 3, multiple=4)
        assert [i for start, stop in pieces for i in range(start, stop)] == list(range(count))
        assert len(pieces) <= 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_pool_survives_a_fork() -> None:
    script = """
import os, warnings
from autoq.kernels.cpu import pool
warnings.simplefilter("ignore", DeprecationWarning)
pieces = [(0, 1), (1, 2), (2, 3)]
assert pool.run(lambda a, b: b, pieces) == [1, 2, 3]
child = os.fork()
if child == 0:
    os._exit(0 if pool.run(lambda a, b: b, pieces) == [1, 2, 3] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert pool.run(lambda a, b: b, pieces) == [1, 2, 3]
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        timeout=60,
        capture_output=True,
        text=True,
        env=os.environ | {"AUTOQ_NUM_THREADS": "3"},
    )
    assert done.returncode == 0, done.stderr
