"""Calls of the standard's functions, run by autoq and by array-api-strict on the same arrays.

A case is a function of the namespace ``xp``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import array_api_strict as strict
import numpy as np

import autoq as aq

Case = Callable[[Any], Any]
CASES: dict[str, list[Case]] = defaultdict(list)
FLOATS = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMERIC = INTEGERS + FLOATS
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, -1.5, 1e30, -1e30]
)


def named(xp: Any, dtype: str) -> Any:
    """The namespace's dtype of that name: aq.int8 is a format, so autoq's are in aq.dtypes."""
    return getattr(aq.dtypes if xp is aq else xp, dtype)


def array(xp: Any, values: Any, dtype: str) -> Any:
    return xp.asarray(np.asarray(values).astype(dtype))


def data(dtype: str, shape: tuple[int, ...] = (2, 3), seed: int = 0) -> np.ndarray:
    """Numbers of a dtype, both signs where it has them."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0 if dtype in UNSIGNED else -9, 10, shape).astype(dtype)


def case(*names: str) -> Callable[[Case], Case]:
    """Register a function as a case of the functions named."""

    def add(function: Case) -> Case:
        for name in names:
            CASES[name].append(function)
        return function

    return add


def over(names: str, dtypes: tuple[str, ...], call: Callable[..., Any], *options: dict[str, Any]) -> None:
    """``call(function, xp, dtype, **option)`` for every name, dtype and set of options."""
    for name in names.split():
        for dtype in dtypes:
            for option in options or ({},):
                CASES[name].append(_bound(name, dtype, call, option))


def _bound(name: str, dtype: str, call: Callable[..., Any], option: dict[str, Any]) -> Case:
    return lambda xp: call(getattr(xp, name), xp, dtype, **option)


ALL = ("bool", *NUMERIC)
CUBE = (2, 3, 4)


def on(shape: tuple[int, ...]) -> Any:
    """A call of the function on data of that shape."""
    return lambda f, xp, d, **option: f(array(xp, data(d, shape), d), **option)


def same_kind(dtype: str) -> tuple[str, ...]:
    return FLOATS if dtype in FLOATS else INTEGERS


def run(case: Case, xp: Any) -> Any:
    with np.errstate(all="ignore"):
        return case(xp)


def compare(found: Any, expected: Any, signs: bool = True) -> None:
    """The same structure, dtypes, shapes and values, NaNs in the same places; zeros of the same sign.

    ``signs`` is False where either zero is right.
    """
    if isinstance(expected, tuple | list):
        assert isinstance(found, tuple | list)
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            compare(f, e, signs)
        return
    if not isinstance(expected, strict._array_object.Array):
        assert found == expected
        return
    wanted = np.from_dlpack(expected)
    assert isinstance(found, aq.Tensor)
    assert found.dtype.name == wanted.dtype.name
    assert found.shape == wanted.shape
    got = found.numpy()
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted)
        return
    tolerance = 2e-6 if wanted.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    zeros = (wanted == 0) & (got == 0) & signs
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(wanted[zeros]))
