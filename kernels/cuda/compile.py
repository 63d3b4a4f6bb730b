"""A kernel's Python function to PTX, and the cache of PTX on disk.

Numba compiles, which needs no device. Products and sums are never contracted to one rounding: NVVM gets
``-fma=0`` and writes ``mul.rn`` and ``add.rn``, which the assembler leaves alone. So a device's codes are
the CPU's.

A file of the cache is named by what the PTX depends on: the sources below ``kernels``, the compilers'
versions, the kernel's factory, its parameters and the device's architecture. Its first line is a hash of
the rest: what is damaged is compiled again, never loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import inspect
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .. import bind

FOLDER = "autoq-ptx-"
ENTRY = "autoq_kernel"
MARK = "// autoq "
OPTIMIZATION = 3
Capability = tuple[int, int]

# The globals of modules whose kernels use ``cuda``, which is imported when something is compiled.
_namespaces: list[dict[str, Any]] = []
# Functions that stand for instructions: the function, its typing and its lowering, given numba.cuda.
_instructions: list[tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = []
_registered = 0
# Compilations of this process: tests count them.
compiled: list[str] = []


class Source(NamedTuple):
    """What a kernel is compiled from.

    Attributes:
        name: The factory's, for messages and file names.
        function: The kernel in Python.
        signature: Types of its parameters: ``"float32*"``, ``"int64"``.
        identity: What the compiled code depends on besides the sources: the factory and its parameters.
        threads: Most threads a block, by which the assembler limits registers; 0 leaves it to choose.
    """

    name: str
    function: Callable[..., Any]
    signature: tuple[str, ...]
    identity: str
    threads: int = 0


def uses_cuda(namespace: dict[str, Any]) -> None:
    """Note a module's globals, whose ``cuda`` becomes ``numba.cuda`` once that is imported."""
    _namespaces.append(namespace)


