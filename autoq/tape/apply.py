"""Running an operation: resolve its type, decode, compute, encode once, record (S5-S16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.context import OBSERVERS, Context, current
from autoq.devices import (
    LIBRARIES,
    SEVERAL,
    array_namespace,
    is_array,
    memory_error,
    on_gpu,
    two_devices,
    using_device,
)
from autoq.errors import AutoqError, DeviceError, DTypeError, ShapeError, UndifferentiableError
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.inputs import converted
from autoq.storage.tiles import map_tiles
from autoq.tape.accelerated import forward_on_device
from autoq.tape.beside import as_array, beside_arrays, check_beside, one_device, operand_names, placed
from autoq.tape.node import Node
from autoq.tape.op import REGISTRY, Op
from autoq.tape.plan import Plan, make_plan
from autoq.tape.refusal import REFUSALS, check_broadcast, refusal, with_dtypes
from autoq.types import INHIBIT, TensorType, as_dtype, bool_, float32, float64

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor

TILED_FROM = 1 << 16  # below one tile, decoding whole operands costs less than tiling them

_plans: dict[Any, Plan] = {}


def apply(op: Op | str, *operands: Any, out_dtype: Any = None, **static: Any) -> Tensor:
    """Run an op on tensors, arrays and numbers.

    Args:
        op: The record, or its name in the registry.
        operands: Tensors, NumPy arrays (copied, as by ``aq.tensor``), numbers; None for an optional operand.
        out_dtype: Overrides the resolved dtype for this call (S14).
        static: The op's static arguments.

    Raises:
        DTypeError: An operand that is no number, array or tensor.
        ShapeError: Operands that don't broadcast, axes out of range.
        ResolutionError: Disagreeing dtypes under strict resolution.

    Example:
        >>> import autoq as aq
        >>> apply("add", aq.tensor([1.0, 2.0]), 1)
        tensor([2. 3.], float32)
    """
    return run(REGISTRY[op] if isinstance(op, str) else op, operands, static, out_dtype)


def run(op: Op, operands: tuple[Any, ...], static: dict[str, Any], out_dtype: Any) -> Tensor:
    """``apply`` of a record; operands and static arguments may still be arrays, numbers and tensors."""
    chosen: Any = None
    if static:
        chosen = {name: x for name, x in static.items() if placed(x)} if LIBRARIES else None
        for name, value in static.items():
            if isinstance(value, _CONTAINERS):
                static[name] = plain(value)
    if op.defaults:
        static = {**op.defaults, **static}
    given = operands
    for x in operands:
        if not isinstance(x, _Tensor):
            operands = _as_operands(op, operands)
            break
    if chosen:
        names = (*operand_names(op, operands), *chosen)
        check_beside(op.name, *operands, *chosen.values(), names=names)
    try:
        out_dtype = None if out_dtype is None else as_dtype(out_dtype)
        if OBSERVERS:
            observer = current().observer
            if observer is not None:
                with using_device(one_device(op, operands) if SEVERAL and on_device(operands) else "cpu"):
                    return observer.op(_proceed, op, operands, static, out_dtype)
        if SEVERAL and on_device(operands):
            with using_device(one_device(op, operands)):
                return _RUN[op.kind](op, operands, static, out_dtype)
        return _RUN[op.kind](op, operands, static, out_dtype)
    except AutoqError as error:
        if given is not operands and isinstance(error, DeviceError):
            raise beside_arrays(error, op, given, operands) from None
        raise
    except MemoryError as error:
        raise memory_error(op.name, error) from error
    except REFUSALS as error:
        raise refusal(op, operands, static, error) from error


def _proceed(op: Op, operands: tuple[Any, ...], static: dict[str, Any], out_dtype: Any) -> Tensor:
    return _RUN[op.kind](op, operands, static, out_dtype)


def _as_operands(op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors, numbers and None, at least one tensor; of a sequence of operands tensors alone."""
    if op.variadic:
        return tuple([x if isinstance(x, _Tensor) else _make_tensor(x) for x in operands])
    inputs = [as_operand(x) for x in operands]
    if inputs and not any(isinstance(x, _Tensor) for x in inputs):
        inputs[0] = _make_tensor(inputs[0])
    return tuple(inputs)


def binary(name: str, a: Any, b: Any) -> Tensor:
    """``apply`` for the arithmetic operators, short where both operands are float32 or both float64."""
    if a.__class__ is _AutodiffTensor:
        found = a._type
        if found.native and not OBSERVERS and (not LIBRARIES or a._value.__class__ is np.ndarray):
            if b.__class__ is _AutodiffTensor:
                if b._type is found:
                    return _native(REGISTRY[name], a, b, a._value, b._value, found)
            elif b.__class__ is float or b.__class__ is int:
                return _native(REGISTRY[name], a, b, a._value, b, found)
    return run(REGISTRY[name], (a, b), _NO_STATICS, None)


