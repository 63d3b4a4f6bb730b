"""Functions that create, look up, move, search, sort, reduce and join, over dtypes, axes and options."""

from __future__ import annotations

from typing import Any

import array_api_strict as strict
import numpy as np

from tests.array_api.cases import FLOATS, INTEGERS, NUMERIC, SPECIAL, array, case, data, over

ALL = ("bool", *NUMERIC)
AXES = ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}, {"axis": ()})
ONE_AXIS = ({}, {"axis": 0}, {"axis": -1, "keepdims": True})
CUBE = (2, 3, 4)


def on(shape: tuple[int, ...]) -> Any:
    """A call of the function on data of that shape."""
    return lambda f, xp, d, **option: f(array(xp, data(d, shape), d), **option)


# Creation: dtypes are named, for the default float is float32 here and float64 there.
over("zeros ones empty", ALL, lambda f, xp, d, **o: _shape_only(f, xp, d), {})
over(
    "zeros ones",
    ALL,
    lambda f, xp, d: (f((2, 3), dtype=_dtype(xp, d)), f(4, dtype=_dtype(xp, d)), f((), dtype=_dtype(xp, d))),
)
over(
    "full",
    ALL,
    lambda f, xp, d: (f((2, 0), 1, dtype=_dtype(xp, d)), f((2,), 1, dtype=_dtype(xp, d), device=None)),
)
over(
    "zeros_like ones_like",
    ALL,
    lambda f, xp, d: (f(array(xp, data(d), d)), f(array(xp, data(d), d), dtype=_dtype(xp, "int16"))),
)
over("empty_like", ALL, lambda f, xp, d: (f(array(xp, data(d), d)).shape, _name(f(array(xp, data(d), d)))))
over(
    "full_like",
    ALL,
    lambda f, xp, d: (f(array(xp, data(d), d), 1), f(array(xp, data(d), d), 2, dtype=_dtype(xp, "float64"))),
)
over(
    "eye",
    NUMERIC,
    lambda f, xp, d: (
        f(2, dtype=_dtype(xp, d)),
        f(2, 3, k=1, dtype=_dtype(xp, d)),
        f(3, 2, k=-1, dtype=_dtype(xp, d)),
    ),
)
over(
    "arange",
    NUMERIC,
    lambda f, xp, d: (
        f(5, dtype=_dtype(xp, d)),
        f(1, 9, 3, dtype=_dtype(xp, d)),
        f(3, 3, dtype=_dtype(xp, d)),
    ),
)
over(
    "arange",
    FLOATS,
    lambda f, xp, d: (f(0.0, 1.0, 0.1, dtype=_dtype(xp, d)), f(5, -1, -2.5, dtype=_dtype(xp, d))),
)
over(
    "linspace",
    FLOATS,
    lambda f, xp, d: (
        f(0, 1, 7, dtype=_dtype(xp, d)),
        f(1, -3, 5, dtype=_dtype(xp, d), endpoint=False),
        f(2.0, 2.0, 0, dtype=_dtype(xp, d)),
    ),
)
over("tril triu", ALL, on((2, 3, 4)), {}, {"k": 1}, {"k": -1}, {"k": 9})
over(
    "meshgrid",
    NUMERIC,
    lambda f, xp, d, **o: f(array(xp, [1, 2, 3], d), array(xp, [4, 5], d), **o),
    {},
    {"indexing": "ij"},
)
over(
    "asarray",
    ALL,
    lambda f, xp, d: (
        f([[1, 0], [0, 1]], dtype=_dtype(xp, d)),
        f(1, dtype=_dtype(xp, d)),
        f(array(xp, data(d), d)),
        f(array(xp, data(d), d), copy=True),
    ),
)
over("from_dlpack", ALL, lambda f, xp, d: (f(data(d)), f(array(xp, data(d), d))))