def instruction(typing: Callable[..., Any], lowering: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a plain function, the twin for the simulator, as one that kernels are compiled with.

    Args:
        typing: ``typing(types, *argument_types) -> result type``.
        lowering: ``lowering(context, builder, signature, arguments) -> value``.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        _instructions.append((function, typing, lowering))
        return function

    return mark


def numba_cuda(seen: Any = None) -> Any:
    """``numba.cuda``, put into the modules that use it; ``seen`` is put there instead if given."""
    from numba import cuda

    for namespace in _namespaces:
        namespace["cuda"] = cuda if seen is None else seen
    return cuda


def ptx_of(source: Source, capability: Capability) -> str:
    """The kernel's PTX for devices of that compute capability, from the cache where it is there.

    Example:
        >>> def double(x):
        ...     x[0] = x[0] * x[0]
        >>> ptx = ptx_of(Source("double", double, ("float32*",), "doctest"), (9, 0))
        >>> "mul.rn.f32" in ptx, ".target sm_90" in ptx
        (True, True)
    """
    folder = ptx_folder()
    path = None if folder is None else folder / _file_name(source, capability)
    ptx = None if path is None else _read(path)
    if ptx is None:
        ptx = compile_ptx(source, capability)
        if path is not None:
            _write(path, ptx)
    return ptx


def compile_ptx(source: Source, capability: Capability) -> str:
    """Compile a kernel, whatever the cache holds.

    Numba leaves cycles that hold its frames, and with them those of its callers. In a thread of its own it
    has none, so that arrays which a caller drops are freed at once.
    """
    found: Future[str] = Future()

    def run() -> None:
        try:
            found.set_result(_compiled(source, capability))
        except BaseException as error:
            found.set_exception(error)

    thread = threading.Thread(target=run, name="autoq-compile")
    thread.start()
    thread.join()
    return found.result()


def _compiled(source: Source, capability: Capability) -> str:
    numba_cuda()
    from numba.cuda import types
    from numba.cuda.compiler import compile_cuda, kernel_fixup

    _register()
    options = {"fastmath": False, "opt": OPTIMIZATION, "fma": False}
    with _compiling_for(capability):
        result = compile_cuda(
            source.function,
            types.void,
            tuple(_numba_type(types, name) for name in source.signature),
            nvvm_options=options,
            cc=capability,
        )
        library, name = result.library, result.fndesc.llvm_func_name
        library._entry_name = name
        kernel_fixup(library.get_function(name), False)
        (ptx,) = library.get_asm_strs(cc=capability)
    compiled.append(source.name)
    return _bounded(_tidied(ptx, name), source.threads)


def _tidied(ptx: str, name: str) -> str:
    """PTX whose kernel is called ``ENTRY`` and that holds no names of Numba's environments."""
    lines = [line for line in ptx.replace(name, ENTRY).splitlines() if "NumbaEnv" not in line]
    return "\n".join(lines) + "\n"


def _bounded(ptx: str, threads: int) -> str:
    """PTX whose kernel says how many threads a block it is launched with at most."""
    bound = f".maxntid {threads}, 1, 1\n{{"
    return re.sub(r"^\{", bound, ptx, count=1, flags=re.MULTILINE) if threads else ptx


def _numba_type(types: Any, name: str) -> Any:
    if name.endswith("*"):
        return types.CPointer(getattr(types, name[:-1]))
    return getattr(types, name)


@contextlib.contextmanager
def _compiling_for(capability: Capability) -> Iterator[None]:
    """Let functions called by a kernel be compiled where there is no device to ask for its architecture."""
    from types import SimpleNamespace

    from numba.cuda import dispatcher

    before = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = before


def _register() -> None:
    """Make what was marked since the last time known to Numba's CUDA target."""
    global _registered
    from numba.cuda import extending, types

    functions, casts = bind.marked("cuda")
    for function in functions:
        extending.register_jitable(function)
    for function, result, argument in casts:
        of, to = getattr(types, argument), getattr(types, result)
        extending.type_callable(function)(lambda context, to=to: lambda x: to)
        extending.lower_builtin(function, types.Number)(bind.lower_bitcast(of))
    for function, typing, lowering in _instructions[_registered:]:
        _register_instruction(extending, types, function, typing, lowering)
    _registered = len(_instructions)


def _register_instruction(extending: Any, types: Any, function: Any, typing: Any, lowering: Any) -> None:
    def typer(*arguments: Any) -> Any:
        return typing(types, *arguments)

    typer.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    extending.type_callable(function)(lambda context: typer)
    count = len(inspect.signature(function).parameters)
    extending.lower_builtin(function, *[types.Any] * count)(lowering)


@cache
def ptx_folder() -> Path | None:
    """The folder of PTX of exactly these sources and versions; None where there is none and none can be made.

    One that can't be written to, as of an image that is shared, is read all the same.
    """
    base = bind.chosen_cache()
    if base is None:
        return None
    folder = base / (FOLDER + bind.fingerprint(target="cuda", versions=_versions()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:
        return folder if folder.is_dir() else None
    bind.prune(base, folder, prefix=FOLDER)
    return folder


def _versions() -> str:
    """Versions of the packages that make the PTX."""
    found = []
    for package in ("numba-cuda", "numba", "numpy", "nvidia-nvvm", "nvidia-cuda-nvcc-cu12"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(found)


def _file_name(source: Source, capability: Capability) -> str:
    identity = f"{source.name} {source.identity} {source.signature}"
    digest = hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
    return f"{source.name}-{digest}-sm_{capability[0]}{capability[1]}.ptx"


def _read(path: Path) -> str | None:
    """The PTX of a file, None where it is missing or damaged."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    first, _, ptx = text.partition("\n")
    return ptx if first == MARK + _digest(ptx) else None


def _write(path: Path, ptx: str) -> None:
    """Put PTX in the cache, whole or not at all; on a full disk the next process compiles again."""
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(f"{MARK}{_digest(ptx)}\n{ptx}")
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise


def _digest(ptx: str) -> str:
    return hashlib.blake2b(ptx.encode(), digest_size=16).hexdigest()


# PTX versions by the CUDA version of the driver that reads them: since 12.0 they go together.
_DRIVERS = {12_00: "8.0", 12_01: "8.1", 12_02: "8.2", 12_03: "8.3", 12_04: "8.4", 12_05: "8.5",
            12_06: "8.5", 12_07: "8.6", 12_08: "8.7", 12_09: "8.8", 13_00: "9.0", 13_01: "9.1"}  # fmt: skip


def for_driver(ptx: str, driver: int) -> str:
    """PTX that says no newer version than the driver reads; the kernels use nothing that came after 8.0.

    Args:
        ptx: With a ``.version`` line.
        driver: CUDA version of the driver, ``1000 * major + 10 * minor`` as the runtime gives it.

    Example:
        >>> for_driver(".version 9.5", 13000)
        '.version 9.0'
        >>> for_driver(".version 8.0", 13000)
        '.version 8.0'
    """
    known = driver // 1000 * 100 + driver % 1000 // 10
    most = max((version for cuda, version in _DRIVERS.items() if cuda <= known), default="7.8", key=_numbers)
    found = re.search(r"^\.version (\d+\.\d+)", ptx, re.MULTILINE)
    if found is None or known > max(_DRIVERS) or _numbers(found[1]) <= _numbers(most):
        return ptx
    return ptx.replace(found[0], f".version {most}", 1)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
