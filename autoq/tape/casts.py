"""Casting to a scheme, with its options checked: what ``aq.quantize`` and ``Tensor.quantize`` do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.errors import ArgumentError, DTypeError
from autoq.random import Generator
from autoq.schemes import QuantScheme
from autoq.schemes import scheme as scheme_named
from autoq.tape.apply import apply, as_operand
from autoq.tape.stored import real_array
from autoq.types import as_dtype

if TYPE_CHECKING:
    from autoq.random import Draw
    from autoq.tape.tensor import AutodiffQTensor, Tensor

ESTIMATORS = ("identity", "clip")


class Estimator:
    """How gradients pass a quantization, for estimators with tensors of their own that learn (S25).

    A subclass encodes by an op whose operands these tensors are, so that its rules give them gradients;
    ``aq.learned_step`` and ``aq.learned_clip`` make such estimators.
    """

    def encode(self, x: Tensor, scheme: QuantScheme, draw: Draw | None) -> AutodiffQTensor:
        """The tensor encoded, recorded with the estimator's rules."""
        raise NotImplementedError(f"{type(self).__name__}.encode")


def quantize(
    x: Any,
    scheme: QuantScheme | str,
    *,
    scales: Any = None,
    ste: str | Estimator = "identity",
    rounding: str | None = None,
    rng: Generator | None = None,
) -> AutodiffQTensor:
    """Encode a tensor with a scheme; the gradient passes straight through the rounding (S20).

    Args:
        x: Floats of any shape that the scheme's blocks fit (S33).
        scheme: A QuantScheme or its name.
        scales: Given scales instead of calibrated ones: an array of the block grid's shape; for two-level
            schemes ``(block_scales, tensor_amax)``.
        ste: ``"identity"``; ``"clip"``, no gradient through saturated values; or an estimator that learns
            the scales: ``aq.learned_step(step)``, ``aq.learned_clip(level)``.
        rounding: Overrides the scheme's: ``"nearest"``, ``"stochastic"`` or ``"stochastic8"``.
        rng: The generator that stochastic rounding draws from (S41).

    Raises:
        SchemeError: An unknown scheme, or one whose block has more axes than ``x``.
        DTypeError: Integer or bool ``x``.
        ArgumentError: An unknown estimator; stochastic rounding without ``rng``.
        NonFiniteError: NaN or infinity, under ``nonfinite="raise"``.

    Example:
        >>> import autoq as aq
        >>> q = quantize(aq.tensor([[0.1] * 32]), aq.mxfp4)
        >>> q.dtype.name, q.nbytes
        ('mxfp4', 17)
    """
    target = as_scheme(scheme)
    if rounding is not None:
        target = target.replace(rounding=rounding)
    _check_estimator(ste, scales)
    operand = as_operand(x)
    if not hasattr(operand, "_type"):
        operand = as_operand(real_array(operand, "quantize: x").astype(np.float32))
    if not operand.tensor_type.is_float:
        raise DTypeError(
            f"quantize of a {operand.dtype.name} tensor.",
            "float tensors",
            "Cast it with .astype(aq.float32) first.",
        )
    draw = draw_for(target, rng, "quantize")
    if isinstance(ste, Estimator):
        return ste.encode(operand, target, draw)
    return apply("quantize", operand, scheme=target, scales=scales, ste=ste, draw=draw)  # type: ignore[return-value]


def _check_estimator(ste: Any, scales: Any) -> None:
    if isinstance(ste, Estimator):
        if scales is not None:
            raise ArgumentError(
                f"scales= beside ste={type(ste).__name__}, which gives them.",
                "one of the two",
                "Leave scales out.",
            )
    elif not isinstance(ste, str) or ste not in ESTIMATORS:
        raise ArgumentError(
            f"ste={ste!r}.",
            " or ".join(map(repr, ESTIMATORS)) + ", or an estimator such as aq.learned_step(step)",
            "Pass one of these.",
        )


def as_scheme(scheme: Any) -> QuantScheme:
    """A QuantScheme from one, or from its name."""
    found = scheme_named(scheme) if isinstance(scheme, str) else as_dtype(scheme)
    if not isinstance(found, QuantScheme):
        raise DTypeError(
            f"{found.name} as a scheme.", "a QuantScheme or its name", "Use astype for float dtypes."
        )
    return found


def draw_for(scheme: QuantScheme, rng: Generator | None, path: str) -> Draw | None:
    """The draw of a stochastic cast; None for rounding to nearest (S41)."""
    if scheme.rounding == "nearest":
        return None
    return generator(rng, f"{path} with rounding={scheme.rounding!r}").draw(path)


def generator(rng: Any, owner: str) -> Generator:
    """The generator that a call was given; nothing random runs without one (S41).

    Raises:
        ArgumentError: Naming ``owner``, for None or anything else.
    """
    if isinstance(rng, Generator):
        return rng
    raise ArgumentError(
        f"{owner} without a generator." if rng is None else f"{owner}: rng is {rng!r}.",
        "rng=aq.Generator(seed)",
        "Pass rng=, so that the draws can be repeated.",
    )


def quantize_grad(x: Tensor, scheme: QuantScheme | str, *, rng: Generator | None = None) -> Tensor:
    """Identity forward; backward encodes the gradient with a scheme and decodes it again (S23).

    Args:
        x: Floats of any shape that the scheme's blocks fit.
        scheme: A QuantScheme or its name; with stochastic rounding ``rng`` is needed.
        rng: The generator that stochastic rounding draws from.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([[0.3, 1.0]], requires_grad=True)
        >>> (quantize_grad(x, aq.int4) * aq.tensor([[1.0, 7.3]])).sum().backward()
        >>> x.grad
        tensor([[1.0428572 7.3      ]], float32)
    """
    target = as_scheme(scheme)
    operand = as_operand(x)
    if hasattr(operand, "_type") and not operand.tensor_type.is_float:
        raise DTypeError(
            f"quantize_grad of a {operand.dtype.name} tensor, which has no gradient.",
            "float and quantized tensors",
            "Cast it with .astype(aq.float32) first.",
        )
    return apply("quantize_grad", x, scheme=target, draw=draw_for(target, rng, "quantize_grad"))
