"""Normalization of channels, on axis 1: over the batch with running statistics, and over groups."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from autoq.context import using
from autoq.devices import on_gpu, using_device
from autoq.errors import ArgumentError, ShapeError
from autoq.memory import within_memory
from autoq.nn.init import ones, zeros
from autoq.nn.module import Module
from autoq.nn.setting import dtype_setting, setting_text
from autoq.nn.state import put
from autoq.nn.weighted import check_size, described
from autoq.tape.apply import apply, as_operand, decoded, untracked
from autoq.tape.beside import check_beside
from autoq.tape.parameter import Parameter
from autoq.tape.tensor import Tensor
from autoq.types import float32, float64


class _BatchNorm(Module):
    """What the batch norms share; they differ in the rank they take."""

    ranks: ClassVar[tuple[int, ...]]
    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, channels: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, *,
        signal: Any = None, dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        check_size(name, "channels", channels)
        if not 0 <= momentum <= 1:
            raise ArgumentError(
                f"{name}: momentum is {momentum!r}.", "0 to 1", "Pass the share of each new batch."
            )
        self.eps, self.momentum, self.signal = eps, momentum, dtype_setting(signal)
        self.weight = Parameter(ones((channels,), dtype)) if affine else None
        self.bias = Parameter(zeros((channels,), dtype)) if affine else None
        self.register_buffer("running_mean", zeros((channels,)))
        self.register_buffer("running_var", ones((channels,)))

    def forward(self, x: Any) -> Any:
        """``x: (n, channels, ...)`` to the same shape.

        Raises:
            ShapeError: If ``x`` has another rank, or in training only one value a channel.
        """
        x = as_operand(x)
        if x.ndim not in self.ranks:
            allowed = " or ".join(str(rank) for rank in self.ranks)
            raise ShapeError(
                f"{type(self).__name__}: x is {x.shape}.", f"{allowed} axes", "Put the channels on axis 1."
            )
        mean = variance = None
        if self.training:
            self._observe(x)
        else:
            mean, variance = self.running_mean, self.running_var
        return apply(
            "batch_norm", x, mean, variance, self.weight, self.bias, eps=self.eps, out_dtype=self.signal
        )

    def describe(self) -> str:
        """The channels and what differs from the defaults."""
        momentum = "" if self.momentum == 0.1 else f"momentum={self.momentum}"
        affine = "" if self.weight is not None else "affine=False"
        return described(str(self.running_mean.shape[0]), momentum, affine, setting_text(signal=self.signal))

    @within_memory("batch_norm")
    def _observe(self, x: Tensor) -> None:
        """Move the running statistics towards those of a batch; the variance is the unbiased estimate."""
        count = x.size // max(x.shape[1], 1)
        if count < 2 or x.shape[1] != self.running_mean.shape[0]:
            raise ShapeError(
                f"{type(self).__name__} in training: x is {x.shape}.",
                f"{self.running_mean.shape[0]} channels on axis 1, at least two values of each",
                "Use a larger batch, or .eval() for the running statistics.",
            )
        names = ("x", "running_mean", "running_var", "weight", "bias")
        check_beside(type(self).__name__, x, *[getattr(self, name) for name in names[1:]], names=names)
        values = decoded(x, float64 if x.dtype == float64 else float32)
        axes = (0, *range(2, x.ndim))
        with using_device(x.device), using(grad=False):
            self._move(self.running_mean, np.mean(values, axis=axes))
            self._move(self.running_var, np.var(values, axis=axes, ddof=1))

    def _move(self, kept: Tensor, new: Any) -> None:
        # By operations, through which a captured step learns that it changes the tensor.
        old: Any = kept.astype(new.dtype)
        moved = old + (untracked(new) - old) * self.momentum
        if on_gpu(kept.value):
            kept[...] = moved.astype(kept.dtype)  # in the memory that captured steps know
        else:
            put(kept, moved.astype(kept.dtype).value)


class BatchNorm1d(_BatchNorm):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` of each channel (Ioffe & Szegedy 2015).

    In training with the statistics of the batch, which are averaged for later; in ``eval()`` with those
    averages, the buffers ``running_mean`` and ``running_var``.

    Args:
        channels: Axis 1 of the input, ``x: (n, channels)`` or ``(n, channels, length)``.
        eps: Added to the variance.
        momentum: Share of each new batch in the averages.
        affine: Whether a weight and a bias are trained.
        signal: Dtype or scheme of the output, as a persistent ``out_dtype`` (S49); None follows the input.
        dtype: Float dtype of the parameters; the averages are float32.

    Raises:
        ArgumentError: For less than one channel, or a momentum outside 0 to 1.

    Example:
        >>> import autoq as aq
        >>> norm = BatchNorm1d(2)
        >>> norm(aq.tensor([[1.0, 5.0], [3.0, 9.0]])).numpy().round(3)
        array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
        >>> norm.running_mean.numpy().round(3)
        array([0.2, 0.7], dtype=float32)
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """:class:`BatchNorm1d` for ``x: (n, channels, height, width)``.

    Example:
        >>> import autoq as aq
        >>> BatchNorm2d(3, signal=aq.mxfp8)
        BatchNorm2d(3, signal=mxfp8)
    """

    ranks = (4,)


class GroupNorm(Module):
    """Groups of a sample's channels with mean 0 and variance 1 (Wu & He 2018), times a weight, plus a bias.

    Args:
        groups: How many groups; divides ``channels``. As many as channels is an instance norm.
        channels: Axis 1 of the input, ``x: (n, channels, ...)``.
        eps: Added to the variance.
        affine: Whether a weight and a bias are trained.
        signal: Dtype or scheme of the output, as a persistent ``out_dtype`` (S49); None follows the input.
        dtype: Float dtype of the parameters.

    Raises:
        ArgumentError: For a size below 1, or channels that aren't whole groups.

    Example:
        >>> import autoq as aq
        >>> GroupNorm(2, 4)(aq.tensor([[1.0, 3.0, 10.0, 14.0]])).numpy().round(3)
        array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    def __init__(
        self, groups: int, channels: int, eps: float = 1e-5, affine: bool = True, *, signal: Any = None,
        dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        check_size("GroupNorm", "groups", groups)
        check_size("GroupNorm", "channels", channels)
        if channels % groups:
            raise ArgumentError(
                f"GroupNorm: {channels} channels in {groups} groups.", "whole groups", "Choose a divisor."
            )
        self.groups, self.channels, self.eps = groups, channels, eps
        self.signal = dtype_setting(signal)
        self.weight = Parameter(ones((channels,), dtype)) if affine else None
        self.bias = Parameter(zeros((channels,), dtype)) if affine else None

    def forward(self, x: Any) -> Any:
        """``x: (n, channels, ...)`` to the same shape."""
        return apply(
            "group_norm", x, self.weight, self.bias, groups=self.groups, eps=self.eps, out_dtype=self.signal
        )

    def describe(self) -> str:
        """Groups, channels and what differs from the defaults."""
        affine = "" if self.weight is not None else "affine=False"
        return described(f"{self.groups}, {self.channels}", affine, setting_text(signal=self.signal))
