"""What a gradient through rounding is declared to be: the linear map E of each operation that encodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autoq.storage.layout import grid_shape

Array = np.ndarray[Any, np.dtype[Any]]
# From what went in at recording, the static arguments and what backward saves, to the map E of differences.
Estimator = Callable[[Sequence[Array], dict[str, Any], dict[str, Any]], Callable[..., Array]]


def straight_through(
    values: Sequence[Array], static: dict[str, Any], saved: dict[str, Any]
) -> Callable[..., Array]:
    """The identity; under ``ste="clip"`` 0 where the value saturated (S20)."""
    kept = saved.get("kept")
    if kept is None:
        return lambda change, *rest: change
    mask = np.unpackbits(kept, count=values[0].size).reshape(values[0].shape).astype(np.float64)
    return lambda change, *rest: mask * change


def learned_step(
    values: Sequence[Array], static: dict[str, Any], saved: dict[str, Any]
) -> Callable[..., Array]:
    """LSQ: the value passes where its code isn't an outermost one; the step by round(v) - v, else the code.

    Source: Esser et al., "Learned Step Size Quantization", 2020, equations 3 and 5, section 2.2.
    """
    x, step = values
    scheme, element = static["scheme"], static["scheme"].element_format
    low, high = element.minimum / element.step, element.maximum / element.step
    v = x / (_spread(step, x, scheme) * element.step)
    inside = (v > low) & (v < high)
    slope = np.where(inside, np.rint(v) - v, np.clip(v, low, high)) * element.step
    counted = _gathered(np.ones(x.shape), step, x, scheme)
    factor = static["factor"]
    scale = 1 / np.sqrt(counted * high) if factor is None else np.full(step.shape, float(factor))
    return lambda dx, ds: inside * _given(dx) + slope * _spread(scale * _given(ds), x, scheme)


def learned_clip(
    values: Sequence[Array], static: dict[str, Any], saved: dict[str, Any]
) -> Callable[..., Array]:
    """PACT with both signs: the value passes below the level; beyond it, the level does, with its sign.

    Source: Choi et al., "PACT: Parameterized Clipping Activation for Quantized Neural Networks", 2018.
    """
    x, level = values
    scheme, element = static["scheme"], static["scheme"].element_format
    top = _spread(level, x, scheme)
    ratio = element.minimum / element.maximum
    slope = np.where(x >= top, 1.0, np.where(x <= top * ratio, ratio, 0.0))
    return lambda dx, dl: np.where(slope == 0, _given(dx), 0.0) + slope * _spread(_given(dl), x, scheme)


def _given(change: Any) -> Any:
    return 0.0 if change is None else change


def _spread(blocks: Any, x: Array, scheme: Any) -> Array:
    """One value a block, at every value of the block."""
    extents = scheme.extents(x.ndim)
    grid = grid_shape(x.shape, extents)
    wide = np.broadcast_to(np.asarray(blocks, np.float64), grid)
    for axis, (n, extent) in enumerate(zip(x.shape, extents, strict=True)):
        wide = np.take(wide, np.arange(n) // (extent or max(n, 1)), axis)
    return wide


def _gathered(values: Array, blocks: Array, x: Array, scheme: Any) -> Array:
    """How many values each learned number stands for: the transpose of spreading, applied to ones."""
    units = np.eye(max(blocks.size, 1)).reshape(-1, *blocks.shape)
    return np.array([np.sum(values * _spread(unit, x, scheme)) for unit in units]).reshape(blocks.shape)


ESTIMATORS: dict[str, Estimator] = {
    "quantize": straight_through,
    "quantize_learned_step": learned_step,
    "quantize_learned_clip": learned_clip,
}


def declare(name: str, estimator: Estimator) -> None:
    """Say what the gradient of an operation that encodes is declared to be.

    Args:
        name: The name of an op record of kind ``"cast"`` that returns packed values, or of one that rounds
            in its forward.
        estimator: ``estimator(values, static, saved)`` gives ``E``: the recorded operands, static arguments
            and residuals in; a linear function of the operands' changes out. For a learned step it is the
            estimator's own Jacobian.

    Example:
        >>> declare("my_cast", straight_through)
        >>> del ESTIMATORS["my_cast"]
    """
    ESTIMATORS[name] = estimator
