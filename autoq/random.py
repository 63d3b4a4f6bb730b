"""Counter-based random numbers: Philox-4x32-10 streams that any target can repeat.

A draw is a key and a stream, never a running counter: number ``i`` of a draw depends on the seed, the
stream and ``i`` alone, so that recomputation, replay and resumption give it again, in any order.

Key: the seed's low and high 32 bits. Counter: the low and high 32 bits of the group ``g``, then of the
stream. One block of 128 bits holds the eight 16-bit numbers of elements ``8 g .. 8 g + 7``, low halves
first, or the four 32-bit numbers of elements ``4 g .. 4 g + 3``.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import hashlib
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from .errors import ArgumentError, ShapeError, StateError

Array = np.ndarray[Any, np.dtype[Any]]

ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox4x32(counter: Array, key: Array) -> Array:
    """One Philox-4x32-10 block a counter.

    Args:
        counter: uint32 (n, 4).
        key: uint32 (2,).

    Returns:
        uint32 (n, 4).

    Example:
        >>> [hex(word) for word in philox4x32(np.zeros((1, 4), np.uint32), np.zeros(2, np.uint32))[0]]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = np.asarray(counter, np.uint64).T
    k0, k1 = (int(word) for word in key)
    for _ in range(ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (p1 >> _WORD) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _WORD) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


class Draw(NamedTuple):
    """What a draw is keyed by: 64 bits of seed, 64 bits of stream."""

    seed: int
    stream: int


