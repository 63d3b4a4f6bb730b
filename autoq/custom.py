"""Operations of one's own: ``custom_op`` of a function over arrays; ``ResolvedOutput``, the type rule."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autoq.context import current
from autoq.devices import beside, is_array, on_gpu, to_device
from autoq.errors import ArgumentError, DTypeError, GradientError, ShapeError
from autoq.storage import QTensor
from autoq.storage.rewrite import rewritten
from autoq.tape.apply import as_operand, decoded, encoded
from autoq.tape.beside import one_device
from autoq.tape.function import function
from autoq.tape.op import Op, register
from autoq.tape.plan import make_plan
from autoq.tape.tensor import AutodiffQTensor, AutodiffTensor, Tensor
from autoq.types import TensorType, as_dtype, bool_, float64

Rules = Mapping[str, Callable[..., Any] | str]


def custom_op(
    forward: Callable[..., Any] | None = None,
    *,
    vjp: Rules | Callable[..., Any] | None = None,
    not_differentiable: str | None = None,
    name: str | None = None,
    elementwise: bool = False,
    reduction: bool = False,
    accumulates: bool = False,
    residual: Callable[..., Any] | None = None,
    registered: bool = False,
) -> Any:
    """Make a function over arrays a differentiable op that follows the type rule like a built-in (S18).

    Args:
        forward: The function, where this is not used with arguments as a decorator. Positional parameters
            are its operands and arrive as float32 or float64 arrays, packed ones decoded; keyword-only
            parameters are static arguments. It returns one array. Tensors on a GPU arrive as CuPy arrays,
            which NumPy's functions take; where it is element-wise, it may be compiled to a kernel there at
            its first call, so that it should depend on its arguments alone.
        vjp: A gradient rule for each operand by name, or a sentence that says why that operand has none; the
            rule itself where there is one operand. A rule is called as ``rule(F, g, ...)``: see
            ``add_an_op`` in the docs. ``F(op)`` is another custom op.
        not_differentiable: Instead of ``vjp``, why there is no gradient at all.
        name: How errors and tapes call it; the function's name by default.
        elementwise: It maps values of broadcast operands one by one, so that packed ones run tile by tile.
        reduction: It takes ``axis`` and ``keepdims`` (S13).
        accumulates: It sums, so that ``precision("exact")`` hands it float64 (S15).
        residual: ``residual(values, static) -> dict`` of what rules read beside the operands.
        registered: Put it into the registry too, where rules find it as ``F.<name>``.

    Returns:
        The op as a function of tensors, arrays and numbers, with ``out_dtype=`` added.

    Raises:
        ArgumentError: Neither or both of ``vjp`` and ``not_differentiable``; an operand without a rule.

    Example:
        >>> import autoq as aq
        >>> @custom_op(vjp={"x": lambda F, g, x: g * (3.0 * x * x)}, elementwise=True)
        ... def cube(x):
        ...     return x * x * x
        >>> x = aq.tensor([1.0, 2.0], requires_grad=True)
        >>> cube(x).sum().backward()
        >>> x.grad
        tensor([ 3. 12.], float32)
        >>> cube(x.quantize(aq.mxfp8)).dtype.name
        'mxfp8'
    """
    options: dict[str, Any] = {
        "elementwise": elementwise,
        "reduction": reduction,
        "accumulates": accumulates,
        "residual": residual,
    }

    def made(forward: Callable[..., Any]) -> Callable[..., Any]:
        called = str(name or getattr(forward, "__name__", "custom"))
        rules = _rules(called, forward, vjp, not_differentiable)
        op = Op(called, _checked(called, forward), rules, doc=inspect.getdoc(forward) or "", **options)
        return function(register(op) if registered else op)

    return made if forward is None else made(forward)


def _rules(
    name: str, forward: Callable[..., Any], vjp: Any, reason: str | None
) -> dict[str, Callable[..., Any]] | str:
    """Gradient rules by operand, one each; or the reason why there are none."""
    if (vjp is None) == (reason is None):
        raise ArgumentError(
            f"custom op {name}: {'neither' if vjp is None else 'both'} vjp and not_differentiable.",
            "one of them",
            "Pass vjp={operand: rule}, or not_differentiable='why'.",
        )
    if reason is not None:
        return reason
    parameters = inspect.signature(forward).parameters.values()
    operands = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given = {operands[0]: vjp} if callable(vjp) and len(operands) == 1 else vjp
    if not isinstance(given, Mapping) or set(given) != set(operands):
        raise ArgumentError(
            f"custom op {name}: gradient rules for {sorted(given) if isinstance(given, Mapping) else given}.",
            f"one for each of {operands}",
            "Say why an operand has none: vjp={'labels': 'integers'}.",
        )
    return {n: rule if callable(rule) else _none(name, n, rule) for n, rule in given.items()}


def _none(name: str, operand: str, reason: str) -> Callable[..., Any]:
    """The rule of an operand that has no gradient: an error that says why."""

    def refuse(F: Any, g: Any) -> Any:  # noqa: N803
        raise GradientError(
            f"{name} has no gradient for its operand {operand!r}: {reason}",
            "gradients for the other operands",
            "Call .detach() on that operand.",
        )

    return refuse


def _checked(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with an error where it returns something that isn't numbers.

    What it made on the CPU for operands on a GPU is copied to them.
    """

    @functools.wraps(forward)
    def run(*arrays: Any, **static: Any) -> Any:
        value = forward(*arrays, **static)
        if isinstance(value, np.generic | float | int) or is_array(value):
            found = value if on_gpu(value) else np.asarray(value)
            if found.dtype.kind != "O":
                place = next((x for x in arrays if on_gpu(x)), None)
                return value if place is None else beside(found, place)
        raise DTypeError(
            f"custom op {name} returned a {type(value).__name__}.",
            "one array of numbers",
            "Return the array; work on tensors outside of custom ops.",
        )

    return run


