"""The public functions of the package: one from each record, and those that do more than call one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.errors import ArgumentError, ShapeError
from autoq.ops.attention import scaled_dot_product_attention
from autoq.ops.axes import check_axis
from autoq.ops.create import CREATORS
from autoq.ops.embedding import embedding
from autoq.random import random_bits
from autoq.tape.apply import apply, as_tensor
from autoq.tape.casts import generator
from autoq.tape.function import COMPOSED, function
from autoq.tape.op import REGISTRY
from autoq.tape.tensor import Tensor
from autoq.types import as_dtype

if TYPE_CHECKING:
    from autoq.random import Generator

HIDDEN = {
    *(
        "getitem",
        "identity",
        "to_device",
        "astype",
        "quantize",
        "quantize_grad",
        "dropout",
        "subtract_targets",
        "extremum_share",
    ),
    *("hadamard", "hadamard_transposed", "scatter_slice", "scatter_add", "scatter_add_along_axis"),
    *("convolve", "convolve_input", "convolve_weight", "unfold", "fold", "bin_means", "bin_spread"),
    *("quantize_learned_step", "quantize_learned_clip", "sum_blocks", "spread_blocks"),
    *("extremum_so_far", "linear_recurrence", "scatter_diagonal", "update", "einsum"),
}

# Names that users of NumPy or PyTorch look for, of ops that have the array API standard's names here; and the
# standard's names of the others.
ALIASES = {
    **{"subtract": "sub", "multiply": "mul", "divide": "div", "negative": "neg"},
    **{f"arc{name[1:]}": name for name in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")},
    "cumsum": "cumulative_sum",
    "cumprod": "cumulative_prod",
    "gather": "take_along_axis",
    "concatenate": "concat",
}


def public() -> dict[str, Callable[..., Any]]:
    """Public functions by name."""
    made = {name: function(op) for name, op in REGISTRY.items() if name not in HIDDEN}
    made.update(COMPOSED)
    return {
        **made,
        **{alias: made[name] for alias, name in ALIASES.items()},
        **CREATORS,
        "astype": astype,
        "split": split,
        "dropout": dropout,
        "scaled_dot_product_attention": scaled_dot_product_attention,
        "embedding": embedding,
        "random_hadamard": random_hadamard,
    }


def astype(x: Any, dtype: Any, *, copy: bool = True, device: str | None = None) -> Tensor:
    """Cast to a NumPy dtype or encode with a QuantScheme (S3).

    Args:
        x: Any shape.
        dtype: A dtype, a QuantScheme, or the name of one.
        copy: False returns `x` itself where it has the dtype.
        device: Where it is to be; where it is, by default.

    Example:
        >>> import autoq as aq
        >>> astype(aq.tensor([1.0]), aq.float16).dtype
        dtype('float16')
    """
    x = as_tensor(x)
    x = x if device is None else x.to(device)
    return x if not copy and x.dtype == as_dtype(dtype) else x.astype(dtype)


def split(x: Any, sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Cut a tensor along an axis; packed tensors are not decoded where the cuts are on block edges.

    Args:
        x: Any shape of at least one axis.
        sections: How many equal parts, or the positions to cut at.
        axis: Along which axis.

    Raises:
        ShapeError: No such axis, or parts that don't come out equal.
        ArgumentError: Less than one part.

    Example:
        >>> import autoq as aq
        >>> [part.shape for part in split(aq.tensor([1.0, 2.0, 3.0, 4.0]), 2)]
        [(2,), (2,)]
    """
    x = as_tensor(x)
    check_axis("split", axis, x.shape)
    axis %= x.ndim
    bounds = _bounds(sections, x.shape[axis])
    lead = (slice(None),) * axis
    return tuple(x[(*lead, slice(a, b))] for a, b in zip(bounds, bounds[1:], strict=False))


def _bounds(sections: int | Sequence[int], length: int) -> list[int]:
    """Where the parts begin and end."""
    if not isinstance(sections, int | np.integer):
        return [0, *_positions(sections), length]
    if sections < 1:
        raise ArgumentError(f"split into {sections} parts.", "at least 1", "Pass a positive number.")
    if length % sections:
        raise ShapeError(
            f"split: an axis of length {length} into {sections} equal parts.",
            "a number that divides the length",
            "Pass the positions to cut at instead.",
        )
    return list(range(0, length + 1, length // sections)) if length else [0] * (sections + 1)


def _positions(sections: Any) -> list[int]:
    try:
        return [operator.index(s) for s in sections]
    except TypeError:
        raise ArgumentError(
            f"split at {sections!r}.", "an integer, or a list of integers", "Pass positions along the axis."
        ) from None


def dropout(x: Any, rate: float, *, rng: Generator | None = None, out_dtype: Any = None) -> Tensor:
    """Each value set to 0 with probability ``rate``, the others divided by 1 - ``rate``.

    The mask is drawn again in backward instead of being saved.

    Args:
        x: Any shape.
        rate: The probability, 0 to 1.
        rng: The generator to draw from.
        out_dtype: Overrides the resolved dtype.

    Raises:
        ArgumentError: No generator, or a rate outside 0 to 1.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", 2014.

    Example:
        >>> import autoq as aq
        >>> dropout(aq.tensor([1.0, 1.0, 1.0, 1.0]), 0.5, rng=aq.Generator(1)).tolist()
        [2.0, 0.0, 0.0, 0.0]
    """
    draw = generator(rng, "dropout").draw("dropout")
    return apply("dropout", x, rate=rate, draw=draw, out_dtype=out_dtype)


def random_hadamard(x: Any, *, rng: Generator | None = None, out_dtype: Any = None) -> Tensor:
    """Groups of 16 along the last axis times a random orthogonal matrix, diag(±1) @ H16 / 4.

    It spreads outliers before a coarse quantization; two operands of a product transformed with the same
    signs along the contraction give the same product.

    Args:
        x: (..., n), n a multiple of 16.
        rng: The generator that the 16 signs are drawn from.
        out_dtype: Overrides the resolved dtype.

    Raises:
        ArgumentError: No generator.
        ShapeError: A last axis that isn't whole groups.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([[16.0] + [0.0] * 15])
        >>> random_hadamard(x, rng=aq.Generator(0)).abs().max().item()
        4.0
    """
    draw = generator(rng, "random_hadamard").draw("random_hadamard")
    signs = 1.0 - 2.0 * (random_bits(draw, 16) & 1)
    return apply("hadamard", x, signs=np.asarray(signs, np.float32), out_dtype=out_dtype)
