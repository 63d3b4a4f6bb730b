"""Checks of what isn't a gradient: types, bits of layouts, devices, saved bytes, tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autoq.context import Observer, observing, using
from autoq.devices import to_host
from autoq.schemes import QuantScheme, scheme
from autoq.storage import QTensor
from autoq.tape.apply import _tiled, apply, as_operand, computed, decoded, encoded
from autoq.tape.op import REGISTRY, Op
from autoq.tape.plan import make_plan
from autoq.tape.tensor import Tensor, tensor
from autoq.tape.view import Tape
from autoq.testing.exact import on_host
from autoq.testing.failures import BitsDiffer, CheckError
from autoq.types import (
    INHIBIT,
    PROPAGATE,
    TensorType,
    bfloat16,
    dtype_name,
    float16,
    float32,
    float64,
)

DTYPES: tuple[Any, ...] = (float64, float32, float16, bfloat16, "mxfp8", "mxfp4")


def check_type_rule(
    op: Callable[..., Any] | str, *inputs: Any, dtypes: Sequence[Any] = DTYPES, **static: Any
) -> None:
    """Check that an op's results have the types of the rule: alone, mixed, inhibiting.

    For every dtype: all inputs of it give it and propagate (an op that returns truth values or positions
    gives these, a loss float32 or float64); all of them inhibiting give it inhibiting, or float32 where it is
    quantized (S10); and one propagating input among inhibiting ones of another dtype alone decides (S6, S9).

    Args:
        op: The name of a record, or a function of tensors with the built-in float ops' type rule.
        inputs: Float arrays of at least one axis; the result must have an axis as well.
        dtypes: Dtypes, schemes and names of schemes.
        static: Static arguments.

    Raises:
        CheckError: A result has another dtype or flag.

    Example:
        >>> import autoq as aq
        >>> x = np.ones((2, 32), np.float32)
        >>> check_type_rule("mul", x, x)
        >>> check_type_rule(lambda x: aq.tanh(x) + 1, x)
    """
    record = REGISTRY[op] if isinstance(op, str) else None
    run = _runner(op, record, static)
    kind = record.kind if record else "float"
    for named in dtypes:
        dtype = scheme(named) if isinstance(named, str) else named
        alone = [tensor(x, dtype=dtype) for x in inputs]
        _expect(run(*alone), _expected(kind, dtype, PROPAGATE), f"{_name(op)} of {dtype_name(dtype)}")
        if kind in ("index", "loss"):
            continue
        inhibiting = [x.inhibit() for x in alone]
        quantized = isinstance(dtype, QuantScheme) and kind != "layout"
        expected = TensorType(float32 if quantized else dtype, INHIBIT)
        _expect(run(*inhibiting), expected, f"{_name(op)} of inhibiting {dtype_name(dtype)}")
        for i in range(len(inputs) if len(inputs) > 1 and kind == "float" else 0):
            mixed = [alone[i] if k == i else tensor(x).inhibit() for k, x in enumerate(inputs)]
            what = f"{_name(op)} of {dtype_name(dtype)} at {i} and inhibiting float32"
            _expect(run(*mixed), TensorType(dtype, PROPAGATE), what)


def _expected(kind: str, dtype: Any, flag: Any) -> TensorType | None:
    if kind == "index":
        return None
    if kind == "loss":
        return TensorType(float64 if dtype == float64 else float32, flag)
    return TensorType(dtype, flag)


def _expect(out: Tensor, expected: TensorType | None, what: str) -> None:
    found = out.tensor_type
    if expected is None:
        if found.is_float or out.requires_grad:
            raise CheckError(
                f"{what} gives {found!r}.", "bool or integers, untracked (S16)", "Correct its kind."
            )
        return
    same = found.propagation is expected.propagation
    if isinstance(expected.dtype, QuantScheme) and isinstance(found.dtype, QuantScheme):
        same = same and found.dtype.canonical() == expected.dtype.canonical()
    else:
        same = same and found.dtype == expected.dtype
    if not same:
        raise CheckError(
            f"{what} gives {found!r}.", repr(expected), "Resolve the type with TensorType.combine."
        )


def check_layout(f: Callable[[Any], Any], q: Any) -> list[str]:
    """Check that moving packed values is moving decoded values, bit for bit.

    Where the blocks can follow (S34, S35), decoding what was moved must equal moving what was decoded. Where
    they can't (S36), the moved values are encoded again, and the result must have the bits of encoding them.

    Args:
        f: A function of one tensor made of layout operations.
        q: A packed tensor: QTensor or AutodiffQTensor.

    Returns:
        How each operation moved the values: ``"view"``, ``"copy"`` or ``"decode"``.

    Raises:
        BitsDiffer: A value differs.

    Example:
        >>> import autoq as aq
        >>> q = aq.tensor(np.arange(128.0).reshape(2, 64), dtype=aq.mxfp8)
        >>> check_layout(lambda x: x.T, q), check_layout(lambda x: x.T[3:9].T.reshape(12), q)
        (['view'], ['view', 'copy', 'view', 'decode'])
    """
    packed = q.detach() if isinstance(q, Tensor) else tensor(q)
    seen = _Moves()
    with observing(seen), using(grad=False):
        f(packed)
    return seen.how


class _Moves(Observer):
    """Compares every move of packed values with the same move of the decoded ones."""

    def __init__(self) -> None:
        self.how: list[str] = []

    def moved(self, how: str) -> None:
        """A layout op moved packed values."""
        self.how.append(how)

    def op(self, proceed: Any, op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Any:
        """Run an operation and, if it moved packed values, compare."""
        before = len(self.how)
        out = proceed(op, operands, static, out_dtype)
        if len(self.how) == before or out_dtype is not None:
            return out
        expected = computed(op, [decoded(x, float32) for x in operands], static)
        again = self.how[-1] == "decode" and isinstance(out._value, QTensor)
        same = (
            out._value.same_bits(QTensor.encode(expected, out.dtype))
            if again
            else np.array_equal(out.numpy(), to_host(expected), equal_nan=True)
        )
        if not same:
            raise BitsDiffer(
                f"{op.name} of {operands[0]!r} ({self.how[-1]}) changed values.",
                "the decoded values moved, and encoded again where blocks were cut",
                "Correct the packed function of the op.",
            )
        return out


def check_same_on(devices: Sequence[str], f: Callable[..., Any], *inputs: Any) -> None:
    """Check that a program gives the same bits on every device, and twice on each.

    Args:
        devices: ``"cpu"`` and whatever else ``tensor.to`` takes.
        f: A function of tensors that returns a tensor, or a tuple of them.
        inputs: Tensors and arrays.

    Raises:
        BitsDiffer: A value, code or scale differs.
        DeviceError: A device that isn't there.

    Example:
        >>> import autoq as aq
        >>> check_same_on(["cpu"], lambda x: aq.tanh(x).quantize(aq.mxfp8), np.ones((2, 32), np.float32))
    """
    reference: list[Any] | None = None
    for device in devices:
        for _ in range(2):
            moved = [x.to(device) if isinstance(x := as_operand(v), Tensor) else x for v in inputs]
            result = f(*moved)
            found = [x.to("cpu") for x in (result if isinstance(result, tuple | list) else [result])]
            if reference is None:
                reference = found
            for i, (a, b) in enumerate(zip(reference, found, strict=True)):
                if not _same_bits(a, b):
                    raise BitsDiffer(
                        f"result {i} on {device} differs from that on {devices[0]}.",
                        "the same bits (S38)",
                        "Compare the ops one by one; sums and products are exact under precision('exact').",
                    )


def _same_bits(a: Tensor, b: Tensor) -> bool:
    if isinstance(a._value, QTensor):
        return isinstance(b._value, QTensor) and a._value.same_bits(b._value)
    return a.tensor_type is b.tensor_type and a._value.tobytes() == b._value.tobytes()


def check_saved_bytes(f: Callable[..., Any], *inputs: Any, at_most: int) -> int:
    """Check how many bytes a program keeps for backward, each buffer counted once, packed ones as packed.

    Args:
        f: A function of tensors that returns one.
        inputs: Arrays and tensors; floats are tracked.
        at_most: The most bytes it may keep; what it reads of its inputs counts.

    Returns:
        The bytes it keeps.

    Raises:
        CheckError: More; the error shows the tape.

    Example:
        >>> import autoq as aq
        >>> x = np.ones((2, 32), np.float32)
        >>> check_saved_bytes(lambda x: aq.tanh(x.quantize(aq.mxfp8)), x, at_most=66)
        66
    """
    tracked = []
    for v in inputs:
        x = as_operand(v)
        if isinstance(x, Tensor) and x.tensor_type.is_float and not x.requires_grad:
            x = x.detach()
            x.requires_grad = True
        tracked.append(x)
    with using(grad=True):
        tape = Tape.of(f(*tracked))
    if tape.saved_bytes > at_most:
        raise CheckError(
            f"{tape.saved_bytes} bytes kept for backward:\n{tape}",
            f"{at_most} bytes",
            "Keep packed operands instead of decoded ones, and recompute instead of keeping results.",
        )
    return tape.saved_bytes


def check_fused(op: Op | str, *operands: Any, out_dtype: Any = None, **static: Any) -> None:
    """Check that an element-wise op gives the same bits tile by tile as on whole decoded operands.

    Args:
        op: A record, or its name.
        operands: Tensors, arrays and numbers; those on a GPU, which has no tiles, are copied to the CPU.
        out_dtype: The dtype of the result, if it isn't the resolved one.
        static: Static arguments.

    Raises:
        BitsDiffer: They differ.
        CheckError: An op that isn't element-wise runs whole only.

    Example:
        >>> import autoq as aq
        >>> q = aq.tensor(np.linspace(-3, 3, 320).reshape(2, 160), dtype=aq.mxfp4)
        >>> check_fused("tanh", q)
    """
    record = REGISTRY[op] if isinstance(op, str) else op
    if not record.elementwise:
        raise CheckError(f"{record.name} isn't run in tiles.", "element-wise ops", "Check another op.")
    inputs = tuple(on_host(as_operand(x)) for x in operands)
    static = {**record.defaults, **static}
    out_type, compute, _ = make_plan(record, inputs, out_dtype, "widen")
    values = [getattr(x, "_value", x) for x in inputs]
    tiles, tiled_type = _tiled(record, values, static, out_type, compute)
    whole = computed(record, [decoded(x, compute) for x in inputs], static, compute)
    stored, whole_type = encoded(whole, out_type)
    packed = isinstance(stored, QTensor)
    same = tiles.same_bits(stored) if packed else tiles.tobytes() == np.ascontiguousarray(stored).tobytes()
    if not same or tiled_type is not whole_type:
        raise BitsDiffer(
            f"{record.name} in tiles differs from {record.name} on whole operands.",
            "the same bits (S38)",
            "The forward must map values one by one, and the encode see the same scales.",
        )


def _runner(op: Any, record: Op | None, static: dict[str, Any]) -> Callable[..., Any]:
    if record is None:
        return lambda *x: op(*x, **static)
    return lambda *x: apply(record, *x, **static)


def _name(op: Any) -> str:
    return (
        op if isinstance(op, str) else getattr(op, "__name__", "the op").replace("<lambda>", "the function")
    )
