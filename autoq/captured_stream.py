"""A stream whose launches become a graph: what must not happen meanwhile, and what CUDA refuses there."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from autoq import devices
from autoq.errors import CaptureError

_lock = Lock()
# Whether garbage was collected before the first of the captures that are going on, one entry a capture.
_collected: list[bool] = []


@contextmanager
def launches(stream: Any) -> Iterator[list[Any]]:
    """A block whose launches become a graph, which the list holds afterwards.

    Raises:
        CaptureError: CUDA refuses something in the block.
    """
    made: list[Any] = []
    stream.begin_capture()
    try:
        with _no_synchronization():
            yield made
    except BaseException as error:
        _abandon(stream)
        if _is_cuda_error(error):
            raise _refused(error) from error
        raise
    try:
        made.append(stream.end_capture())
    except Exception as error:
        raise _refused(error) from error


@contextmanager
def no_collection() -> Iterator[None]:
    """A block without garbage collection, which could free device objects while a stream is captured.

    Of several in threads, the last one to end lets it go on.
    """
    gc.collect()
    with _lock:
        _collected.append(_collected[0] if _collected else gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            if _collected.pop() and not _collected:
                gc.enable()


@contextmanager
def _no_synchronization() -> Iterator[None]:
    """A block in which CuPy raises where it would wait for the device, for the CuPy versions that can."""
    import cupyx

    allow = getattr(cupyx, "allow_synchronize", None)
    if allow is None:
        yield
        return
    allowed = allow(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, without anything in its place
        allowed.__enter__()
    try:
        yield
    finally:
        allowed.__exit__(None, None, None)


def _abandon(stream: Any) -> None:
    """End a capture that failed; its graph, if CUDA still makes one, isn't wanted."""
    try:
        stream.end_capture()
    except Exception as error:
        if not _is_cuda_error(error):
            raise


def _is_cuda_error(error: Any) -> bool:
    """Whether CUDA, a library of it or CuPy refused something, for another reason than memory."""
    kind = f"{type(error).__module__}.{type(error).__name__}".lower()
    refused = any(part in kind for part in ("cuda", "nvmath", "synchronized"))
    return refused and not devices.out_of_memory(error)


def _refused(error: BaseException) -> CaptureError:
    return CaptureError(
        f"the step does what a CUDA graph can't hold ({error}).",
        "launches of kernels and copies on the device: no values read back, no waiting for the device",
        "Take .item(), .numpy(), print and tests of values out of the step; return the tensor instead.",
    )