def _native(op: Op, a: Any, b: Any, x: Any, y: Any, out_type: TensorType) -> Tensor:
    """An element-wise op on operands of one native type: nothing to resolve, decode or encode."""
    try:
        value = op.forward(x, y)
    except REFUSALS as error:
        if on_gpu(y):
            raise two_devices(op.name, [x, y], op.operands) from None
        check_broadcast(op, [x, y])
        raise refusal(op, (a, b), _NO_STATICS, error) from error
    if value.__class__ is not np.ndarray:
        value = np.asarray(value)
    node = None
    if (a._node is not None or (b.__class__ is _AutodiffTensor and b._node is not None)) and current().grad:
        node = Node(op, (a, b), _NO_STATICS, out_type.gradient, out_type, value.shape)
    return _AutodiffTensor(value, out_type, node)


_NO_STATICS: dict[str, Any] = {}


def as_operand(x: Any) -> Any:
    """A tensor, a Python number or None; arrays and lists become tensors."""
    if isinstance(x, _Tensor):
        return x
    if x is None or type(x) in (float, int, bool):
        return x
    if isinstance(x, np.generic):
        if isinstance(x, np.complexfloating):
            return _no_complex(x)
        return x.item() if isinstance(x, np.number | np.bool_) else _make_tensor(x)
    return _make_tensor(x)


def as_tensor(x: Any) -> Any:
    """A tensor; arrays, lists and numbers become one."""
    x = as_operand(x)
    return x if isinstance(x, _Tensor) else _make_tensor(x)


def plain(value: Any) -> Any:
    """A static argument with tensors in it, as indices or labels, turned into arrays on their device."""
    if isinstance(value, _Tensor):
        if value.device == "cpu":
            return value.numpy()
        return value._value.dequantize() if type(value._value) is QTensor else value._value
    if type(value) in (tuple, list):
        return type(value)([plain(v) for v in value])
    return value


def _no_complex(x: Any) -> Any:
    raise DTypeError(
        f"a complex number {x!r}.", "real numbers", "Pass real and imaginary parts as two tensors."
    )


def decoded(x: Any, dtype: np.dtype[Any]) -> Any:
    """An operand's values as an array of that dtype; numbers and None stay."""
    if not isinstance(x, _Tensor):
        return x
    value = x._value
    if value.dtype is dtype:
        return value
    if value.__class__ is QTensor:
        return value.dequantize(dtype)
    return value if value.dtype == bool_ else converted(value, dtype)


def as_floats(x: Any, dtype: np.dtype[Any]) -> Any:
    """The same with bools as 0 and 1, of which NumPy's float functions would give float16."""
    if x.__class__ is _AutodiffTensor and x._value.dtype is dtype:
        return x._value  # short for the usual case
    array = decoded(x, dtype)
    return array.astype(dtype) if is_array(array) and array.dtype is bool_ else array


def encoded(value: np.ndarray, out_type: TensorType, reduced_last: bool = False) -> tuple[Any, TensorType]:
    """The computed array in its resolved type, with S13's exceptions applied."""
    dtype = out_type.dtype
    if isinstance(dtype, QuantScheme):
        if value.ndim == 0:
            return converted(value, float32), TensorType(float32, out_type.propagation)
        if reduced_last:
            return converted(value, float32), TensorType(float32, INHIBIT)
        packed = QTensor.encode(value, dtype.innermost(value.ndim))
        return packed, TensorType(packed.scheme, out_type.propagation)
    if value.dtype is not dtype:
        value = converted(value, dtype)
    return value, out_type


def run_float(op: Op, operands: tuple[Any, ...], static: dict[str, Any], out_dtype: Any) -> Tensor:
    """Run an op that computes floats: resolve its type, decode, compute, encode once, record (S5-S15)."""
    context = current()
    key: list[Any] = [op, out_dtype, context.resolution]
    values: list[Any] = []
    tracked = gpu = host = False
    for x in operands:
        if isinstance(x, _Tensor):
            value = x._value
            values.append(value)
            key.append(x._type if value.shape else (x._type,))
            tracked = tracked or x._node is not None
            if value.__class__ is QTensor and value._memory is None:
                value = value.words  # others are on a GPU, and their arrays aren't made for this
            there = value.__class__ is not np.ndarray and (value.__class__ is QTensor or on_gpu(value))
            gpu, host = gpu or there, host or not there
        else:
            values.append(x)
            key.append(x.__class__)
    if (plan := _plans.get(tuple(key))) is None:
        plan = _plans[tuple(key)] = make_plan(op, operands, out_dtype, context.resolution)
    out_type, compute, packed = plan
    if packed and not gpu and op.elementwise and _worth_tiling(operands):
        value, out_type = _tiled(op, values, static, out_type, compute)
    else:
        work = float64 if context.exact and op.accumulates and compute is float32 else compute
        try:
            if gpu and (host or SEVERAL):
                one_device(op, operands)
            value = forward_on_device(op, values, static, out_type.dtype, work) if gpu else NotImplemented
            if value is NotImplemented:
                decode = decoded if op.integers else as_floats
                value = computed(op, [decode(x, work) for x in operands], static, work)
        except ShapeError as error:
            raise with_dtypes(error, op, operands) from None
        if value.__class__ is QTensor:
            if value.scheme is not out_type.dtype:
                out_type = TensorType(value.scheme, out_type.propagation)
        elif packed or value.dtype is not out_type.dtype:
            reduced = packed and op.reduction and out_dtype is None and _reduced_last(operands[0], static)
            value, out_type = encoded(value, out_type, reduced)
    recorded = tracked and context.grad and out_type.is_float
    node = _recorded(op, operands, static, compute, out_type, value, "") if recorded else None
    out = (_AutodiffQTensor if value.__class__ is QTensor else _AutodiffTensor)(value, out_type, node)
    if op.sign_shows and node is not None:
        node.keep_output(out)
    return out