def random_words(draw: Draw, n: int, start: int = 0) -> Array:
    """The 32-bit numbers of elements ``start .. start + n - 1``, uint32 (n,).

    Example:
        >>> words = random_words(Draw(1, 2), 10)
        >>> bool((random_words(Draw(1, 2), 4, start=6) == words[6:]).all())
        True
    """
    first = start // 4
    groups = np.arange(first, max(first, -(-(start + n) // 4)), dtype=np.uint64)
    counter = np.empty((len(groups), 4), np.uint32)
    counter[:, 0], counter[:, 1] = groups & _LOW, groups >> _WORD
    counter[:, 2], counter[:, 3] = draw.stream & 0xFFFFFFFF, draw.stream >> 32
    key = np.array([draw.seed & 0xFFFFFFFF, draw.seed >> 32], np.uint32)
    return philox4x32(counter, key).reshape(-1)[start - 4 * first :][:n]


def random_bits(draw: Draw, n: int, bits: int = 16, start: int = 0) -> Array:
    """The 16-bit numbers of elements ``start .. start + n - 1``, or the top 8 bits of each; uint16 (n,).

    Raises:
        ArgumentError: If ``bits`` is neither 8 nor 16.

    Example:
        >>> draw = Draw(seed=1, stream=2)
        >>> bool((random_bits(draw, 9, bits=8) == random_bits(draw, 9) >> 8).all())
        True
    """
    if bits not in (8, 16):
        raise ArgumentError(f"random_bits: bits={bits}", "8 or 16", "Shift a 16-bit number for fewer.")
    first = start // 2
    words = random_words(draw, -(-(start + n) // 2) - first, first)
    halves = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1).reshape(-1)
    drawn = halves[start - 2 * first :][:n].astype(np.uint16)
    return drawn >> np.uint16(16 - bits)


def uniform01(draw: Draw, n: int, start: int = 0) -> Array:
    """float32 (n,) in [0, 1): the top 24 bits of the 32-bit numbers, exactly.

    Example:
        >>> u = uniform01(Draw(0, 0), 1000)
        >>> bool((u >= 0).all() and (u < 1).all())
        True
    """
    return (random_words(draw, n, start) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _hash64(*parts: object) -> int:
    """A 64-bit hash that is the same in every process."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


_serials = itertools.count(1)


class Generator:
    """A source of draws, each keyed by the seed, a call path and how often that path was taken.

    Args:
        seed: 0 .. 2**64 - 1.

    Raises:
        ArgumentError: If the seed is out of range.

    Attributes:
        seed: As given.
        serial: Which of this process's generators it is, in the order in which they were made.

    Example:
        >>> a, b = Generator(0), Generator(0)
        >>> bool((a.uniform((2, 3)) == b.uniform((2, 3))).all())
        True
        >>> a.draw("dropout") == b.draw("dropout"), a.draw("dropout") == b.draw("attention")
        (True, False)
    """

    serial = 0  # of those that older versions pickled

    def __init__(self, seed: int) -> None:
        try:
            self.seed = operator.index(seed)
        except TypeError:
            self.seed = -1
        if not 0 <= self.seed < 1 << 64:
            raise ArgumentError(
                f"Generator: seed={seed!r}", "an integer from 0 to 2**64 - 1", "Pass Generator(0)."
            )
        self._invocations: dict[str, int] = {}
        self.serial = next(_serials)

    def __repr__(self) -> str:
        return f"Generator({self.seed})"

    def draw(self, path: str = "") -> Draw:
        """The next draw on ``path``; other paths are not affected.

        Example:
            >>> rng = Generator(7)
            >>> rng.draw("layers.0") == rng.draw("layers.0")
            False
        """
        stand_in = drawing.get()
        return self.drawn(path) if stand_in is None else stand_in(self, path)

    def drawn(self, path: str) -> Draw:
        """``draw``, from this generator whoever stands in for it."""
        invocation = self._invocations.get(path, 0)
        self._invocations[path] = invocation + 1
        return Draw(self.seed, _hash64(path, invocation))

    def spawn(self, path: str) -> Generator:
        """A generator of its own for ``path``: the same one every time, whatever was drawn before.

        Example:
            >>> Generator(7).spawn("worker 1").seed == Generator(7).spawn("worker 1").seed
            True
        """
        return Generator(_hash64("spawn", self.seed, path))

    def uniform(
        self, shape: int | tuple[int, ...] = (), low: float = 0.0, high: float = 1.0, dtype: Any = np.float32
    ) -> Array:
        """Array of ``shape`` and ``dtype``, uniform in [low, high); rounding to dtype may reach high.

        Example:
            >>> Generator(0).uniform((2, 2), -1, 1).shape
            (2, 2)
        """
        n = _size("uniform", shape)
        low, high = _number("uniform", "low", low), _number("uniform", "high", high)
        u = _fractions(self.draw("uniform"), n, dtype)
        return np.asarray(low + u * (high - low), dtype).reshape(shape)

    def normal(
        self, shape: int | tuple[int, ...] = (), mean: float = 0.0, std: float = 1.0, dtype: Any = np.float32
    ) -> Array:
        """Array of ``shape`` and ``dtype``, normally distributed (Box and Muller, 1958).

        Example:
            >>> bool(abs(Generator(0).normal(10_000).mean()) < 0.05)
            True
        """
        n = _size("normal", shape)
        mean, std = _number("normal", "mean", mean), _number("normal", "std", std)
        words = random_words(self.draw("normal"), 2 * n).astype(np.float64)
        radius = np.sqrt(-2.0 * np.log((words[:n] + 1.0) * 2.0**-32))
        normal = radius * np.cos(2.0 * np.pi * 2.0**-32 * words[n:])
        return np.asarray(mean + std * normal, dtype).reshape(shape)

    def permutation(self, n: int) -> Array:
        """int64 (n,): the numbers 0 .. n - 1 in random order.

        Example:
            >>> sorted(Generator(0).permutation(5).tolist())
            [0, 1, 2, 3, 4]
        """
        n = _size("permutation", (n,))
        words = random_words(self.draw("permutation"), 2 * n).astype(np.uint64)
        return np.argsort(words[:n] << _WORD | words[n:], kind="stable")

    def state_dict(self) -> dict[str, Any]:
        """The seed and how often each path was taken: all that resuming needs.

        Example:
            >>> rng = Generator(3)
            >>> draw = rng.draw("x")
            >>> rng.state_dict()
            {'seed': 3, 'invocations': {'x': 1}}
        """
        return {"seed": self.seed, "invocations": dict(self._invocations)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken.

        Raises:
            StateError: If ``state`` is not a generator's.

        Example:
            >>> a, b = Generator(3), Generator(0)
            >>> draw = a.draw("x")
            >>> b.load_state_dict(a.state_dict())
            >>> a.draw("x") == b.draw("x")
            True
        """
        if set(state) != {"seed", "invocations"}:
            raise StateError(
                f"Generator state with keys {sorted(state)}",
                "seed, invocations",
                "Pass what state_dict() returned.",
            )
        seed = Generator(state["seed"]).seed
        self._invocations = {str(path): int(count) for path, count in state["invocations"].items()}
        self.seed = seed


# What draws in the place of generators, where draws are noted or repeated.
drawing: ContextVar[Callable[[Generator, str], Draw] | None] = ContextVar("autoq_drawing", default=None)


def _size(owner: str, shape: Any) -> int:
    """How many values a shape holds; ShapeError unless its lengths are integers from 0."""
    try:
        lengths = tuple(map(operator.index, shape if isinstance(shape, tuple | list) else (shape,)))
    except TypeError:
        lengths = (-1,)
    if min(lengths, default=0) < 0:
        raise ShapeError(
            f"Generator.{owner}: shape {shape!r}", "integer lengths of at least 0", "Correct the shape."
        )
    return math.prod(lengths)


def _number(owner: str, name: str, value: Any) -> float:
    """A finite number; ArgumentError for anything else."""
    if isinstance(value, int | float | np.number) and math.isfinite(value):
        return float(value)
    raise ArgumentError(f"Generator.{owner}: {name}={value!r}", "a finite number", "Pass a number.")


def _fractions(draw: Draw, n: int, dtype: Any) -> Array:
    """Uniform in [0, 1) with as many bits as ``dtype`` can show: float64 53, others 24."""
    if np.dtype(dtype) != np.float64:
        return uniform01(draw, n)
    words = random_words(draw, 2 * n).astype(np.uint64)
    return ((words[:n] << _WORD | words[n:]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