# Data types.
over("astype", NUMERIC, lambda f, xp, d: [f(array(xp, np.abs(data(d)), d), _dtype(xp, to)) for to in ALL])
over("astype", ("bool",), lambda f, xp, d: [f(array(xp, data(d), d), _dtype(xp, to)) for to in ALL])
over("astype", ALL, lambda f, xp, d: f(array(xp, data(d), d), _dtype(xp, d), copy=False))
over(
    "can_cast",
    ALL,
    lambda f, xp, d: [f(_dtype(xp, d), _dtype(xp, to)) for to in ALL if (d == to) or _kind(d) == _kind(to)],
)
over("can_cast", ALL, lambda f, xp, d: f(array(xp, data(d), d), _dtype(xp, d)))
over(
    "finfo",
    FLOATS,
    lambda f, xp, d: [
        (i.bits, i.eps, i.max, i.min, i.smallest_normal) for i in (f(_dtype(xp, d)), f(array(xp, data(d), d)))
    ],
)
over(
    "iinfo",
    INTEGERS,
    lambda f, xp, d: [(i.bits, i.max, i.min) for i in (f(_dtype(xp, d)), f(array(xp, data(d), d)))],
)
over(
    "isdtype",
    ALL,
    lambda f, xp, d: (
        [
            f(_dtype(xp, d), kind)
            for kind in (
                "bool",
                "signed integer",
                "unsigned integer",
                "integral",
                "real floating",
                "complex floating",
                "numeric",
                ("bool", "integral"),
            )
        ]
        + [f(_dtype(xp, d), _dtype(xp, "int16")), f(_dtype(xp, d), (_dtype(xp, "int16"), "bool"))]
    ),
)
over("result_type", ALL, lambda f, xp, d: [_spelled(f(_dtype(xp, d), _dtype(xp, o))) for o in _partners(d)])
over("result_type", NUMERIC, lambda f, xp, d: [_spelled(f(array(xp, data(d), d), _dtype(xp, d), 2))])

# Indexing.
over(
    "take",
    ALL,
    lambda f, xp, d: [
        f(array(xp, data(d, CUBE), d), array(xp, [1, 0, 1], "int64"), axis=axis) for axis in (0, 1, -1)
    ],
)
over("take", ALL, lambda f, xp, d: f(array(xp, data(d, (4,)), d), array(xp, [3, -1], "int32")))
over(
    "take_along_axis",
    ALL,
    lambda f, xp, d: [
        f(array(xp, data(d, (2, 3)), d), array(xp, [[1, 0, 1], [0, 0, 1]], "int64"), axis=axis)
        for axis in (0, -1)
    ],
)

# Linear algebra.
over(
    "matmul",
    NUMERIC,
    lambda f, xp, d: [
        f(array(xp, data(d, a), d), array(xp, data(d, b, 1), d))
        for a, b in (
            ((2, 3), (3, 4)),
            ((3,), (3,)),
            ((2, 3), (3,)),
            ((3,), (3, 2)),
            ((5, 1, 2, 3), (4, 3, 2)),
        )
    ],
)
over("matrix_transpose", ALL, on(CUBE))
over(
    "tensordot",
    NUMERIC,
    lambda f, xp, d: [
        f(array(xp, data(d, (2, 3, 4)), d), array(xp, data(d, (3, 4, 2), 1), d), axes=axes)
        for axes in (2, ((1, 2), (0, 1)), 0, ((0,), (2,)))
    ],
)
over(
    "vecdot",
    NUMERIC,
    lambda f, xp, d: [
        f(array(xp, data(d, (2, 3)), d), array(xp, data(d, (2, 3), 1), d), axis=axis) for axis in (-1, -2)
    ],
)
over(
    "matmul vecdot",
    ("int16",),
    lambda f, xp, d: f(array(xp, data(d, (3,)), d), array(xp, data("int32", (3,)), "int32")),
)

