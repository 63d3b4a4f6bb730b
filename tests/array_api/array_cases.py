"""Functions that look up, multiply, move, search, sort and reduce, over dtypes, axes and options."""

from __future__ import annotations

import numpy as np

from tests.array_api.cases import (
    ALL,
    CUBE,
    FLOATS,
    INTEGERS,
    NUMERIC,
    SPECIAL,
    array,
    data,
    named,
    on,
    over,
    same_kind,
)

AXES = ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}, {"axis": ()})
ONE_AXIS = ({}, {"axis": 0}, {"axis": -1, "keepdims": True})

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
    lambda f, xp, d: [f(array(xp, np.abs(data(d)) % 3, d), dtype=named(xp, to)) for to in same_kind(d)],
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
    lambda f, xp, d: [f(array(xp, [1, 2, 3], d), dtype=named(xp, to)) for to in same_kind(d)],
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
