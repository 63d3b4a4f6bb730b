"""Convolutions as modules; their weight may be trained through a quantization scheme, as a Linear's may."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from autoq.errors import ArgumentError
from autoq.nn.init import uniform
from autoq.nn.weighted import Weighted, check_size, described
from autoq.ops.windows import Padding, Sizes, per_axis
from autoq.random import Generator
from autoq.tape.apply import apply
from autoq.tape.parameter import Parameter


class _Convolution(Weighted):
    """What the convolutions share: sizes, starting values, the weight as a matrix."""

    op: ClassVar[str]
    rank: ClassVar[int]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
        padding: Padding = 0, dilation: Sizes = 1, groups: int = 1, bias: bool = True, *,
        weight_scheme: Any = None, rng: Generator | None = None, out_dtype: Any = None,
        dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        for what, size in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            check_size(name, what, size)
        if in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{name}: {in_channels} and {out_channels} channels in {groups} groups.",
                "groups that divide both.",
                "Choose a common divisor.",
            )
        super().__init__(weight_scheme=weight_scheme, rng=rng, out_dtype=out_dtype)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, self.rank, 1)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        shape = self._weight_shape()
        bound = 1.0 / math.sqrt(math.prod(shape[1:]))
        self.weight = Parameter(uniform(shape, rng, -bound, bound, dtype))
        self.bias = Parameter(uniform((out_channels,), rng, -bound, bound, dtype)) if bias else None

    def forward(self, x: Any) -> Any:
        """``x: (n, in_channels, ...)`` to ``(n, out_channels, ...)``."""
        return apply(
            self.op, x, self._weight(), self.bias, kernel_size=self.kernel_size, out_dtype=self.out_dtype,
            **self._placement(),
        )  # fmt: skip

    def describe(self) -> str:
        """Sizes and what differs from the defaults."""
        given = {**self._placement(), "bias": self.bias is not None}
        usual = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1, "bias": True}
        texts = [f"{key}={value!r}" for key, value in given.items() if value != usual[key]]
        kernel = self.kernel_size if len(set(self.kernel_size)) > 1 else self.kernel_size[0]
        sizes = f"{self.in_channels}, {self.out_channels}, {kernel}"
        return described(sizes, *texts, self.settings())

    def _placement(self) -> dict[str, Any]:
        """How the filters lie on the input."""
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def _master(self) -> Any:
        """One row a filter, so that blocks run along what is added up."""
        return self.weight.reshape(self.weight.shape[0], math.prod(self.weight.shape[1:]))


class Conv1d(_Convolution):
    """``conv1d``: windows along the last axis times filters, plus a bias; one op.

    With ``weight_scheme=`` the weight is fake-quantized as that of :class:`Linear`, as the matrix
    ``(out_channels, in_channels / groups · k)``: blocks run along the values that a filter adds up.

    Args:
        in_channels: Axis 1 of the input, ``x: (n, in_channels, length)``.
        out_channels: Axis 1 of the output.
        kernel_size: Values of a filter along the last axis.
        stride: Distance between windows.
        padding: Zeros on either side, ``"same"`` or ``"valid"``.
        dilation: Distance between the values of a filter.
        groups: How many parts of the channels are convolved separately.
        bias: Whether a trained bias is added.
        weight_scheme: Scheme of the weight in the forward, or None for the float weight itself.
        rng: Generator of the starting values, uniform in ±1/√(values of a filter); also of the draws of a
            scheme that rounds stochastically.
        out_dtype: Dtype or scheme of the output; None follows the input (S5–S9).
        dtype: Float dtype of the parameters.

    Raises:
        ArgumentError: Without a generator, for a size below 1, or for groups that don't divide the channels.

    Example:
        >>> import autoq as aq
        >>> layer = aq.nn.Conv1d(3, 8, 5, padding="same", rng=aq.Generator(0))
        >>> layer
        Conv1d(3, 8, 5, padding='same')
        >>> layer(aq.zeros((2, 3, 10))).shape
        (2, 8, 10)
    """

    op, rank = "conv1d", 1


class Conv2d(_Convolution):
    """``conv2d``: windows over the last two axes times filters, plus a bias; one op.

    Args:
        in_channels: Axis 1 of the input, ``x: (n, in_channels, height, width)``.
        kernel_size: Extents of a filter: a number, or one an axis; so are stride, padding and dilation.

    The other arguments and errors are those of :class:`Conv1d`.

    Example:
        >>> import autoq as aq
        >>> layer = aq.nn.Conv2d(3, 8, 3, stride=2, weight_scheme=aq.mxfp8, rng=aq.Generator(0))
        >>> layer
        Conv2d(3, 8, 3, stride=2, weight_scheme=mxfp8)
        >>> layer(aq.zeros((2, 3, 9, 9))).shape
        (2, 8, 4, 4)
        >>> layer.packed_weight().shape
        (8, 27)
    """

    op, rank = "conv2d", 2


class ConvTranspose2d(_Convolution):
    """``conv_transpose2d``: filters laid over the output, weighted by the input, plus a bias; one op.

    With ``weight_scheme=`` the weight is fake-quantized as the matrix
    ``(in_channels, out_channels / groups · kh · kw)``: one row an input channel.

    Args:
        in_channels: Axis 1 of the input, ``x: (n, in_channels, height, width)``.
        padding: How many values are cut from either end of each axis.
        output_padding: Values more at the end of each axis, less than the stride.

    The other arguments and errors are those of :class:`Conv2d`.

    Example:
        >>> import autoq as aq
        >>> layer = aq.nn.ConvTranspose2d(8, 3, 2, stride=2, rng=aq.Generator(0))
        >>> layer
        ConvTranspose2d(8, 3, 2, stride=2)
        >>> layer(aq.zeros((2, 8, 4, 4))).shape
        (2, 3, 8, 8)
    """

    op, rank = "conv_transpose2d", 2

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
        padding: Padding = 0, output_padding: Sizes = 0, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, **options)
        self.output_padding = output_padding

    def _placement(self) -> dict[str, Any]:
        return {**super()._placement(), "output_padding": self.output_padding}

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.in_channels, self.out_channels // self.groups, *self.kernel_size)
