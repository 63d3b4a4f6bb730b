"""Initializers: arrays of starting values, each drawn from the generator that is passed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.errors import ArgumentError, DTypeError, ShapeError
from autoq.random import Generator
from autoq.schemes import QuantScheme
from autoq.types import FLOATS, as_dtype, dtype_name

GAINS = {
    "linear": 1.0,
    "sigmoid": 1.0,
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "leaky_relu": math.sqrt(2 / (1 + 0.01**2)),
}


def zeros(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """An array of zeros.

    Example:
        >>> zeros((2,))
        array([0., 0.], dtype=float32)
    """
    return np.zeros(_checked_shape("zeros", shape), float_dtype("init.zeros", dtype))


def ones(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """An array of ones.

    Example:
        >>> ones((2,))
        array([1., 1.], dtype=float32)
    """
    return np.ones(_checked_shape("ones", shape), float_dtype("init.ones", dtype))


def uniform(
    shape: tuple[int, ...],
    rng: Generator | None = None,
    low: float = 0.0,
    high: float = 1.0,
    dtype: Any = np.float32,
) -> np.ndarray:
    """Values drawn evenly from [low, high).

    Raises:
        ArgumentError: Without a generator.

    Example:
        >>> import autoq as aq
        >>> uniform((3, 2), aq.Generator(0)).shape
        (3, 2)
    """
    shape, dtype = _checked_shape("uniform", shape), float_dtype("init.uniform", dtype)
    return checked_generator("init.uniform", rng).uniform(shape, low, high, dtype)


def normal(
    shape: tuple[int, ...],
    rng: Generator | None = None,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: Any = np.float32,
) -> np.ndarray:
    """Values drawn from a normal distribution.

    Raises:
        ArgumentError: Without a generator.

    Example:
        >>> import autoq as aq
        >>> normal((3, 2), aq.Generator(0), std=0.02).dtype
        dtype('float32')
    """
    shape, dtype = _checked_shape("normal", shape), float_dtype("init.normal", dtype)
    return checked_generator("init.normal", rng).normal(shape, mean, std, dtype)


def kaiming_uniform(
    shape: tuple[int, ...], rng: Generator | None = None, nonlinearity: str = "relu", dtype: Any = np.float32
) -> np.ndarray:
    """Uniform values of standard deviation gain / √fan_in, for ``shape`` (out, in, ...).

    Source: He et al. 2015, "Delving Deep into Rectifiers", equation 10.

    Raises:
        ArgumentError: Without a generator, or for an unknown nonlinearity.
        ShapeError: If ``shape`` has fewer than two axes.

    Example:
        >>> import autoq as aq
        >>> bool(abs(kaiming_uniform((8, 6), aq.Generator(0))).max() <= 1.0)
        True
    """
    bound = math.sqrt(3.0) * _gain(nonlinearity) / math.sqrt(_fans(shape)[0])
    return uniform(shape, rng, -bound, bound, dtype)


def kaiming_normal(
    shape: tuple[int, ...], rng: Generator | None = None, nonlinearity: str = "relu", dtype: Any = np.float32
) -> np.ndarray:
    """Normal values of standard deviation gain / √fan_in, for ``shape`` (out, in, ...).

    Source and errors: as :func:`kaiming_uniform`.

    Example:
        >>> import autoq as aq
        >>> bool(abs(kaiming_normal((200, 50), aq.Generator(0)).std() - 0.2) < 0.01)
        True
    """
    return normal(shape, rng, 0.0, _gain(nonlinearity) / math.sqrt(_fans(shape)[0]), dtype)


def xavier_uniform(
    shape: tuple[int, ...],
    rng: Generator | None = None,
    nonlinearity: str = "linear",
    dtype: Any = np.float32,
) -> np.ndarray:
    """Uniform values of standard deviation gain · √(2 / (fan_in + fan_out)), for ``shape`` (out, in, ...).

    Source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks",
    equation 16. Errors: as :func:`kaiming_uniform`.

    Example:
        >>> import autoq as aq
        >>> bool(abs(xavier_uniform((6, 6), aq.Generator(0))).max() <= 0.5 ** 0.5)
        True
    """
    bound = math.sqrt(3.0) * _xavier_std(shape, nonlinearity)
    return uniform(shape, rng, -bound, bound, dtype)


def xavier_normal(
    shape: tuple[int, ...],
    rng: Generator | None = None,
    nonlinearity: str = "linear",
    dtype: Any = np.float32,
) -> np.ndarray:
    """Normal values of standard deviation gain · √(2 / (fan_in + fan_out)), for ``shape`` (out, in, ...).

    Source and errors: as :func:`xavier_uniform`.

    Example:
        >>> import autoq as aq
        >>> bool(abs(xavier_normal((100, 100), aq.Generator(0)).std() - 0.1) < 0.005)
        True
    """
    return normal(shape, rng, 0.0, _xavier_std(shape, nonlinearity), dtype)


def _checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    lengths = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if any(not isinstance(n, int | np.integer) or n < 0 for n in lengths):
        raise ShapeError(
            f"init.{name}: shape {shape!r}.", "integer lengths of at least 0", "Correct the shape."
        )
    return lengths


def float_dtype(owner: str, dtype: Any) -> np.dtype[Any]:
    """The float dtype of starting values; a quantized weight is trained as floats (`weight_scheme=`).

    Raises:
        DTypeError: For a scheme, or a dtype that is no float.
    """
    found = as_dtype(dtype)
    if isinstance(found, QuantScheme) or found not in FLOATS:
        raise DTypeError(
            f"{owner}: dtype={dtype_name(found)}.",
            "float64, float32, float16, bfloat16",
            "Pass a float dtype; nn.Linear takes weight_scheme= for a quantized weight.",
        )
    return found


def checked_generator(owner: str, rng: Generator | None) -> Generator:
    """``rng`` if it is a generator; randomness without one is an error (S41).

    Raises:
        ArgumentError: Naming ``owner`` and what to pass.
    """
    if not isinstance(rng, Generator):
        raise ArgumentError(
            f"{owner}: rng is {rng!r}; nothing random runs without a generator.",
            "an aq.Generator",
            "Pass rng=aq.Generator(seed), with a seed of your choice.",
        )
    return rng


def _xavier_std(shape: tuple[int, ...], nonlinearity: str) -> float:
    fan_in, fan_out = _fans(shape)
    return _gain(nonlinearity) * math.sqrt(2.0 / (fan_in + fan_out))


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) < 2:
        raise ShapeError(
            f"init: a fan-based initializer was given shape {tuple(shape)}.",
            "(out, in) or (out, in, ...)",
            "Use init.zeros, init.uniform or init.normal for vectors.",
        )
    receptive = math.prod(shape[2:])
    return max(1, shape[1] * receptive), max(1, shape[0] * receptive)


def _gain(nonlinearity: str) -> float:
    if nonlinearity not in GAINS:
        raise ArgumentError(
            f"init: nonlinearity {nonlinearity!r}.", ", ".join(map(repr, GAINS)), "Pass one of these names."
        )
    return GAINS[nonlinearity]
