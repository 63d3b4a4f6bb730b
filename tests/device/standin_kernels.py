"""The stand-in's kernels: those of ``autoq.kernels.cuda`` that storage calls, computed by the CPU's.

Their bits are the same by contract, so what storage makes of them can be compared with the CPU's tensors.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from autoq.storage.blocks import from_blocks, to_blocks
from autoq.storage.layout import word_unit
from autoq.storage.packing import pack as pack_codes
from autoq.storage.packing import unpack as unpack_codes
from autoq.storage.plan import kernels

from .standin_array import ndarray
from .standin_device import read
from .standin_dropout import dropout
from .standin_update import MODULES as UPDATES

LAUNCHES: list[str] = []


def quantize(
    x: Any,
    codec: Any,
    extents: tuple[int, ...],
    words: Any,
    scales: Any,
    tensor_scale: Any = None,
    given: Any = None,
    given_amax: Any = None,
    draw: Any = None,
) -> None:
    """As ``autoq.kernels.cuda.quantize.quantize``."""
    LAUNCHES.append("quantize")
    if not x.size:
        return
    _check_types(x, words, scales)
    values = np.ascontiguousarray(x._array, np.float32)
    options: dict[str, Any] = {"draw": draw, "given": None if given is None else given._array}
    if codec.two_level:
        amax = _amax(values) if given_amax is None else np.float32(_host(given_amax))
        options["tensor_amax"] = float(amax)
        tensor_scale._array[...] = _tensor_scale(codec, amax)
    if not extents:
        _whole(values, codec, words._array, scales._array, options)
    elif len(extents) == 1:
        _lines(values, codec, extents[0], words._array, scales._array, options)
    else:
        _blocks(values, codec, extents, words._array, scales._array, options)


def _lines(x: Any, codec: Any, block: int, words: Any, scales: Any, options: dict[str, Any]) -> None:
    n = x.shape[-1]
    lines, given = x.size // n, options.pop("given")
    kernels().quantize_lines(
        x.reshape(lines, n),
        codec,
        block,
        words.view(np.uint8).reshape(lines, -1),
        scales.reshape(lines, -1),
        given=None if given is None else given.reshape(lines, -1),
        **options,
    )


def _whole(x: Any, codec: Any, words: Any, scales: Any, options: dict[str, Any]) -> None:
    """One block: encoded as one line, and packed again by the tensor's lines."""
    bits, given = codec.element.bits, options.pop("given")
    line = np.empty((1, -(-x.size * bits // 32)), np.uint32)
    kernels().quantize_lines(
        x.reshape(1, -1),
        codec,
        x.size,
        line.view(np.uint8),
        scales.reshape(1, 1),
        given=None if given is None else given.reshape(1, 1),
        **options,
    )
    if x.ndim and x.shape[-1] % word_unit(bits) == 0:
        words.reshape(1, -1)[...] = line
    else:
        pack_codes(unpack_codes(line[0], bits, (x.size,)).reshape(x.shape), bits, words)


def _blocks(
    x: Any, codec: Any, block: tuple[int, ...], words: Any, scales: Any, options: dict[str, Any]
) -> None:
    given, lead = options.pop("given"), x.ndim - len(block)
    extents = (1,) * min(lead, 1) + block
    stacked = x.reshape((-1,) * min(lead, 1) + x.shape[lead:])
    values, counts = to_blocks(stacked, extents)
    index = None
    if options["draw"] is not None:
        index = to_blocks(np.arange(x.size).reshape(stacked.shape), extents).values
    codes = np.empty(values.shape, np.uint8)
    kernels().quantize_blocks(
        values,
        counts,
        codec,
        codes,
        scales.reshape(-1),
        index=index,
        given=None if given is None else given.reshape(-1),
        **options,
    )
    pack_codes(from_blocks(codes, stacked.shape, extents).reshape(x.shape), codec.element.bits, words)


def dequantize(
    words: Any, scales: Any, tensor_scale: Any, codec: Any, extents: tuple[int, ...], out: Any
) -> None:
    """As ``autoq.kernels.cuda.dequantize.dequantize``."""
    LAUNCHES.append("dequantize")
    if not out.size:
        return
    shape = out.shape
    n = shape[-1] if shape else 1
    lines = math.prod(shape) // n
    level = None if tensor_scale is None else np.float32(tensor_scale._array)
    stored, block = scales._array, extents[-1] if extents else n
    if not extents:
        stored = np.broadcast_to(stored.reshape(1, 1), (lines, 1))
    for axis in range(stored.ndim - 1):
        if extents and stored.shape[axis] != shape[axis]:
            stored = np.repeat(stored, extents[axis - stored.ndim], axis)
            stored = stored[(slice(None),) * axis + (slice(shape[axis]),)]
    values = np.empty((lines, n), np.float32)
    kernels().dequantize_lines(
        np.ascontiguousarray(words._array).view(np.uint8).reshape(lines, -1),
        np.ascontiguousarray(stored).reshape(lines, -1),
        level,
        codec,
        block,
        values,
    )
    with np.errstate(over="ignore"):
        out._array[...] = values.reshape(shape)


def pack(codes: Any, bits: int, words: Any) -> None:
    """As ``autoq.kernels.cuda.pack.pack``."""
    LAUNCHES.append("pack")
    if codes.size:
        words._array[...] = pack_codes(np.ascontiguousarray(codes._array), bits)


def unpack(words: Any, bits: int, codes: Any) -> None:
    """As ``autoq.kernels.cuda.pack.unpack``."""
    LAUNCHES.append("unpack")
    if codes.size:
        codes._array[...] = unpack_codes(words._array, bits, codes.shape)


def amax(x: Any) -> ndarray:
    """As ``autoq.kernels.cuda.measure.amax``."""
    LAUNCHES.append("amax")
    return ndarray(np.asarray(_amax(np.ascontiguousarray(x._array, np.float32)), np.float32))


def first_nonfinite(x: Any) -> int:
    """As ``autoq.kernels.cuda.measure.first_nonfinite``, which waits for the device."""
    LAUNCHES.append("first_nonfinite")
    read("first_nonfinite")
    found = np.flatnonzero(~np.isfinite(x._array.reshape(-1).astype(np.float32)))
    return int(found[0]) if found.size else -1


def add_at(out: Any, places: Any, values: Any) -> None:
    """As ``autoq.kernels.cuda.scatter.add_at``."""
    LAUNCHES.append("add_at")
    assert out.dtype == values.dtype == np.float32
    np.add.at(out._array, places._array.reshape(-1), values._array.reshape(-1))


def cast(x: Any, out: Any) -> None:
    """As ``autoq.kernels.cuda.casts.cast``."""
    LAUNCHES.append("cast")
    assert out.flags.c_contiguous
    with np.errstate(over="ignore"):
        out._array[...] = x._array


def extremum(x: Any, axes: tuple[int, ...], largest: bool, start: float | None = None) -> ndarray:
    """As ``autoq.kernels.cuda.reduce.extremum``."""
    LAUNCHES.append("extremum")
    assert x.dtype == np.float32
    assert x.size
    assert axes
    function: Any = np.maximum if largest else np.minimum
    with np.errstate(all="ignore"):
        found = function.reduce(x._array, axis=axes)
        return ndarray(np.asarray(found if start is None else function(found, np.float32(start))))


def _amax(x: np.ndarray) -> Any:
    return kernels().amax(x.reshape(-1)) if x.size else 0.0


def _tensor_scale(codec: Any, amax: Any) -> Any:
    from autoq.kernels.scalar.rules import tensor_factors

    with np.errstate(all="ignore"):
        return tensor_factors(codec)(np.float32(amax))[2]


def _host(value: Any) -> Any:
    return value._array if isinstance(value, ndarray) else value


def _check_types(x: Any, words: Any, scales: Any) -> None:
    """Hold the caller to the contract of the real kernels."""
    assert all(isinstance(a, ndarray) for a in (x, words, scales)), "arrays of the device"
    assert x.dtype.name in ("float32", "float16", "bfloat16"), x.dtype
    assert words.dtype == np.uint32
    assert words.flags.c_contiguous
    assert scales.flags.c_contiguous


MODULES = {
    "quantize": {"quantize": quantize},
    "dequantize": {"dequantize": dequantize},
    "scatter": {"add_at": add_at},
    "casts": {"cast": cast},
    "reduce": {"extremum": extremum},
    "pack": {"pack": pack, "unpack": unpack},
    "measure": {"amax": amax, "first_nonfinite": first_nonfinite},
    "dropout": {"dropout": dropout},
    **UPDATES,
}


def modules() -> dict[str, ModuleType]:
    """Modules to stand where those of ``autoq.kernels.cuda`` would, by full name."""
    # Ops find no kernels of their own, dropout excepted: all run their forward on the arrays. The forward of
    # those that have exact kernels on a GPU flushes nothing (standin_exact.py).
    made = {"autoq.ops.on_device": ModuleType("autoq.ops.on_device")}
    for name, functions in MODULES.items():
        module = ModuleType(f"autoq.kernels.cuda.{name}")
        module.__dict__.update(functions)
        made[module.__name__] = module
    return made
