"""The random Hadamard transform: outliers spread over groups of 16 before a coarse quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import beside, on_gpu, to_host
from autoq.errors import ShapeError
from autoq.ops.samples import moved
from autoq.tape.namespace import RAW_ON_DEVICE
from autoq.tape.op import Op, register

GROUP = 16


def hadamard_matrix(n: int) -> np.ndarray:
    """Sylvester's Hadamard matrix of order n, a power of two: entries 1 and -1.

    Example:
        >>> hadamard_matrix(2).tolist()
        [[1.0, 1.0], [1.0, -1.0]]
    """
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


def hadamard(x: Any, *, signs: Any) -> Any:
    """Groups of 16 along the last axis times diag(signs) @ H16 / 4, an orthogonal matrix.

    Args:
        x: (..., n), n a multiple of 16.
        signs: 16 numbers, each 1 or -1.

    Raises:
        ShapeError: A last axis that isn't whole groups, or other than 16 signs.
    """
    return _grouped(x, _matrix(signs))


def hadamard_transposed(x: Any, *, signs: Any) -> Any:
    """The inverse of ``hadamard``, which is its transpose.

    Args:
        x: (..., n), n a multiple of 16.
        signs: 16 numbers, each 1 or -1.

    Raises:
        ShapeError: A last axis that isn't whole groups, or other than 16 signs.
    """
    return _grouped(x, _matrix(signs).T)


def _matrix(signs: Any) -> np.ndarray:
    signs = to_host(signs).astype(np.float64)  # 16 numbers that the host makes
    if signs.shape != (GROUP,):
        raise ShapeError(
            f"hadamard: signs of shape {signs.shape}.", f"({GROUP},)", "Pass one sign a row of H16."
        )
    return signs[:, None] * hadamard_matrix(GROUP) / 4


def _grouped(x: Any, matrix: np.ndarray) -> Any:
    if x.ndim == 0 or x.shape[-1] % GROUP:
        raise ShapeError(
            f"hadamard: x is {x.shape}.", f"a last axis that is a multiple of {GROUP}.", "Pad it with zeros."
        )
    groups, matrix = x.reshape(*x.shape[:-1], -1, GROUP), matrix.astype(x.dtype)
    if on_gpu(x):
        return RAW_ON_DEVICE.matmul(groups, beside(matrix, x)).reshape(x.shape)
    return (groups @ matrix).reshape(x.shape)


_SIGNS = np.array([1, -1, -1, 1] * 3 + [1] * 4)

register(
    Op(
        "hadamard",
        hadamard,
        {"x": lambda F, g, signs: F.hadamard_transposed(g, signs=signs)},
        accumulates=True,
        sample=moved((2, 32), {"signs": _SIGNS}),
    )
)
register(
    Op(
        "hadamard_transposed",
        hadamard_transposed,
        {"x": lambda F, g, signs: F.hadamard(g, signs=signs)},
        accumulates=True,
        sample=moved((2, 32), {"signs": _SIGNS}),
    )
)