# Manipulation.
over("broadcast_to", ALL, on((3, 1)), {"shape": (2, 3, 4)}, {"shape": (3, 1)})
over("broadcast_arrays", ALL, lambda f, xp, d: f(array(xp, data(d, (2, 1)), d), array(xp, data(d, (3,)), d)))
over(
    "concat",
    ALL,
    lambda f, xp, d, **o: f([array(xp, data(d, (2, 3)), d), array(xp, data(d, (2, 3), 1), d)], **o),
    {},
    {"axis": 1},
    {"axis": -1},
    {"axis": None},
)
over(
    "concat stack",
    ("int8", "uint8", "int16"),
    lambda f, xp, d: f([array(xp, data(d), d), array(xp, data("int16"), "int16")]),
)
over(
    "concat stack",
    ("float32",),
    lambda f, xp, d: f([array(xp, data(d), d), array(xp, data("float64"), "float64")]),
)
over("expand_dims", ALL, on((2, 3)), {"axis": 0}, {"axis": 1}, {"axis": -1}, {"axis": -3})
over("flip", ALL, on(CUBE), {}, {"axis": 0}, {"axis": (0, -1)})
over(
    "moveaxis",
    ALL,
    lambda f, xp, d: [f(array(xp, data(d, CUBE), d), *o) for o in ((0, -1), ((0, 1), (1, 0)), (2, 0))],
)
over("permute_dims", ALL, on(CUBE), {"axes": (2, 0, 1)}, {"axes": (0, 1, 2)})
over(
    "repeat",
    ALL,
    lambda f, xp, d: [
        f(array(xp, data(d, (2, 3)), d), 2),
        f(array(xp, data(d, (2, 3)), d), 3, axis=1),
        f(array(xp, data(d, (2, 3)), d), array(xp, [0, 2], "int64"), axis=0),
    ],
)
over(
    "reshape",
    ALL,
    on((2, 6)),
    {"shape": (3, 4)},
    {"shape": (-1,)},
    {"shape": (4, 3), "copy": True},
    {"shape": (3, 4), "copy": False},
    {"shape": (2, -1, 3)},
)
over(
    "roll",
    ALL,
    on(CUBE),
    {"shift": 2},
    {"shift": -1, "axis": 1},
    {"shift": (1, 2), "axis": (0, -1)},
    {"shift": 7, "axis": 0},
)
over("squeeze", ALL, on((1, 3, 1)), {"axis": 0}, {"axis": (0, -1)}, {"axis": ()})
over(
    "stack",
    ALL,
    lambda f, xp, d, **o: f([array(xp, data(d), d), array(xp, data(d, seed=1), d)], **o),
    {},
    {"axis": 1},
    {"axis": -1},
)
over(
    "tile", ALL, lambda f, xp, d: [f(array(xp, data(d, (2, 3)), d), r) for r in ((2,), (2, 1), (2, 1, 2), ())]
)
over("unstack", ALL, on((2, 3)), {}, {"axis": 1}, {"axis": -1})

# Searching, sets, sorting. Values repeat, so that ties count.
over("argmax argmin", NUMERIC, on(CUBE), *ONE_AXIS)
over("count_nonzero", ALL, on(CUBE), *AXES)
over("nonzero", ALL, on((3, 4)))
over(
    "searchsorted",
    NUMERIC,
    lambda f, xp, d, **o: f(array(xp, [1, 2, 2, 4], d), array(xp, [[0, 2], [4, 5]], d), **o),
    {},
    {"side": "right"},
)
over(
    "searchsorted",
    ("int64", "float64"),
    lambda f, xp, d: f(array(xp, [4, 1, 2], d), array(xp, [3, 1], d), sorter=array(xp, [1, 2, 0], "int64")),
)
over(
    "where",
    ALL,
    lambda f, xp, d: f(
        array(xp, [[True], [False]], "bool"), array(xp, data(d, (3,)), d), array(xp, data(d, (2, 3), 1), d)
    ),
)
over(
    "where", INTEGERS + FLOATS, lambda f, xp, d: f(array(xp, [True, False], "bool"), array(xp, [1, 2], d), 3)
)
over(
    "where",
    ("int8", "int16"),
    lambda f, xp, d: f(array(xp, [True, False], "bool"), array(xp, [1, 2], d), array(xp, [3, 4], "int32")),
)
over(
    "unique_all unique_counts unique_inverse unique_values",
    ALL,
    lambda f, xp, d: f(array(xp, [[3, 1, 3], [0, 1, 3]], d)),
)
over(
    "unique_all unique_counts unique_inverse unique_values",
    FLOATS,
    lambda f, xp, d: f(array(xp, [0.0, np.nan, np.nan, 1.0], d)),
)
over(
    "sort argsort",
    NUMERIC,
    on(CUBE),
    {},
    {"axis": 0},
    {"descending": True},
    {"axis": 1, "descending": True, "stable": True},
)

