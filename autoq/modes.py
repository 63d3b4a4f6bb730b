"""Context managers for what holds around ops: recording, resolution, precision (S11, S15, S29)."""

from __future__ import annotations

from contextlib import AbstractContextManager

from autoq.context import check_resolution, using
from autoq.errors import ArgumentError

PRECISIONS = ("highest", "tf32", "bf16", "exact", "float32")


def no_grad() -> AbstractContextManager[None]:
    """Record nothing in a block, or in a function as a decorator (S29).

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([1.0], requires_grad=True)
        >>> with no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """
    return using(grad=False)


def dtype_resolution(policy: str) -> AbstractContextManager[None]:
    """Choose how disagreeing propagating inputs resolve: ``"widen"`` (S7) or ``"strict"``, an error (S11).

    Raises:
        ArgumentError: Another policy.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([1.0])
        >>> with dtype_resolution("strict"):
        ...     x + x.astype(aq.float16)
        Traceback (most recent call last):
        autoq.errors.ResolutionError: add: propagating inputs disagree under strict resolution: float32 and
        float16.
          Allowed: propagating inputs of one dtype with the same encode choices
          Cast one with astype, inhibit it with .inhibit(), or use dtype_resolution('widen').
    """
    return using(resolution=check_resolution(policy))


def precision(name: str) -> AbstractContextManager[None]:
    """Choose how products and sums are computed (S15).

    - ``"highest"``, the default, also called ``"float32"``: float32 products and sums. A GPU multiplies
      operands of at most 8 significant bits (bfloat16, MX, NVFP4) on its tensor cores, which rounds nothing.
    - ``"tf32"``, ``"bf16"``: a GPU may round float32 operands of matrix products to 11 or 8 significant bits,
      which is several times quicker. The CPU computes as under ``"highest"``.
    - ``"exact"``: float64.

    Raises:
        ArgumentError: Another name.

    Example:
        >>> import autoq as aq
        >>> big = aq.tensor([2.0**24, 1.0, 1.0])
        >>> with precision("exact"):
        ...     (big.sum() - 2.0**24).item()
        2.0
    """
    if name not in PRECISIONS:
        raise ArgumentError(f"precision {name!r}.", " or ".join(map(repr, PRECISIONS)), "Pass one of these.")
    return using(exact=name == "exact", products=name if name in ("tf32", "bf16") else "highest")