_UNTAPED = Op("custom", lambda: None, "it is run without a tape")


class ResolvedOutput:
    """The output type of an op by the rule that built-in ops follow, for functions without a tape (S17).

    Attributes:
        tensor_type: The resolved dtype and flag.
        compute: The float dtype to compute in: float64 if an input is, else float32 (S15).

    Example:
        >>> import autoq as aq
        >>> x, w = aq.tensor([[0.5] * 32]).quantize(aq.mxfp8), aq.Parameter([2.0] * 32)
        >>> out = ResolvedOutput.of(x, w)
        >>> out.write(out.read(x) * out.read(w))
        <AutodiffQTensor (1, 32) mxfp8>
    """

    __slots__ = ("_device", "_target", "compute", "tensor_type")

    def __init__(
        self,
        tensor_type: TensorType,
        compute: np.dtype[Any],
        target: Tensor | None = None,
        device: str = "cpu",
    ) -> None:
        self.tensor_type, self.compute, self._target, self._device = tensor_type, compute, target, device

    @classmethod
    def of(cls, *inputs: Any, out_dtype: Any = None, accumulates: bool = False) -> ResolvedOutput:
        """Resolve S5 to S10 (S11 in strict mode) for tensors, arrays and numbers.

        Args:
            inputs: The operands.
            out_dtype: Overrides the resolved dtype (S14).
            accumulates: Whether it sums, so that ``precision("exact")`` computes in float64.

        Raises:
            ResolutionError: Propagating inputs disagree under ``dtype_resolution("strict")``.
        """
        operands = tuple(as_operand(x) for x in inputs)
        context = current()
        dtype = None if out_dtype is None else as_dtype(out_dtype)
        found, compute, _ = make_plan(_UNTAPED, operands, dtype, context.resolution)
        device = one_device(_UNTAPED, operands) if any(isinstance(x, Tensor) for x in operands) else "cpu"
        return cls(found, float64 if accumulates and context.exact else compute, device=device)

    def written_into(self, target: Tensor) -> ResolvedOutput:
        """The same, for a result that replaces values of ``target`` and keeps its dtype and flag (S12)."""
        return ResolvedOutput(target.tensor_type, self.compute, target, target.device)

    @property
    def dtype(self) -> Any:
        """The resolved dtype."""
        return self.tensor_type.dtype

    def read(self, x: Any) -> Any:
        """An operand as an array of ``compute``; no copy where it is one already. Read only.

        Bool arrays and Python numbers stay what they are. Arrays on a GPU can't be marked read-only: copy
        them before you write into them.
        """
        array = decoded(as_operand(x), self.compute)
        if isinstance(array, np.ndarray) and array.dtype != bool_:
            array = array.view()
            array.flags.writeable = False
        return array

    def write(self, array: Any) -> Tensor:
        """An array as a new, untracked tensor of the resolved type, with S13's exceptions.

        It is on the device of the operands; an array that is elsewhere is copied there.

        After ``written_into``, the target's shape is asked for, blocks in which nothing changed keep their
        bits, and scales of the whole tensor stay, so that values beyond them saturate.

        Raises:
            DTypeError: Not an array of numbers.
            ShapeError: After ``written_into``, another shape than the target's.
        """
        value = array if is_array(array) else np.asarray(array)
        if value.dtype.kind not in "biuf" and value.dtype.name != "bfloat16":
            raise DTypeError(
                f"write of a {value.dtype} array.", "an array of numbers", "Convert it to floats first."
            )
        value = to_device(value, self._device)
        if self._target is None:
            if value.dtype.kind in "biu" and self.tensor_type.is_quantized:
                value = value.astype(self.compute)
            stored, found = encoded(value, self.tensor_type)
            return _untracked(stored, found)
        return self._rewritten(self._target, value)

    def _rewritten(self, target: Tensor, value: np.ndarray) -> Tensor:
        if value.shape != target.shape:
            raise ShapeError(
                f"write of shape {value.shape} into a tensor of {target.shape}.",
                "the target's shape",
                "Write all of the target's values, the unchanged ones as they were read.",
            )
        stored = target.value
        if isinstance(stored, QTensor):
            return _untracked(rewritten(stored, value.astype(np.float32, copy=False)), self.tensor_type)
        return _untracked(value.astype(stored.dtype), self.tensor_type)


def _untracked(value: Any, tensor_type: TensorType) -> Tensor:
    return (AutodiffQTensor if isinstance(value, QTensor) else AutodiffTensor)(value, tensor_type)
