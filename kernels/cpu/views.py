"""Parts of flat arrays as arrays of their own.

Plain slices and reshapes in the interpreter. In compiled kernels they are a pointer and a shape: Numba's
own slicing and reshaping is general, and took most of a kernel's compile time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray


def part(flat: Array, start: int, count: int) -> Array:
    """``flat[start:start + count]``. Unchecked in compiled kernels, and valid as long as ``flat`` is."""
    return flat[start : start + count]


def rows(flat: Array, start: int, count: int, n: int) -> Array:
    """``count`` rows of ``n`` values from ``start`` on, as (count, n); as unchecked as ``part``."""
    return flat[start : start + count * n].reshape(count, n)


def flattened(x: Array) -> Array:
    """A C-contiguous array as one axis."""
    return x.reshape(-1)


def viewed(flat: Array, like: Array) -> Array:
    """The bytes of a flat array as values of the dtype of ``like``."""
    return flat.view(like.dtype)


@cache
def register() -> None:
    """Teach Numba these functions: typing and lowering, nothing to compile."""
    from numba import types
    from numba.extending import lower_builtin, type_callable

    def array_of(source: Any, ndim: int, dtype: Any = None) -> Any:
        return types.Array(
            dtype or source.dtype, ndim, "C", readonly=not source.mutable, aligned=source.aligned
        )

    type_callable(part)(lambda context: lambda flat, start, count: array_of(flat, 1))
    type_callable(rows)(lambda context: lambda flat, start, count, n: array_of(flat, 2))
    type_callable(flattened)(lambda context: lambda x: array_of(x, 1))
    type_callable(viewed)(lambda context: lambda flat, like: array_of(flat, 1, like.dtype))
    integer = types.Integer
    lower_builtin(part, types.Array, integer, integer)(_lower_part)
    lower_builtin(rows, types.Array, integer, integer, integer)(_lower_part)
    lower_builtin(flattened, types.Array)(_lower_flattened)
    lower_builtin(viewed, types.Array, types.Array)(_lower_viewed)


def _lower_part(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """A pointer to ``start`` and the shape that follows."""
    from numba import types

    start, *shape = (
        context.cast(builder, value, kind, types.intp)
        for value, kind in zip(args[1:], sig.args[1:], strict=True)
    )
    source = context.make_array(sig.args[0])(context, builder, args[0])
    return _array(context, builder, sig.return_type, builder.gep(source.data, [start]), shape)


def _lower_flattened(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    source = context.make_array(sig.args[0])(context, builder, args[0])
    return _array(context, builder, sig.return_type, source.data, [source.nitems])


def _lower_viewed(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    from numba import types

    source = context.make_array(sig.args[0])(context, builder, args[0])
    kinds = sig.args[0], sig.return_type
    size = [context.get_abi_sizeof(context.get_data_type(kind.dtype)) for kind in kinds]
    count = source.nitems
    if size[0] > size[1]:
        count = builder.mul(count, context.get_constant(types.intp, size[0] // size[1]))
    elif size[0] < size[1]:
        count = builder.udiv(count, context.get_constant(types.intp, size[1] // size[0]))
    pointer = context.get_data_type(sig.return_type.dtype).as_pointer()
    return _array(context, builder, sig.return_type, builder.bitcast(source.data, pointer), [count])


def _array(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any]) -> Any:
    """A C-contiguous array of ``kind`` that owns nothing."""
    from numba import types
    from numba.np.arrayobj import populate_array

    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for extent in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], extent))
    made = context.make_array(kind)(context, builder)
    populate_array(made, data, shape, strides, itemsize, None)
    return made._getvalue()
