"""Pooling and flattening as modules: no parameters, one op each."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from autoq.errors import ShapeError
from autoq.nn.module import Module
from autoq.nn.weighted import described
from autoq.ops.windows import Padding, Sizes
from autoq.tape.apply import apply, as_operand


class _Pool(Module):
    """What the pools over windows share."""

    op: ClassVar[str]

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Padding = 0) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Any) -> Any:
        """``x: (..., *sizes)`` to ``(..., *windows)``."""
        return apply(self.op, x, kernel_size=self.kernel_size, stride=self.stride, padding=self.padding)

    def describe(self) -> str:
        """The windows."""
        stride = "" if self.stride is None else f"stride={self.stride!r}"
        return described(str(self.kernel_size), stride, f"padding={self.padding!r}" if self.padding else "")


class MaxPool1d(_Pool):
    """The largest value of each window along the last axis.

    Args:
        kernel_size: Values in a window.
        stride: Distance between windows; None puts them side by side.
        padding: Places on either side that never win, at most half a kernel.

    Example:
        >>> import autoq as aq
        >>> MaxPool1d(2)(aq.tensor([[1.0, 4.0, 3.0, 2.0]])).tolist()
        [[4.0, 3.0]]
    """

    op = "max_pool1d"


class MaxPool2d(_Pool):
    """The largest value of each window over the last two axes.

    Args:
        kernel_size: Extents of a window: a number, or one an axis; so are stride and padding.
        stride: Distance between windows; None puts them side by side.
        padding: Places on either side that never win, at most half a kernel.

    Example:
        >>> import autoq as aq
        >>> MaxPool2d(2)
        MaxPool2d(2)
        >>> MaxPool2d(2)(aq.zeros((1, 3, 8, 6))).shape
        (1, 3, 4, 3)
    """

    op = "max_pool2d"


class _AvgPool(_Pool):
    """A mean, of which padding is a part or not."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Padding = 0,
        count_padding: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.count_padding = count_padding

    def forward(self, x: Any) -> Any:
        """``x: (..., *sizes)`` to ``(..., *windows)``."""
        return apply(
            self.op, x, kernel_size=self.kernel_size, stride=self.stride, padding=self.padding,
            count_padding=self.count_padding,
        )  # fmt: skip

    def describe(self) -> str:
        """The windows."""
        return described(super().describe(), "" if self.count_padding else "count_padding=False")


class AvgPool1d(_AvgPool):
    """The mean of each window along the last axis.

    Args:
        kernel_size: Values in a window.
        stride: Distance between windows; None puts them side by side.
        padding: Zeros on either side, at most half a kernel.
        count_padding: Whether the zeros count as values of the mean.

    Example:
        >>> import autoq as aq
        >>> AvgPool1d(2)(aq.tensor([[1.0, 4.0, 3.0, 2.0]])).tolist()
        [[2.5, 2.5]]
    """

    op = "avg_pool1d"


class AvgPool2d(_AvgPool):
    """The mean of each window over the last two axes.

    Args:
        kernel_size: Extents of a window: a number, or one an axis; so are stride and padding.
        stride: Distance between windows; None puts them side by side.
        padding: Zeros on either side, at most half a kernel.
        count_padding: Whether the zeros count as values of the mean.

    Example:
        >>> import autoq as aq
        >>> AvgPool2d((2, 3), stride=1)
        AvgPool2d((2, 3), stride=1)
        >>> AvgPool2d(2)(aq.zeros((1, 3, 8, 6))).shape
        (1, 3, 4, 3)
    """

    op = "avg_pool2d"


class AdaptiveAvgPool1d(Module):
    """The means of as many bins along the last axis as are asked for.

    Args:
        output_size: The number of bins.

    Example:
        >>> import autoq as aq
        >>> AdaptiveAvgPool1d(2)(aq.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist()
        [[1.5, 3.5]]
    """

    op: ClassVar[str] = "adaptive_avg_pool1d"

    def __init__(self, output_size: Sizes) -> None:
        self.output_size = output_size

    def forward(self, x: Any) -> Any:
        """``x: (..., *sizes)`` to ``(..., *output_size)``."""
        return apply(self.op, x, output_size=self.output_size)

    def describe(self) -> str:
        """The number of bins."""
        return str(self.output_size)


class AdaptiveAvgPool2d(AdaptiveAvgPool1d):
    """The means of as many bins over the last two axes as are asked for.

    Args:
        output_size: The number of bins, one for both axes or one an axis.

    Example:
        >>> import autoq as aq
        >>> AdaptiveAvgPool2d(1)(aq.zeros((2, 3, 8, 6))).shape
        (2, 3, 1, 1)
    """

    op = "adaptive_avg_pool2d"


class Flatten(Module):
    """All axes from ``start`` on merged into one; packed values are not decoded where blocks allow (S34).

    Args:
        start: The first axis that is merged.

    Example:
        >>> import autoq as aq
        >>> Flatten()(aq.zeros((2, 3, 4, 4))).shape
        (2, 48)
    """

    def __init__(self, start: int = 1) -> None:
        self.start = start

    def forward(self, x: Any) -> Any:
        """``x`` of at least ``start`` axes to ``start + 1`` axes.

        Raises:
            ShapeError: If ``x`` has fewer.
        """
        x = as_operand(x)
        if not 0 <= self.start <= x.ndim:
            raise ShapeError(
                f"Flatten: start={self.start} of shape {x.shape}.",
                "0 to the number of axes",
                "Correct start.",
            )
        return x.reshape((*x.shape[: self.start], math.prod(x.shape[self.start :])))

    def describe(self) -> str:
        """The first axis, if it isn't 1."""
        return "" if self.start == 1 else str(self.start)
