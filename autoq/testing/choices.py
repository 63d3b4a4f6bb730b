"""Branches inside a forward function: recorded at one run, repeated by the others.

A forward written in NumPy chooses: the larger of two, a sign, where a comparison holds, an order. Coarse
grids put exact ties under these choices in one value in ten, so differencing across them measures nothing.
Arrays handed to a forward are therefore ``Watched``: what NumPy decides on them is kept in a list of choices
and, in a replay, taken from there, so that the function differenced is the smooth piece that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np


class Choices:
    """The choices of one call, in order.

    Attributes:
        replaying: Whether choices are taken from the list instead of being made.
        ties: By tie that was met while recording, where it was.
    """

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.ties: list[np.ndarray] = []
        self.replaying = False
        self._next = 0
        self._shares: dict[int, tuple[Any, Any]] = {}

    def replay(self) -> Choices:
        """The same choices, to be taken from the first on."""
        self.replaying, self._next, self._shares = True, 0, {}
        return self

    def take(self, make: Callable[[], Any]) -> Any:
        """The next choice: made now, or the recorded one."""
        if not self.replaying:
            self.made.append(make())
            return self.made[-1]
        self._next += 1
        return self.made[self._next - 1] if self._next <= len(self.made) else make()

    def share(self, array: Any, shares: Any) -> None:
        """Note how many equal ones each value of a folded maximum holds; the array is held, so is its id."""
        self._shares[id(array)] = array, shares

    def shares_of(self, array: Any) -> Any:
        """How many equal ones each value of an array holds."""
        return self._shares.get(id(array), (None, 1))[1]

    def tie(self, where: Any) -> None:
        """Note where two alternatives were equal."""
        if not self.replaying and np.any(where):
            self.ties.append(np.asarray(where))


_choices: ContextVar[Choices | None] = ContextVar("autoq_testing_choices", default=None)


@contextmanager
def choosing(choices: Choices) -> Iterator[Choices]:
    """Run a forward on watched arrays whose choices go into, or come from, ``choices``.

    Example:
        >>> choices = Choices()
        >>> with choosing(choices):
        ...     above = watched(np.array([1.0, -1.0])) > 0
        >>> with choosing(choices.replay()):
        ...     (watched(np.array([-0.1, 0.1])) > 0).tolist()
        [True, False]
    """
    token = _choices.set(choices)
    try:
        yield choices
    finally:
        _choices.reset(token)


class Watched(np.ndarray):
    """An array on which NumPy's choices are recorded or repeated; otherwise an array like any other."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        arrays = tuple(plain(x) for x in inputs)
        choices = _choices.get()
        frozen = _UFUNCS.get((ufunc, method)) if choices is not None else None
        if "where" in kwargs and method == "__call__":
            frozen = None
        if frozen is not None:
            operands = inputs if frozen is _larger else arrays
            result = frozen(choices, ufunc, *operands, **kwargs)
            if out is not None:
                plain(out[0])[...] = result
                assert choices is not None
                choices.share(out[0], choices.shares_of(result))
        elif out is not None:
            result = getattr(ufunc, method)(*arrays, out=tuple(plain(x) for x in out), **kwargs)
        else:
            result = getattr(ufunc, method)(*arrays, **kwargs)
        if out is not None:
            return out[0]
        return tuple(watched(x) for x in result) if isinstance(result, tuple) else watched(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        choices = _choices.get()
        frozen = _FUNCTIONS.get(func)
        if choices is not None and frozen is not None:
            first, *rest = args
            return watched(frozen(choices, func, plain(first), *rest, **kwargs))
        return _again(super().__array_function__(func, types, args, kwargs))

    def argmax(self, *args: Any, **kwargs: Any) -> Any:
        """As of NumPy; a choice."""
        return np.argmax(self, *args, **kwargs)

    def argmin(self, *args: Any, **kwargs: Any) -> Any:
        """As of NumPy; a choice."""
        return np.argmin(self, *args, **kwargs)

    def argsort(self, *args: Any, **kwargs: Any) -> Any:
        """As of NumPy; a choice."""
        return np.argsort(self, *args, **kwargs)


def watched(x: Any) -> Any:
    """A float array as a watched one; anything else as it is."""
    if isinstance(x, np.floating):
        x = np.asarray(x)
    return x.view(Watched) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def plain(x: Any) -> Any:
    """A watched array as a plain one; anything else as it is."""
    return x.view(np.ndarray) if isinstance(x, Watched) else x


def _again(result: Any) -> Any:
    return type(result)(map(watched, result)) if type(result) in (list, tuple) else watched(result)


def _compared(choices: Choices, ufunc: np.ufunc, *x: Any, **kwargs: Any) -> Any:
    if len(x) == 2:
        choices.tie(np.equal(*x))
    return choices.take(lambda: ufunc(*x, **kwargs))


def _constant(choices: Choices, ufunc: Any, *x: Any, **kwargs: Any) -> Any:
    value = choices.take(lambda: ufunc(*x, **kwargs))
    if ufunc in _JUMPS:
        choices.tie(np.equal(_JUMPS[ufunc](x[0]), 0))
    return value


def _larger(choices: Choices, ufunc: np.ufunc, a: Any, b: Any, **kwargs: Any) -> Any:
    """One of two; at a tie equal shares of all that were compared so far, where maxima are folded."""
    choices.tie(np.equal(a, b))
    of_a, of_b = choices.shares_of(a), choices.shares_of(b)
    a, b = plain(a), plain(b)

    def make() -> Any:
        tied = np.equal(a, b)
        first = np.where(tied, of_a / (of_a + of_b), np.equal(ufunc(a, b), a))
        return first, np.where(tied, of_a + of_b, np.where(first == 1, of_a, of_b))

    first, shares = choices.take(make)
    with np.errstate(all="ignore"):
        mixed = np.where(np.equal(a, b), b, b + first * (a - b))
        value = watched(np.where(first == 1, a, np.where(first == 0, b, mixed)))
    choices.share(value, shares)
    return value


def _largest(choices: Choices, ufunc: np.ufunc, x: Any, axis: Any = 0, **kwargs: Any) -> Any:
    """The extremum of a reduction; equal ones share."""
    keepdims = kwargs.pop("keepdims", False)

    def make() -> Any:
        value = ufunc.reduce(x, axis=axis, keepdims=True, **kwargs)
        hits = np.equal(x, value)
        count = np.add.reduce(hits, axis=axis, keepdims=True, dtype=np.int64)
        return value, x, np.where(hits & np.isfinite(x), 1.0 / np.maximum(count, 1), 0.0)

    # The recorded value plus the shares of what changed, so that the recorded run gives it to the bit.
    value, before, share = choices.take(make)
    with np.errstate(all="ignore"):
        change = np.where(share > 0, share * (x - before), 0.0)
        value = value + np.add.reduce(change, axis=axis, keepdims=True)
    return value if keepdims else np.squeeze(value, axis=tuple(range(value.ndim)) if axis is None else axis)


def _running(choices: Choices, ufunc: np.ufunc, x: Any, axis: int = 0, **kwargs: Any) -> Any:
    """The extremum so far; the first of equal ones."""

    def make() -> Any:
        shape = [1] * x.ndim
        shape[axis] = -1
        places = np.arange(x.shape[axis]).reshape(shape)
        so_far = ufunc.accumulate(x, axis=axis)
        new = np.not_equal(so_far, np.roll(so_far, 1, axis=axis)) & (places > 0)
        return np.maximum.accumulate(np.where(new, places, 0), axis=axis)

    return np.take_along_axis(x, choices.take(make), axis)


def _magnitude(choices: Choices, ufunc: np.ufunc, x: Any, **kwargs: Any) -> Any:
    choices.tie(np.equal(x, 0))
    with np.errstate(all="ignore"):
        sign = choices.take(lambda: np.sign(x))
        return np.where(sign == 0, x * 0, x * sign)


def _clipped(choices: Choices, ufunc: np.ufunc, x: Any, low: Any, high: Any, **kwargs: Any) -> Any:
    choices.tie(np.equal(x, low) | np.equal(x, high))
    side = choices.take(lambda: np.where(x < low, -1, np.where(x > high, 1, 0)))
    return np.where(side < 0, low, np.where(side > 0, high, x))


def _remainder(choices: Choices, ufunc: np.ufunc, a: Any, b: Any, **kwargs: Any) -> Any:
    choices.tie(np.equal(ufunc(a, b), 0))
    rounded = np.trunc if ufunc is np.fmod else np.floor
    return a - b * choices.take(lambda: rounded(a / b))


def _signed(choices: Choices, ufunc: np.ufunc, a: Any, b: Any, **kwargs: Any) -> Any:
    choices.tie(np.equal(b, 0))
    return a * choices.take(lambda: np.copysign(1.0, a) * np.copysign(1.0, b))


def _ordered(choices: Choices, func: Any, x: Any, axis: int = -1, **kwargs: Any) -> Any:
    order = choices.take(lambda: np.argsort(x, axis=axis, kind="stable"))
    return np.take_along_axis(x, order, axis)


_COMPARISONS = (
    *(np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal, np.isnan, np.isinf),
    *(np.isfinite, np.signbit, np.logical_and, np.logical_or, np.logical_not, np.logical_xor),
)
_JUMPS = {np.sign: lambda x: x}
_STEPS = (np.sign, np.floor, np.ceil, np.rint, np.trunc, np.floor_divide, np.heaviside)
_UFUNCS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {
    **{(u, "__call__"): _compared for u in _COMPARISONS},
    **{(u, "__call__"): _constant for u in _STEPS},
    **{(u, "__call__"): _larger for u in (np.maximum, np.minimum, np.fmax, np.fmin)},
    **{(u, "reduce"): _largest for u in (np.maximum, np.minimum, np.fmax, np.fmin)},
    **{(u, "accumulate"): _running for u in (np.maximum, np.minimum)},
    **{(u, "__call__"): _magnitude for u in (np.absolute, np.fabs)},
    **{(u, "__call__"): _remainder for u in (np.remainder, np.fmod)},
    (np.copysign, "__call__"): _signed,
}
_clip_ufunc = getattr(getattr(np, "_core", np), "umath", None)
if _clip_ufunc is not None and hasattr(_clip_ufunc, "clip"):
    _UFUNCS[_clip_ufunc.clip, "__call__"] = _clipped
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((np.argmax, np.argmin, np.argsort, np.argpartition, np.searchsorted), _constant),
    **dict.fromkeys((np.nonzero, np.flatnonzero, np.count_nonzero, np.round), _constant),
    np.sort: _ordered,
}
