"""Out of memory on a GPU: the error with sizes, for functions that allocate outside of operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from autoq.devices import memory_error

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def within_memory(what: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Make a function raise DeviceMemoryError where CuPy finds no memory; operations do so themselves.

    Args:
        what: What is being computed, for the error.

    Example:
        >>> @within_memory("twice")
        ... def twice(x):
        ...     return x * 2
        >>> twice(2)
        4
    """

    def mark(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except MemoryError as error:
                found = memory_error(what, error)
                if found is error:
                    raise
                raise found from error

        return checked

    return mark
