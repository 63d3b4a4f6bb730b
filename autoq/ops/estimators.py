"""Estimators that learn: a quantization whose step (LSQ) or clipping level (PACT) gets a gradient (S25)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from autoq.devices import beside, on_gpu, two_devices
from autoq.errors import ArgumentError, DTypeError, SchemeError, ShapeError
from autoq.ops.blocks import spread_blocks
from autoq.random import Draw
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.layout import grid_shape
from autoq.tape.apply import apply, plain, untracked
from autoq.tape.beside import held
from autoq.tape.casts import Estimator
from autoq.tape.op import Op, register
from autoq.tape.tensor import AutodiffQTensor, Tensor
from autoq.tape.unbroadcast import unbroadcast
from autoq.types import dtype_name

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LearnedStep(Estimator):
    """Straight through the rounding, with a step that is learned; made by ``aq.learned_step``.

    Attributes:
        step: The scale: a positive float tensor that broadcasts to the block grid.
        factor: What the step's gradient is multiplied by; None for 1 / sqrt(n * qmax).
    """

    step: Tensor
    factor: float | None = None

    def encode(self, x: Tensor, scheme: QuantScheme, draw: Draw | None) -> AutodiffQTensor:
        """Encode with the step as the scale of every block that it broadcasts to."""
        if scheme.element_format.kind != "integer":
            raise SchemeError(
                f"learned_step in {scheme.name}, whose values are not equally far apart.",
                "schemes of integer elements",
                "Use an integer scheme such as aq.int8, or aq.learned_clip.",
            )
        if draw is not None:
            raise ArgumentError(
                f"learned_step with rounding={scheme.rounding!r}.",
                "rounding='nearest'",
                "Round to nearest: the step's gradient is that of the nearest code.",
            )
        _check("learned_step", self.step, x, scheme)
        made = apply("quantize_learned_step", x, self.step, scheme=scheme, factor=self.factor)
        return made  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class LearnedClip(Estimator):
    """Straight through below a clipping level that is learned; made by ``aq.learned_clip``.

    Attributes:
        level: The largest magnitude: a positive float tensor that broadcasts to the block grid.
    """

    level: Tensor

    def encode(self, x: Tensor, scheme: QuantScheme, draw: Draw | None) -> AutodiffQTensor:
        """Encode with the scales that put the scheme's largest value at the level."""
        _check("learned_clip", self.level, x, scheme)
        made = apply("quantize_learned_clip", x, self.level, scheme=scheme, draw=draw)
        return made  # type: ignore[return-value]


def learned_step(step: Tensor, factor: float | None = None) -> LearnedStep:
    """An estimator for ``quantize(ste=)`` that learns the step of an integer scheme (LSQ).

    The codes are those of ``scales=step``. With v = x / step, clipped where it leaves the codes' range, the
    gradient by ``x`` passes inside the range and is 0 outside; that by ``step`` gathers round(v) - v inside
    and the outermost code outside, times 1 / sqrt(n * qmax) for the n values of a step.

    Args:
        step: Positive floats of a shape that broadcasts to the block grid, a parameter usually: ``()`` for
            one step, ``(rows, 1)`` for one a row. A good start is 2 * mean(abs(x)) / sqrt(qmax). Other
            numbers are an error at the quantization; on a GPU, which isn't waited for, they give NaN.
        factor: Takes the place of 1 / sqrt(n * qmax).

    Raises:
        DTypeError: A step that is no dense float tensor.

    Source: Esser et al., "Learned Step Size Quantization", 2020.

    Example:
        >>> import autoq as aq
        >>> step = aq.Parameter(0.5)
        >>> x = aq.tensor([0.6, -0.2, 9.0], requires_grad=True)
        >>> q = aq.quantize(x, aq.int4.replace(block=None), ste=learned_step(step, factor=1.0))
        >>> q.dequantize().sum().backward()
        >>> x.grad.tolist(), round(step.grad.item(), 4)
        ([1.0, 1.0, 0.0], 7.2)
    """
    return LearnedStep(_learnable("learned_step", step), factor)


