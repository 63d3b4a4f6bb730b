"""Softmax, normalization and dropout on GPUs: decoded, computed and encoded in one launch each."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.context import OBSERVERS, launched
from autoq.devices import beside, on_gpu
from autoq.kernels.cuda import rows
from autoq.kernels.cuda.chunks import can_encode
from autoq.kernels.cuda.dropout import dropout
from autoq.kernels.cuda.launch import SIMULATED, empty
from autoq.kernels.cuda.operand import FLOATS
from autoq.ops.on_device.elementwise import as_operand, new_packed
from autoq.recording import key_for_kernel
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.convert import nearest
from autoq.storage.inputs import is_float
from autoq.storage.plan import codec_of
from autoq.tape.accelerated import accelerate, accelerate_rule
from autoq.tape.op import Op
from autoq.types import float32


@accelerate("softmax", "log_softmax")
def softmax_rows(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Softmax, or its logarithm, along the last axis."""
    x, axis = as_floats(values[0]), static["axis"]
    if compute != float32 or not has_rows(x) or type(axis) is not int or axis not in (-1, len(x.shape) - 1):
        return NotImplemented
    mask = mask_beside(static.get("mask"), x)
    if mask is NotImplemented:
        return NotImplemented
    result = new_result(out, x.shape)
    done = rows.softmax(as_operand(x), as_operand(result), mask, op.name == "log_softmax")
    return finished("softmax", result) if done else NotImplemented


@accelerate_rule("softmax", "x")
def softmax_gradient(g: Any, x: Any, axis: int, mask: Any) -> Any:
    """The cotangent of ``x``, which is decoded where it is packed."""
    mask = mask_beside(mask, x)
    if not has_rows(x) or g.dtype != float32 or axis not in (-1, g.ndim - 1) or mask is NotImplemented:
        return NotImplemented
    result = empty(g.shape, float32)
    done = rows.softmax_gradient(as_operand(x), g, result, mask)
    return finished("softmax_gradient", result) if done else NotImplemented


@accelerate_rule("log_softmax", "x")
def log_softmax_gradient(g: Any, x: Any, axis: int) -> Any:
    """The cotangent of ``x``, which is decoded where it is packed."""
    if not has_rows(x) or g.dtype != float32 or axis not in (-1, g.ndim - 1):
        return NotImplemented
    result = empty(g.shape, float32)
    done = rows.softmax_gradient(as_operand(x), g, result, None, True)
    return finished("softmax_gradient", result) if done else NotImplemented


