"""Weighted: what all modules share whose weight may be trained through a quantization scheme."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from autoq.context import using
from autoq.errors import ArgumentError
from autoq.nn.init import checked_generator
from autoq.nn.module import Module
from autoq.nn.setting import dtype_setting, scheme_setting, setting_text
from autoq.random import Generator
from autoq.storage.qtensor import QTensor
from autoq.tape.parameter import Parameter
from autoq.types import dtype_name


class Weighted(Module):
    """Base of modules with a ``weight`` that is fake-quantized where they have a ``weight_scheme``.

    A float master weight is trained, every forward quantizes it and computes with exactly the numbers of
    :meth:`packed_weight`; the gradient passes straight through the rounding to the master (S20).

    Args:
        weight_scheme: Scheme of the weight in the forward, or None for the float weight itself.
        rng: Generator of the starting values, and of the draws of a scheme that rounds stochastically.
        out_dtype: Dtype or scheme of the output; None follows the input (S5–S9).

    Raises:
        ArgumentError: Without a generator.

    Example:
        >>> import autoq as aq
        >>> isinstance(aq.nn.Linear(4, 2, rng=aq.Generator(0)), Weighted)
        True
    """

    weight: Any

    def __init__(self, *, weight_scheme: Any, rng: Generator | None, out_dtype: Any) -> None:
        self.weight_scheme = scheme_setting(f"{type(self).__name__}: weight_scheme", weight_scheme)
        self.out_dtype = dtype_setting(out_dtype)
        self.rng = checked_generator(type(self).__name__, rng)

    def packed_weight(self) -> QTensor:
        """The weight as the forward uses it.

        Raises:
            ArgumentError: If the layer has no ``weight_scheme`` and its weight isn't packed.
        """
        with using(grad=False):
            value = self._weight().value
        if not isinstance(value, QTensor):
            raise ArgumentError(
                f"{type(self).__name__}.packed_weight: the weight is {dtype_name(value.dtype)}.",
                "a layer with a weight_scheme",
                "Build it with weight_scheme=, or set layer.weight_scheme = aq.mxfp8.",
            )
        return value

    def pack(self) -> Self:
        """A copy of the layer for inference: its weight is the packed one alone, the rest is shared.

        Raises:
            ArgumentError: If the layer has no ``weight_scheme``.

        Example:
            >>> import autoq as aq
            >>> layer = aq.nn.Linear(64, 10, weight_scheme=aq.int4, rng=aq.Generator(0)).pack()
            >>> layer, layer.weight.dtype == aq.int4
            (Linear(64, 10, weight=int4), True)
        """
        packed = copy.copy(self)
        packed.weight, packed.weight_scheme = Parameter(self.packed_weight()), None
        return packed

    def settings(self) -> str:
        """Schemes and dtypes that differ from the defaults, for ``describe``."""
        packed = self.weight.dtype if isinstance(self.weight.value, QTensor) else None
        return setting_text(weight=packed, weight_scheme=self.weight_scheme, out_dtype=self.out_dtype)

    def _master(self) -> Any:
        """The float weight in the shape in which it is quantized."""
        return self.weight

    def _weight(self) -> Any:
        """The weight of one forward."""
        scheme = self.weight_scheme
        if scheme is None:
            return self.weight
        name = f"{type(self).__name__}: weight_scheme"
        return self._master().quantize(scheme_setting(name, scheme), rng=self.rng)


def check_size(owner: str, name: str, size: Any) -> None:
    """Raise unless a size is an integer of at least 1.

    Raises:
        ArgumentError: Naming ``owner`` and the argument.
    """
    if not isinstance(size, (int, np.integer)) or size < 1:
        raise ArgumentError(
            f"{owner}: {name} is {size!r}.", "an integer of at least 1", "Pass the size of the axis."
        )


def described(*parts: str) -> str:
    """The parts of a ``repr`` that say something, joined."""
    return ", ".join(part for part in parts if part)
