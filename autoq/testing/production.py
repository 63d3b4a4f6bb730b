"""The production path against the float64 run: float32 and fused, with the codes of the float64 run forced.

A float32 result that lies beside the middle between two codes may take the other one, and everything after
it differs. So each encode of the production run is compared with the recorded one, up to what float32 may
do, and then replaced by it; what is left to compare are outputs and gradients at float32 tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autoq.context import Observer, observing, using
from autoq.devices import beside, is_array, to_device
from autoq.storage import QTensor
from autoq.tape.beside import held
from autoq.tape.gradient import walk
from autoq.tape.node import LEAF
from autoq.tape.op import Op
from autoq.tape.tensor import AutodiffQTensor, AutodiffTensor, Tensor
from autoq.testing.events import Array, Call, Calls, run_checked_program
from autoq.testing.exact import constant, stored_float64
from autoq.testing.failures import BitsDiffer, GradientMismatch
from autoq.testing.programs import FrozenProgram, home, moves, tracked
from autoq.types import FLOATS, TensorType, bfloat16, dtype_name, float16, float32, float64

ROUNDINGS = 16  # of a half-precision dtype, that may add up where the float64 run keeps all digits
CANCELLED = 1e-6  # of operands and cotangents: what is left of float32 values and gradients that cancel
SLACK = 1e-5  # by how much of the largest magnitude a float32 result may be off before it is encoded


def check_production(f: Callable[..., Any], *inputs: Any, tolerance: float = 1e-4, seed: int = 0) -> None:
    """Check the production path of a program against its run in float64.

    The program runs in float64, which is recorded, and as it does for users: float32, in tiles, fused, on the
    device of its inputs (arrays go to the default one). Every encode of the second run must give the recorded
    codes, but where float32 may have moved a value over the edge between two; it then goes on with the
    recorded codes. Types must be equal, outputs and gradients within the tolerance. With
    ``check_grads(..., through_rounding=True)``, which shows that the float64 run's gradients are right, this
    shows that the production path's are.

    Args:
        f: A function of tensors, as of ``check_grads``.
        inputs: As of ``check_grads``; rounded to float32 first.
        tolerance: Relative to the largest magnitude of an output or gradient; in programs with float16 or
            bfloat16 tensors, which the float64 run doesn't round, some of their roundings are added.
        seed: Of the cotangents.

    Raises:
        BitsDiffer: An encode is missing, is another, or has other codes.
        GradientMismatch: An output or a gradient is off.
        ControlFlowDiverged: Other operations ran.

    Example:
        >>> import autoq as aq
        >>> x = np.random.default_rng(0).standard_normal((2, 32))
        >>> check_production(lambda x: aq.tanh(x.quantize(aq.mxfp4)), x)
    """
    rounded = [x.astype(float32) if _is_float64(x) else x for x in inputs]
    program = FrozenProgram(f, rounded)
    if any(_leaves_out(call) for call in program.session.calls.made):
        return  # non-finite parts are cut out of the float64 run, and have tests of their own
    outputs, leaves = _run(f, rounded, program.session.calls)
    tolerance += _half(program.session.calls)
    rng = np.random.default_rng(seed)
    cotangents = [rng.standard_normal(o.shape).astype(float32) for o in outputs]
    for i, (out, reference) in enumerate(zip(outputs, program.outputs, strict=True)):
        room = CANCELLED * max(map(_magnitude, program.session.calls.made), default=0.0)
        _compare(f"output {i}", _values(out), reference.exact, tolerance, room)
    expected = program.gradients([c.astype(float64) for c in cotangents])
    with using(grad=True):
        found = walk([(o, beside(c, held(o))) for o, c in zip(outputs, cotangents, strict=True)], True, False)
    room = CANCELLED * program.session.steepest
    for i, (leaf, reference) in enumerate(zip(leaves, expected, strict=True)):
        got = found.get(leaf, np.zeros(leaf.shape))
        _compare(f"the gradient by input {i}", stored_float64(got), reference, tolerance, room)


class ForcedTensor(AutodiffTensor):
    """A dense tensor of the production run that depends on the inputs."""

    __slots__ = ()

    def propagate(self) -> Tensor:
        """As of any tensor (S3)."""
        return _marked(super().propagate())

    def inhibit(self) -> Tensor:
        """As of any tensor (S3)."""
        return _marked(super().inhibit())


class ForcedQTensor(AutodiffQTensor):
    """A packed tensor of the production run, with the codes of the recorded one."""

    __slots__ = ()

    def propagate(self) -> Tensor:
        """As of any tensor (S3)."""
        return _marked(super().propagate())

    def inhibit(self) -> Tensor:
        """As of any tensor (S3)."""
        return _marked(super().inhibit())


class Forcing(Observer):
    """Lets every operation run as it is, and puts the recorded codes in the place of its own."""

    def __init__(self, calls: Calls) -> None:
        self.calls, self.half = calls, _half(calls)
        calls.rewind()

    def op(self, proceed: Any, op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Any:
        """Run an operation, compare its type and codes, and go on with the recorded ones."""
        if not any(_is_forced(x) for x in operands):
            return proceed(op, operands, static, out_dtype)
        if op.name == "to_device":  # the float64 run is on the CPU, and passes by these
            return _marked(proceed(op, operands, static, out_dtype))
        if op.kind == "layout" and out_dtype is not None:
            return self.op(proceed, op, operands, static, None).astype(out_dtype)
        call = self.calls.follow(op, [np.shape(getattr(x, "_value", x)) for x in operands])
        out = proceed(op, operands, dict(call.static), out_dtype)
        if out._type is not call.type or isinstance(out._value, QTensor) != isinstance(call.value, QTensor):
            raise BitsDiffer(
                f"{call}: the production path gives {dtype_name(out._type.dtype)}, "
                f"{out._type.propagation.value}.",
                f"{dtype_name(call.type.dtype)}, {call.type.propagation.value}",
                "Encode the result once, in its resolved type (S5-S15).",
            )
        device = out.device
        if isinstance(out._value, QTensor):
            _check_codes(call, out._value.to("cpu"), SLACK + self.half)
            out._value = _moved(call.value, device)
        if not call.tracked:
            floats = call.type.dtype in FLOATS
            return constant(out._value if floats else _moved(call.value, device), call.type)
        return _marked(out)


def _run(f: Callable[..., Any], arguments: Sequence[Any], calls: Calls) -> tuple[list[Any], list[Any]]:
    leaves = [_leaf(x) for x in arguments if moves(x)]
    waiting = iter(leaves)
    entered = [next(waiting) if moves(x) else x for x in arguments]
    with observing(Forcing(calls)), using(grad=True), np.errstate(all="ignore"):
        result = run_checked_program(f, entered)
    calls.finish()
    return tracked(result)[0], leaves


def _leaf(x: Any) -> Any:
    if isinstance(x, Tensor):
        made = x.detach()
    else:
        made = AutodiffTensor(to_device(x, home(x)).copy(), TensorType(x.dtype))
    made._node = LEAF
    return _marked(made)


def _marked(x: Any) -> Any:
    """The tensor as one that depends on the inputs, if it does."""
    if x._node is not None:
        x.__class__ = ForcedQTensor if isinstance(x._value, QTensor) else ForcedTensor
    return x


def _moved(value: Any, device: str) -> Any:
    """A recorded value, which is on the host, on the device of the production run."""
    return value.to(device) if isinstance(value, QTensor) else to_device(value, device)


def _is_forced(x: Any) -> bool:
    return x.__class__ is ForcedTensor or x.__class__ is ForcedQTensor


def _is_float64(x: Any) -> bool:
    return is_array(x) and x.dtype == float64


def _leaves_out(call: Call) -> bool:
    return call.regular is not None or (call.event is not None and call.event.kept is not None)


def _half(calls: Calls) -> float:
    """What roundings to float16 or bfloat16 may do, relatively; 0 if the program has none."""
    eps = {float16: 2.0**-11, bfloat16: 2.0**-8}
    found = [eps[call.type.dtype] for call in calls.made if call.type.dtype in eps]
    return ROUNDINGS * max(found, default=0.0)


def _check_codes(call: Call, got: QTensor, share: float) -> None:
    """The codes of the production run against what float64 gives for values a little around the recorded."""
    if call.event is None:
        if not got.same_bits(call.value):
            raise _other_codes(call, "moved")
        return
    v, encode = call.event.value, call.event.encode
    slack = share * float(np.max(np.abs(v), initial=0.0)) + CANCELLED * _magnitude(call)
    near = (v, v + slack, v - slack, v * (1 + share), v * (1 - share))
    decoded = np.stack([encode(x).dequantize(float64) for x in near])
    low, high = decoded.min(axis=0), decoded.max(axis=0)
    room = 1e-5 * np.max(np.abs(decoded), initial=0.0) + slack
    values = got.dequantize(float64)
    if values.shape != v.shape or not np.all((values >= low - room) & (values <= high + room)):
        raise _other_codes(call, "encoded")


def _magnitude(call: Call) -> float:
    """The largest magnitude among a call's operands: what cancels in float32 is small beside it."""
    sizes = [np.abs(x[np.isfinite(x)]) for x in map(np.asarray, call.operands) if x.dtype.kind == "f"]
    return max((float(np.max(s, initial=0.0)) for s in sizes), default=0.0)


def _other_codes(call: Call, how: str) -> BitsDiffer:
    return BitsDiffer(
        f"{call}: the production path {how} other codes than the float64 run.",
        "equal codes, but where a float32 result lies beside the edge between two",
        "Look for a second encode, a missing one, or one with other scales.",
    )


def _compare(what: str, got: Array, expected: Array, tolerance: float, room: float = 1e-12) -> None:
    largest = float(np.max(np.abs(expected), initial=0.0))
    off = np.abs(np.asarray(got, float64) - expected)
    if off.shape == expected.shape and np.all(off <= tolerance * largest + room):
        return
    worst = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
    place = tuple(int(i) for i in worst)
    raise GradientMismatch(
        f"{what} of the production path: expected {expected[worst]:.9g}, got {got[worst]:.9g} at {place}.",
        f"{tolerance:.1e} of the largest magnitude, {largest:.3g}",
        "Check the float32 path: tiles, fused kernels, casts between dtypes.",
    )


def _values(x: Any) -> Array:
    return stored_float64(x._value)