def learned_clip(level: Tensor) -> LearnedClip:
    """An estimator for ``quantize(ste=)`` that learns where values are clipped (PACT, with both signs).

    The scale is level / qmax. The gradient by ``x`` passes where \\|x\\| < level and is 0 beyond; that by
    ``level`` gathers the cotangents of values at or above it, and those at or below the other end with the
    ratio of the two ends, -1 where the codes are symmetric.

    Args:
        level: Positive floats of a shape that broadcasts to the block grid, a parameter usually. Other
            numbers are an error at the quantization; on a GPU, which isn't waited for, they give NaN.

    Raises:
        DTypeError: A level that is no dense float tensor.

    Source: Choi et al., "PACT: Parameterized Clipping Activation for Quantized Neural Networks", 2018.

    Example:
        >>> import autoq as aq
        >>> level = aq.Parameter(1.0)
        >>> x = aq.tensor([0.3, 2.0, -5.0], requires_grad=True)
        >>> q = aq.quantize(x, aq.int4.replace(block=None), ste=learned_clip(level))
        >>> (q.dequantize() * aq.tensor([1.0, 10.0, 100.0])).sum().backward()
        >>> x.grad.tolist(), level.grad.item()
        ([1.0, 0.0, 0.0], -90.0)
    """
    return LearnedClip(_learnable("learned_clip", level))


def _learnable(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor) or not x._type.is_float or x._type.is_quantized:
        what = f"a {dtype_name(x.dtype)} tensor" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise DTypeError(
            f"{name} of {what}.", "a dense float tensor", "Make it one: aq.Parameter(0.1), for example."
        )
    return x


def _check(name: str, learned: Tensor, x: Tensor, scheme: QuantScheme) -> None:
    """Raise unless the learned tensor can give the scales of ``x``."""
    if scheme.scale != "f32" or scheme.tensor_scale:
        raise SchemeError(
            f"{name} in {scheme.name}, whose scales are {scheme.scale}.",
            "schemes with one level of f32 scales",
            "Use scheme.replace(scale='f32').",
        )
    if learned.device != x.device:
        raise two_devices(name, [held(learned), held(x)], ["the learned tensor", "x"])
    grid = grid_shape(x.shape, scheme.extents(x.ndim))
    try:
        fits = np.broadcast_shapes(learned.shape, grid) == grid
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{name}: shape {learned.shape} for the blocks of {scheme.name} on {x.shape}.",
            f"a shape that broadcasts to the block grid, {grid}",
            "Use shape () for one value for all, or scheme.replace(block=...) for other blocks.",
        )
    if learned.device != "cpu":
        return  # a look at the values would wait for the GPU: `_grid` makes those it can't take NaN
    values = learned.numpy()
    if not (np.isfinite(values) & (values > 0)).all():
        raise ArgumentError(
            f"{name}: a value of {values[~(np.isfinite(values) & (values > 0))].flat[0]}.",
            "positive finite numbers",
            "Lower its learning rate, or learn its logarithm and pass log_step.exp().",
        )


def _grid(learned: np.ndarray, x: Any, scheme: QuantScheme) -> np.ndarray:
    """The learned values as float32, one a block; on a GPU, where nobody looked at them, NaN for misfits."""
    learned = learned.astype(np.float32)
    if on_gpu(learned):
        learned = np.where((learned > 0) & np.isfinite(learned), learned, np.float32(np.nan))
    return np.broadcast_to(learned, grid_shape(x.shape, scheme.extents(x.ndim)))


def _stored(x: Any, scheme: QuantScheme, scales: np.ndarray, draw: Draw | None = None) -> QTensor:
    values = x.dequantize() if isinstance(x, QTensor) else x
    return QTensor.quantize(values, scheme, scales=scales, draw=draw)


def _quantize_step(x: Any, step: Any, *, scheme: QuantScheme, factor: float | None) -> QTensor:
    return _stored(x, scheme, _grid(step, x, scheme))


def _quantize_clip(x: Any, level: Any, *, scheme: QuantScheme, draw: Draw | None) -> QTensor:
    return _stored(x, scheme, _grid(level, x, scheme) / np.float32(scheme.element_format.maximum), draw)


def _array(x: Any) -> Any:
    """Values that a rule takes as constants, on their device."""
    return plain(x)


def _factor(array: Any, g: Any) -> Any:
    """An array that a rule multiplies a cotangent by: as a tensor where that one is, on the same device."""
    return untracked(array) if isinstance(g, Tensor) else array


