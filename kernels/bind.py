"""Compile scalar functions and kernels for a target, and keep what was compiled on disk.

Scalar functions are plain Python. ``@scalar`` notes them, so that compiled kernels may call them; nothing
imports Numba before the first kernel is compiled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

FOLDER = "autoq-kernels-"
# A divisor of 0 gives infinity, as in NumPy; indices are the kernels' own.
OPTIONS = {"error_model": "numpy", "boundscheck": False}
# Caches of other versions that no process has touched for this long are removed.
KEPT_SECONDS = 14 * 24 * 3600

Bitcast = tuple[Callable[..., Any], str, str]
_scalars: list[Callable[..., Any]] = []
_bitcasts: list[Bitcast] = []
# How many of both a target's compiler knows.
_known: dict[str, tuple[int, int]] = {}


def scalar(function: Function) -> Function:
    """Mark a function as callable from compiled kernels; it stays a plain Python function."""
    _scalars.append(function)
    return function


def bitcast(result: str, argument: str) -> Callable[[Function], Function]:
    """Mark a function that reads the bits of its argument as another type of the same width."""

    def mark(function: Function) -> Function:
        _bitcasts.append((function, result, argument))
        return function

    return mark


def compile_cpu(kernel: Callable[..., Any], signature: str | Any) -> Callable[..., Any]:
    """The kernel compiled for this CPU, from the cache on disk where it is there.

    Args:
        kernel: A function of arrays and numbers in the dialect of README.md.
        signature: Its one Numba signature. Inputs of another type are refused, never compiled again.
    """
    import numba

    _register()
    _name_apart(kernel)
    folder = cache_folder()
    with _numba_cache(folder):
        compiled: Callable[..., Any] = numba.njit(
            [signature], nogil=True, cache=folder is not None, no_cfunc_wrapper=True, **OPTIONS
        )(kernel)
    return compiled


def marked(target: str) -> tuple[list[Callable[..., Any]], list[Bitcast]]:
    """The scalar functions and bitcasts that were marked since ``target`` last asked."""
    functions, casts = _known.get(target, (0, 0))
    _known[target] = len(_scalars), len(_bitcasts)
    return _scalars[functions:], _bitcasts[casts:]


def _register() -> None:
    """Make what was marked since the last time known to Numba."""
    from numba import types
    from numba.extending import lower_builtin, register_jitable, type_callable

    functions, casts = marked("cpu")
    for function in functions:
        register_jitable(no_cfunc_wrapper=True, **OPTIONS)(function)
    for function, result, argument in casts:
        of, to = getattr(types, argument), getattr(types, result)
        type_callable(function)(lambda context, to=to: lambda x: to)
        lower_builtin(function, types.Number)(lower_bitcast(of))


def lower_bitcast(of: Any) -> Callable[..., Any]:
    """Lowering of a bitcast of what is converted to type ``of`` first."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = context.cast(builder, args[0], sig.args[0], of)
        return builder.bitcast(value, context.get_value_type(sig.return_type))

    return lower


def _name_apart(kernel: Callable[..., Any]) -> None:
    """Name a kernel, and every function of a factory that it calls, by what they close over.

    Symbols of compiled code are made of qualified names and a counter of the process. Kernels of one
    factory that different processes compiled would share a symbol, and whoever loads both from disk would
    run the first.
    """
    from numba.core import serialize

    digest = hashlib.blake2b(digest_size=8)
    for cell in kernel.__closure__ or ():
        digest.update(serialize.dumps(cell.cell_contents))
    waiting, named = [kernel], set()
    while waiting:
        function = waiting.pop()
        if id(function) in named or "<locals>" not in function.__qualname__:
            continue
        named.add(id(function))
        waiting += [
            cell.cell_contents
            for cell in function.__closure__ or ()
            if hasattr(cell.cell_contents, "__closure__")
        ]
        function.__qualname__ += f"_{digest.hexdigest()}"


@contextlib.contextmanager
def _numba_cache(folder: Path | None) -> Iterator[None]:
    """Let Numba choose ``folder`` for what is decorated meanwhile, leaving its setting as it was."""
    from numba import config

    before = config.CACHE_DIR
    if folder is not None:
        config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


@cache
def cache_folder() -> Path | None:
    """The folder of compiled kernels of exactly these sources and versions; None where none is writable.

    Numba notices an edit of a kernel's own file only, so the folder is named by all of them.
    """
    base = chosen_cache()
    if base is None:
        return None
    folder = base / (FOLDER + fingerprint())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:
        return None
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    prune(base, folder)
    return folder


def chosen_cache() -> Path | None:
    """``NUMBA_CACHE_DIR``, or where this user's programs keep what can be made again; None without a home."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "autoq"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autoq"
    except RuntimeError:  # no HOME, and a user that the system doesn't know, as in some containers
        return None


def fingerprint(root: Path = Path(__file__).parent, target: str = "cpu", versions: str | None = None) -> str:
    """A hash of every source file below ``root`` that ``target`` compiles, and of the compilers' versions."""
    if versions is None:
        import numba
        import numpy

        versions = f"{numba.__version__} {numpy.__version__}"
    digest = hashlib.blake2b(versions.encode(), digest_size=8)
    others = {"cpu", "cuda"} - {target}
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in others:
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def prune(base: Path, keep: Path, older_than: float = KEPT_SECONDS, prefix: str = FOLDER) -> None:
    """Remove caches beside ``keep`` that were not used for ``older_than`` seconds."""
    limit = time.time() - older_than
    for folder in base.glob(prefix + "*"):
        # Another process may remove the same folder at the same time.
        with contextlib.suppress(OSError):
            if folder != keep and folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)
