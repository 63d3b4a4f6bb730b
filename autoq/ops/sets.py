"""The distinct values of a tensor, with their places and numbers: decoded first (S16)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from autoq.tape.apply import apply, as_tensor
from autoq.tape.function import composed
from autoq.tape.tensor import Tensor, tensor


class UniqueAll(NamedTuple):
    """What ``aq.unique_all`` returns.

    Attributes:
        values: The distinct values, (m,), in ascending order.
        indices: The position of each one's first occurrence in the flattened tensor.
        inverse_indices: For each value of the tensor, which of the distinct ones it is; in its shape.
        counts: How often each occurs.
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What ``aq.unique_counts`` returns, as in ``UniqueAll``."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What ``aq.unique_inverse`` returns, as in ``UniqueAll``."""

    values: Tensor
    inverse_indices: Tensor


@composed
def unique_all(x: Any) -> UniqueAll:
    """The distinct values in ascending order, their places and how often each occurs.

    NaNs are distinct from each other. The gradient of a value goes to its first occurrence.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> values, indices, inverse_indices, counts = aq.unique_all([2.0, 1.0, 2.0])
        >>> values, counts
        (tensor([1. 2.], float32), tensor([1 2], int64))
    """
    x = as_tensor(x)
    if x.tensor_type.is_quantized:
        x = x.dequantize()
    _, indices, inverse, counts = np.unique(x.numpy(), True, True, True, equal_nan=False)
    line = apply("reshape", x, shape=(x.size,))
    values = apply("take", line, indices=indices, axis=0)
    found = [tensor(array, device=x.device) for array in (indices, inverse.reshape(x.shape), counts)]
    return UniqueAll(values, *found)


@composed
def unique_counts(x: Any) -> UniqueCounts:
    """The distinct values in ascending order, and how often each occurs; see `unique_all`.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.unique_counts([2.0, 1.0, 2.0]).counts
        tensor([1 2], int64)
    """
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@composed
def unique_inverse(x: Any) -> UniqueInverse:
    """The distinct values in ascending order, and which of them each value is; see `unique_all`.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.unique_inverse([2.0, 1.0, 2.0]).inverse_indices
        tensor([1 0 1], int64)
    """
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@composed
def unique_values(x: Any) -> Tensor:
    """The distinct values in ascending order; see `unique_all`.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.unique_values([2.0, 1.0, 2.0])
        tensor([1. 2.], float32)
    """
    return unique_all(x).values
