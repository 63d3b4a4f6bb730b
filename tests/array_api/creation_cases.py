"""Functions that make arrays and that answer questions about dtypes, over all dtypes and options."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.array_api.cases import (
    ALL,
    FLOATS,
    INTEGERS,
    NUMERIC,
    array,
    case,
    data,
    named,
    on,
    over,
    same_kind,
)


def _outside(x: Any) -> Any:
    """All but the values, which nobody promises."""
    return x.shape, str(x.dtype).rpartition(".")[2]


def _spelled(dtype: Any) -> str:
    return str(getattr(dtype, "_np_dtype", dtype))


def _kind(dtype: str) -> str:
    return "bool" if dtype == "bool" else "float" if dtype in FLOATS else "integer"


def _partners(dtype: str) -> list[str]:
    """The dtypes that the standard's table combines with this one: uint64 has no wider signed one."""
    if dtype == "bool":
        return ["bool"]
    return [o for o in same_kind(dtype) if not ("uint64" in (o, dtype) and "i" in (o[0], dtype[0]))]


# Dtypes are named, for the default float is float32 here and float64 there.
over("empty", ALL, lambda f, xp, d: _outside(f((2, 3), dtype=named(xp, d))))
over(
    "zeros ones",
    ALL,
    lambda f, xp, d: (f((2, 3), dtype=named(xp, d)), f(4, dtype=named(xp, d)), f((), dtype=named(xp, d))),
)
over(
    "full",
    ALL,
    lambda f, xp, d: (f((2, 0), 1, dtype=named(xp, d)), f((2,), 1, dtype=named(xp, d), device=None)),
)
over(
    "zeros_like ones_like",
    ALL,
    lambda f, xp, d: (f(array(xp, data(d), d)), f(array(xp, data(d), d), dtype=named(xp, "int16"))),
)
over("empty_like", ALL, lambda f, xp, d: _outside(f(array(xp, data(d), d))))
over(
    "full_like",
    ALL,
    lambda f, xp, d: (f(array(xp, data(d), d), 1), f(array(xp, data(d), d), 2, dtype=named(xp, "float64"))),
)
over(
    "eye",
    NUMERIC,
    lambda f, xp, d: (
        f(2, dtype=named(xp, d)),
        f(2, 3, k=1, dtype=named(xp, d)),
        f(3, 2, k=-1, dtype=named(xp, d)),
    ),
)
over(
    "arange",
    NUMERIC,
    lambda f, xp, d: (
        f(5, dtype=named(xp, d)),
        f(1, 9, 3, dtype=named(xp, d)),
        f(3, 3, dtype=named(xp, d)),
    ),
)
over(
    "arange",
    FLOATS,
    lambda f, xp, d: (f(0.0, 1.0, 0.1, dtype=named(xp, d)), f(5, -1, -2.5, dtype=named(xp, d))),
)
over(
    "linspace",
    FLOATS,
    lambda f, xp, d: (
        f(0, 1, 7, dtype=named(xp, d)),
        f(1, -3, 5, dtype=named(xp, d), endpoint=False),
        f(2.0, 2.0, 0, dtype=named(xp, d)),
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
        f([[1, 0], [0, 1]], dtype=named(xp, d)),
        f(1, dtype=named(xp, d)),
        f(array(xp, data(d), d)),
        f(array(xp, data(d), d), copy=True),
    ),
)
over("from_dlpack", ALL, lambda f, xp, d: (f(data(d)), f(array(xp, data(d), d))))

# Data types.
over("astype", NUMERIC, lambda f, xp, d: [f(array(xp, np.abs(data(d)), d), named(xp, to)) for to in ALL])
over("astype", ("bool",), lambda f, xp, d: [f(array(xp, data(d), d), named(xp, to)) for to in ALL])
over("astype", ALL, lambda f, xp, d: f(array(xp, data(d), d), named(xp, d), copy=False))
over(
    "can_cast",
    ALL,
    lambda f, xp, d: [f(named(xp, d), named(xp, to)) for to in ALL if (d == to) or _kind(d) == _kind(to)],
)
over("can_cast", ALL, lambda f, xp, d: f(array(xp, data(d), d), named(xp, d)))
over(
    "finfo",
    FLOATS,
    lambda f, xp, d: [
        (i.bits, i.eps, i.max, i.min, i.smallest_normal) for i in (f(named(xp, d)), f(array(xp, data(d), d)))
    ],
)
over(
    "iinfo",
    INTEGERS,
    lambda f, xp, d: [(i.bits, i.max, i.min) for i in (f(named(xp, d)), f(array(xp, data(d), d)))],
)
over(
    "isdtype",
    ALL,
    lambda f, xp, d: (
        [
            f(named(xp, d), kind)
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
        + [f(named(xp, d), named(xp, "int16")), f(named(xp, d), (named(xp, "int16"), "bool"))]
    ),
)
over("result_type", ALL, lambda f, xp, d: [_spelled(f(named(xp, d), named(xp, o))) for o in _partners(d)])
over("result_type", NUMERIC, lambda f, xp, d: [_spelled(f(array(xp, data(d), d), named(xp, d), 2))])


@case("__array_namespace_info__")
def kinds_of_dtypes(xp: Any) -> Any:
    info = xp.__array_namespace_info__()
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", ("bool", "integral"))
    return [sorted(info.dtypes(kind=kind)) for kind in kinds]