# Statistics.
over("sum prod", INTEGERS + FLOATS, on(CUBE), *AXES)
over(
    "sum prod",
    NUMERIC,
    lambda f, xp, d: [f(array(xp, np.abs(data(d)) % 3, d), dtype=_dtype(xp, to)) for to in _same_kind(d)],
)
over("sum prod", NUMERIC, on((0, 3)), {}, {"axis": 0})
over(
    "max min", INTEGERS + FLOATS, on(CUBE), {}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}
)
over("max min mean sum prod", FLOATS, lambda f, xp, d: [f(array(xp, [v, 1.0], d)) for v in SPECIAL[:5]])
over("mean", FLOATS, on(CUBE), *AXES)
over("std var", FLOATS, on(CUBE), *AXES, {"correction": 1}, {"axis": 1, "correction": 0.5, "keepdims": True})
over(
    "cumulative_sum cumulative_prod", NUMERIC, on((3, 4)), {"axis": 0}, {"axis": -1, "include_initial": True}
)
over(
    "cumulative_sum cumulative_prod",
    NUMERIC,
    lambda f, xp, d: [f(array(xp, [1, 2, 3], d), dtype=_dtype(xp, to)) for to in _same_kind(d)],
)
over("all any", ALL, on(CUBE), *AXES)
over(
    "all any",
    FLOATS,
    lambda f, xp, d: [f(array(xp, [np.nan, -0.0], d)), f(array(xp, np.zeros((0, 2)), d), axis=0)],
)
over(
    "diff",
    NUMERIC,
    lambda f, xp, d: [
        f(array(xp, data(d, (3, 4)), d), **o)
        for o in ({}, {"axis": 0}, {"n": 2}, {"n": 0}, {"axis": 0, "n": 3})
    ],
)
over(
    "diff",
    NUMERIC,
    lambda f, xp, d: f(
        array(xp, data(d, (3,)), d),
        prepend=array(xp, data(d, (1,), 2), d),
        append=array(xp, data(d, (2,), 3), d),
    ),
)


@case("__array_namespace_info__")
def kinds_of_dtypes(xp: Any, D: Any) -> Any:
    info = xp.__array_namespace_info__()
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", ("bool", "integral"))
    return [sorted(info.dtypes(kind=kind)) for kind in kinds]


def _dtype(xp: Any, name: str) -> Any:
    from tests.array_api.cases import dtype_of

    return dtype_of(xp)(name)


def _name(x: Any) -> str:
    return str(x.dtype).rpartition(".")[2].rstrip("'>)")


def _shape_only(f: Any, xp: Any, d: str) -> Any:
    return f((2, 3), dtype=_dtype(xp, d)).shape


def _spelled(dtype: Any) -> str:
    return str(getattr(dtype, "_np_dtype", dtype))


def _kind(d: str) -> str:
    return "bool" if d == "bool" else "float" if d in FLOATS else "integer"


def _same_kind(d: str) -> tuple[str, ...]:
    return FLOATS if d in FLOATS else INTEGERS


def _partners(d: str) -> list[str]:
    if d == "bool":
        return ["bool"]
    return [o for o in _same_kind(d) if not ("uint64" in (o, d) and "i" in (o[0], d[0]))]


over("conj", FLOATS, lambda f, xp, d: _real_only(f, xp, d))
over("imag", FLOATS, lambda f, xp, d: _real_only(f, xp, d))


def _real_only(f: Any, xp: Any, d: str) -> Any:
    """Of real numbers, which the strict implementation refuses, what it says of complex ones with part 0."""
    x = array(xp, SPECIAL[3:], d)
    if xp is strict:
        return xp.astype(f(xp.astype(x, xp.complex128)), x.dtype) if f is strict.imag else x
    return f(x)