def step_slopes(x: np.ndarray, step: np.ndarray, scheme: QuantScheme) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of a value on the learned grid by the value, and by its step (Esser et al., eq. 3 and 5).

    Example:
        >>> import autoq as aq
        >>> step_slopes(np.array([0.6, 9.0]), np.array(0.5), aq.int4.replace(block=None))
        (array([1., 0.]), array([-0.2,  7. ]))
    """
    element = scheme.element_format
    v = x / _spread(_grid(step, x, scheme), x.shape, scheme).astype(x.dtype)
    low, high = element.minimum, element.maximum
    inside = (v > low) & (v < high)
    rounded = np.rint(v / element.step) * element.step
    slope = np.where(inside, rounded - v, np.clip(v, low, high))
    return inside.astype(x.dtype), slope.astype(x.dtype)


def clip_slopes(x: np.ndarray, level: np.ndarray, scheme: QuantScheme) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of a clipped value by the value, and by the clipping level (Choi et al., eq. 3).

    Example:
        >>> import autoq as aq
        >>> clip_slopes(np.array([0.3, 2.0, -5.0]), np.array(1.0), aq.int4.replace(block=None))
        (array([1., 0., 0.]), array([ 0.,  1., -1.]))
    """
    high = _spread(_grid(level, x, scheme), x.shape, scheme).astype(x.dtype)
    ratio = scheme.element_format.minimum / scheme.element_format.maximum
    above, below = x >= high, x <= high * ratio
    slope = np.where(above, 1.0, np.where(below, ratio, 0.0))
    return (~(above | below)).astype(x.dtype), slope.astype(x.dtype)


def step_factors(x_shape: Shape, step_shape: Shape, scheme: QuantScheme) -> np.ndarray:
    """1 / sqrt(n * qmax) for the n values of each step, of the step's shape (Esser et al., section 2.2).

    Example:
        >>> import autoq as aq
        >>> bool(step_factors((4, 7), (), aq.int4.replace(block=None)) == 1 / np.sqrt(4 * 7 * 7))
        True
    """
    lengths = [
        np.diff(np.append(np.arange(0, n, e or max(n, 1)), n))
        for n, e in zip(x_shape, scheme.extents(len(x_shape)), strict=True)
    ]
    counts = reduce(np.multiply.outer, lengths, np.ones(()))
    element = scheme.element_format
    return 1 / np.sqrt(np.maximum(unbroadcast(counts, step_shape), 1) * (element.maximum / element.step))


def _step_x(F: Any, g: Any, x: Any, step: Any, scheme: QuantScheme) -> Any:
    return g * _factor(step_slopes(_array(x), _array(step), scheme)[0], g)


def _step_step(F: Any, g: Any, x: Any, step: Any, scheme: QuantScheme, factor: float | None) -> Any:
    x, step = _array(x), _array(step)
    slope = _factor(step_slopes(x, step, scheme)[1], g)
    total = F.sum_blocks(g * slope, extents=scheme.extents(x.ndim))
    factors = step_factors(x.shape, step.shape, scheme) if factor is None else np.asarray(factor)
    return total * _factor(beside(factors.astype(x.dtype), x), g)


def _clip_x(F: Any, g: Any, x: Any, level: Any, scheme: QuantScheme) -> Any:
    return g * _factor(clip_slopes(_array(x), _array(level), scheme)[0], g)


def _clip_level(F: Any, g: Any, x: Any, level: Any, scheme: QuantScheme) -> Any:
    x = _array(x)
    slope = _factor(clip_slopes(x, _array(level), scheme)[1], g)
    return F.sum_blocks(g * slope, extents=scheme.extents(x.ndim))


def _spread(grid: np.ndarray, shape: Shape, scheme: QuantScheme) -> np.ndarray:
    return spread_blocks(grid, extents=scheme.extents(len(shape)), shape=shape)


register(
    Op(
        "quantize_learned_step",
        _quantize_step,
        {"x": _step_x, "step": _step_step},
        kind="cast",
    )
)
register(
    Op(
        "quantize_learned_clip",
        _quantize_clip,
        {"x": _clip_x, "level": _clip_level},
        kind="cast",
    )
)