def computed(op: Op, arrays: list[Any], static: dict[str, Any], dtype: Any = float32) -> Any:
    """The forward function's result as an array; shapes that don't broadcast get a three-part error."""
    if not op.elementwise:
        xp = array_namespace(*arrays) if any(is_array(x) for x in arrays) else np
        arrays = [xp.asarray(x, dtype) if x.__class__ in (float, int, bool) else x for x in arrays]
    try:
        value = op.forward(tuple(arrays), **static) if op.variadic else op.forward(*arrays, **static)
    except ValueError as error:
        if op.elementwise and not isinstance(error, ShapeError):
            check_broadcast(op, arrays)
        raise
    return value if type(value) is np.ndarray else as_array(value)


def on_device(operands: tuple[Any, ...]) -> bool:
    """Whether an operand's values are on a GPU.

    Example:
        >>> import autoq as aq
        >>> on_device((aq.tensor([1.0], device="cpu"), 2.0))
        False
    """
    for x in operands:
        if isinstance(x, _Tensor):
            value = x._value
            if value.__class__ is not np.ndarray and on_gpu(getattr(value, "words", value)):
                return True
    return False


def _worth_tiling(operands: tuple[Any, ...]) -> bool:
    """Whether there are more values than a tile holds."""
    return max([x._value.size for x in operands if isinstance(x, _Tensor)]) > TILED_FROM


def _tiled(op: Op, values: list[Any], static: dict[str, Any], out_type: TensorType, compute: Any) -> Any:
    shape = check_broadcast(op, values)
    out = out_type.dtype
    if isinstance(out, QuantScheme):
        out = out.innermost(len(shape))
        out_type = TensorType(out, out_type.propagation)
    function = op.forward if not static else lambda *tiles: op.forward(*tiles, **static)
    return map_tiles(function, values, out, compute=compute, out_shape=shape), out_type


def _reduced_last(x: Any, static: dict[str, Any]) -> bool:
    """Whether a reduction with keepdims runs over the last axis (S13)."""
    if not static.get("keepdims"):
        return False
    axis, last = static.get("axis"), x._value.ndim - 1
    axes = range(last + 1) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    return any(a in (last, -1) for a in axes)


def output(
    op: Op,
    operands: tuple[Any, ...],
    static: dict[str, Any],
    value: Any,
    out_type: TensorType,
    compute: np.dtype[Any],
    context: Context,
    note: str = "",
) -> Tensor:
    """The result as a tensor, recorded if an operand is tracked and the result can carry a gradient."""
    node = None
    if context.grad and out_type.is_float:
        for x in operands:
            if isinstance(x, _Tensor) and x._node is not None:
                node = _recorded(op, operands, static, compute, out_type, value, note)
                break
    return (_AutodiffQTensor if type(value) is QTensor else _AutodiffTensor)(value, out_type, node)


def untracked(value: Any) -> Tensor:
    """A dense tensor off the tape around an array."""
    return _AutodiffTensor(value, TensorType(value.dtype))


def _recorded(
    op: Op, operands: Any, static: dict[str, Any], compute: Any, out_type: Any, value: Any, note: str
) -> Node:
    if not op.differentiable:
        raise UndifferentiableError(
            f"{op.name} of a tracked tensor: {op.vjp}",
            "untracked operands",
            "Call .detach() on the operand, or run it under aq.no_grad().",
        )
    if op.residual is not None:
        static = {**static, **op.residual(tuple(getattr(x, "_value", x) for x in operands), static)}
    return Node(op, operands, static, compute, out_type, value.shape, note)


_RUN = {"float": run_float, "loss": run_float}


def bind_kind(kind: str, run_kind: Any) -> None:
    """Tell this module what runs ops of a kind that is defined elsewhere."""
    _RUN[kind] = run_kind


# Filled in by tape.tensor, which defines the classes and imports this module.
_Tensor: Any = ()
_CONTAINERS: Any = ()
_AutodiffTensor: Any = None
_AutodiffQTensor: Any = None
_make_tensor: Any = None


def bind(base: Any, dense: Any, packed: Any, make: Any) -> None:
    """Tell this module the tensor classes; called once, by ``tape.tensor``."""
    global _Tensor, _AutodiffTensor, _AutodiffQTensor, _make_tensor, _CONTAINERS
    _Tensor, _AutodiffTensor, _AutodiffQTensor, _make_tensor = base, dense, packed, make
    _CONTAINERS = (base, tuple, list)