@accelerate("layer_norm", "rms_norm")
def norm_rows(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Layer or RMS normalization along the last axes."""
    x, affine = as_floats(values[0]), values[1:]
    count, eps = last_axes(static["axis"], x), static["eps"]
    if compute != float32 or not count or type(eps) is not float or not eps >= 0:
        return NotImplemented
    shape = x.shape[-count:]
    along = [vector(a, shape) for a in affine]
    if any(a is NotImplemented for a in along):
        return NotImplemented
    # Rows of several axes are no lines of blocks: they are encoded after.
    result = new_result(float32 if count > 1 and isinstance(out, QuantScheme) else out, x.shape)
    weight, bias = along if len(along) == 2 else (along[0], None)
    target = as_operand(result) if count == 1 else in_rows(result, count)
    done = rows.norm(in_rows(x, count), weight, bias, target, eps, op.name == "layer_norm")
    return finished("norm", result) if done else NotImplemented


def norm_gradient(centered: bool) -> Any:
    """The rule for ``x`` of layer or RMS normalization."""

    def rule(g: Any, x: Any, weight: Any, axis: Any, eps: Any) -> Any:
        count = last_axes(axis, x)
        along = vector(weight, x.shape[-count:]) if count else NotImplemented
        if along is NotImplemented or g.dtype != float32:
            return NotImplemented
        result = empty(g.shape, float32)
        arrays = in_rows(x, count), along, in_rows(g, count), in_rows(result, count)
        done = rows.norm_gradient(*arrays, float(eps), centered)
        return finished("norm_gradient", result) if done else NotImplemented

    return rule


def norm_weight_gradient(centered: bool) -> Any:
    """The rule for ``weight``, summed to its shape where that is the shape of the last axes."""

    def rule(g: Any, x: Any, weight_shape: tuple[int, ...], axis: Any, eps: Any) -> Any:
        count = last_axes(axis, x)
        if not count or weight_shape != x.shape[-count:] or g.dtype != float32:
            return NotImplemented
        result = empty(weight_shape, float32)
        arrays = in_rows(x, count), in_rows(g, count), result.reshape(-1)
        done = rows.norm_weight_gradient(*arrays, float(eps), centered)
        return finished("norm_weight_gradient", result) if done else NotImplemented

    return rule


for _name, _centered in (("layer_norm", True), ("rms_norm", False)):
    accelerate_rule(_name, "x")(norm_gradient(_centered))
    accelerate_rule(_name, "weight")(norm_weight_gradient(_centered))


@accelerate("dropout")
def dropout_rows(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Dropout, of as many values as the draw's numbers."""
    (x,) = values
    rate = static["rate"]
    if compute != float32 or not has_rows(x) or type(rate) not in (int, float) or not 0 <= rate < 1:
        return NotImplemented
    result = new_result(out, x.shape)
    done = dropout(as_operand(x), as_operand(result), float(rate), key_for_kernel(static["draw"]))
    return finished("dropout", result) if done else NotImplemented


@accelerate_rule("dropout", "x")
def dropout_gradient(g: Any, rate: Any, draw: Any) -> Any:
    """The cotangent with the same draw."""
    return dropout_rows(None, (g,), {"rate": rate, "draw": draw}, float32, g.dtype)  # type: ignore[arg-type]


def has_rows(x: Any) -> bool:
    """Whether kernels may read an operand: a packed tensor or an array of floats on a GPU, with an axis."""
    if x.__class__ is QTensor:
        return bool(x.shape)
    return (on_gpu(x) or SIMULATED) and x.ndim > 0 and is_float(x.dtype, FLOATS)


def last_axes(axis: Any, x: Any) -> int:
    """How many of the last axes are meant; 0 for others, and for what the op's forward refuses."""
    given = axis if isinstance(axis, tuple) else (axis,)
    if not has_rows(x) or any(type(a) is not int for a in given):
        return 0
    ndim = len(x.shape)
    axes = sorted(a % ndim if -ndim <= a < ndim else -1 for a in given)
    return len(axes) if axes == list(range(ndim - len(axes), ndim)) else 0


def as_floats(x: Any) -> Any:
    """An operand, truth values and integers as float32: they are computed as those are, by one kernel."""
    whole = x.__class__ is not QTensor and getattr(x, "dtype", float32).kind in "biu"
    return x.astype(float32) if whole else x


def in_rows(x: Any, count: int) -> Any:
    """An operand whose last ``count`` axes are one; of several axes packed ones are decoded."""
    if count == 1:
        return as_operand(x)
    x = x.dequantize() if x.__class__ is QTensor else x
    return x.reshape(*x.shape[:-count], -1)


def vector(a: Any, shape: tuple[int, ...]) -> Any:
    """A weight or bias as an array of one axis; NotImplemented where it hasn't the shape of the last axes."""
    if a is None:
        return None
    if getattr(a, "shape", ()) != shape or not has_rows(a):
        return NotImplemented
    return (a.dequantize() if a.__class__ is QTensor else a).reshape(-1)


def mask_beside(mask: Any, x: Any) -> Any:
    """A mask as an array of bools beside the operand; NotImplemented where it doesn't broadcast to it."""
    if mask is None:
        return None
    found = beside(mask, x.words if x.__class__ is QTensor else x)
    fits = found.ndim <= len(x.shape) and all(
        n in (1, m) for n, m in zip(reversed(found.shape), reversed(x.shape), strict=False)
    )
    return (found if found.dtype == np.bool_ else found != 0) if fits else NotImplemented


def new_result(out: Any, shape: tuple[int, ...]) -> Any:
    """Where a result goes: a QTensor that rows are encoded to, else an array, encoded or cast by others."""
    if isinstance(out, QuantScheme):
        scheme = out.innermost(len(shape))
        fits = bool(scheme.block) and can_encode(codec_of(nearest(scheme)), scheme.block or ())
        packed = new_packed(out, shape) if fits and 0 not in shape else None
        return empty(shape, float32) if packed is None else packed
    return empty(shape, out if out.name in FLOATS else float32)


def finished(name: str, result: Any) -> Any:
    """The result, once observers know of the launch."""
    if OBSERVERS:
        launched(name, result.size)
    return result
