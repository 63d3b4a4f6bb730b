"""The thread pool that large arrays are spread over.

Numba's own threads spin while a neighbour is busy, or abort when two Python threads call at once; a pool
over kernels that release the GIL does neither and costs about 15 microseconds.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

# Below this many values one thread is as fast.
PARALLEL_VALUES = 1 << 18

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_worker = threading.local()


@cache
def threads() -> int:
    """How many threads work on a large array.

    ``AUTOQ_NUM_THREADS``, else ``OMP_NUM_THREADS`` (which caps BLAS too), else the CPUs of this process.
    """
    for name in ("AUTOQ_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "").split(",")[0]
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ranges(count: int, parts: int, multiple: int = 1) -> list[tuple[int, int]]:
    """At most ``parts`` non-empty ranges that cover ``range(count)``, cut at multiples of ``multiple``.

    Example:
        >>> ranges(10, 2, multiple=4)
        [(0, 8), (8, 10)]
    """
    size = max(-(-count // parts), 1)
    size = -(-size // multiple) * multiple
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def run(function: Callable[[int, int], object], pieces: list[tuple[int, int]]) -> list[Any]:
    """``function(start, stop)`` for every piece, one of them on this thread; their results in order.

    The caller's context variables are seen in every piece. Inside a piece nothing is spread again.
    """
    if len(pieces) < 2 or getattr(_worker, "busy", False):
        return [function(*piece) for piece in pieces]
    pool = _executor()
    waiting = [pool.submit(contextvars.copy_context().run, _busy, function, piece) for piece in pieces[1:]]
    try:
        first = function(*pieces[0])
    finally:
        # The pieces write to the caller's arrays: none may still run when an error leaves here.
        rest = [future.exception() for future in waiting]
    for error in rest:
        if error is not None:
            raise error
    return [first] + [future.result() for future in waiting]


def _busy(function: Callable[[int, int], object], piece: tuple[int, int]) -> object:
    _worker.busy = True
    return function(*piece)


def _executor() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(threads() - 1, 1), thread_name_prefix="autoq")
        return _pool


def _forget() -> None:
    """After a fork the child has the pool's record but none of its threads."""
    global _pool, _lock
    _lock = threading.Lock()
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
