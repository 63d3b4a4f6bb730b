"""The simulator by turns: barriers hold, missing ones show, errors name their thread."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

THREADS = 8


def launch(function, *arguments, blocks=1):
    cuda.jit(function)[blocks, THREADS](*arguments)


def test_every_thread_of_every_block_runs_once():
    def count(x):
        x[cuda.grid(1)] += 1 + cuda.blockIdx.x

    x = np.zeros(2 * THREADS, np.int64)
    launch(count, x, blocks=2)
    assert x.tolist() == [1] * THREADS + [2] * THREADS


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_what_others_wrote_is_there_after_a_barrier_alone(step, earlier):
    def around(x, y, synchronized):
        held = cuda.shared.array(THREADS, np.int64)
        thread = cuda.threadIdx.x
        held[thread] = -1
        for _ in range(earlier):
            cuda.syncthreads()
        held[thread] = x[thread]
        if synchronized:
            cuda.syncthreads()
        y[thread] = held[(thread + step) % THREADS]

    x, y = np.arange(THREADS), np.empty(THREADS, np.int64)
    launch(around, x, y, True)
    assert np.array_equal(y, np.roll(x, -step))
    launch(around, x, y, False)
    assert 1 < np.count_nonzero(y != np.roll(x, -step)) < THREADS


def test_threads_that_end_leave_the_others_their_barriers():
    def half(x):
        if cuda.threadIdx.x < THREADS // 2:
            return
        cuda.syncthreads()
        x[cuda.threadIdx.x] = 1

    x = np.zeros(THREADS, np.int64)
    launch(half, x)
    assert x.sum() == THREADS // 2


def test_an_error_ends_the_block_and_names_its_thread():
    def fails(x):
        if cuda.threadIdx.x == 3:
            x[THREADS] = 1
        cuda.syncthreads()
        x[cuda.threadIdx.x] = 1

    x = np.zeros(THREADS, np.int64)
    with pytest.raises(IndexError) as found:
        launch(fails, x)
    assert found.value.__notes__ == ["in thread (3, 0, 0) of block (0, 0, 0)"]
    assert not x.any()
    test_threads_that_end_leave_the_others_their_barriers()
