"""The stand-in's kernels of optimizer steps, gradient norms and scaling: the same arithmetic by NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .standin_array import ndarray

LAUNCHES: list[str] = []
VALUE, GRADIENT, FIRST, SECOND = range(4)
F = np.float32


class Table:
    """As ``autoq.kernels.cuda.update.Table``, with the arrays themselves."""

    def __init__(self, sizes: tuple[int, ...], place: Any = None) -> None:
        self.sizes, self.rows = sizes, {}  # type: ignore[var-annotated]

    def point(self, rows: dict[int, list[Any]]) -> None:
        """Take over arrays, held to the contract of the real kernels."""
        for arrays in rows.values():
            assert all(isinstance(a, ndarray) and a.flags.c_contiguous for a in arrays)
            assert tuple([a.size for a in arrays]) == self.sizes
        self.rows |= rows

    def arrays(self, *rows: int) -> Any:
        """The NumPy arrays of some rows, a parameter at a time."""
        return zip(*[[a._array for a in self.rows[row]] for row in rows], strict=True)


def sgd(
    table: Table, kinds: tuple[str, str], options: Any, momentum: bool, nesterov: bool, decay: bool
) -> None:
    """As ``autoq.kernels.cuda.update.sgd``."""
    LAUNCHES.append("sgd")
    lr, mass, rate = (F(x) for x in _numbers(options))
    for p, g, *v in table.arrays(VALUE, GRADIENT, *([FIRST] if momentum else [])):
        assert (p.dtype.name, g.dtype.name) == kinds
        value, d = p.astype(F), g.astype(F)
        if decay:
            d = value * rate + d
        if momentum:
            v[0][...] = v[0] * mass + d
            d = d + v[0] * mass if nesterov else v[0]
        p[...] = value - d * lr


def adam(table: Table, kinds: tuple[str, str], options: Any, decay: str) -> None:
    """As ``autoq.kernels.cuda.update.adam``."""
    LAUNCHES.append("adam")
    first, beta1, rest1, beta2, rest2, root, eps, rate = (F(x) for x in _numbers(options))
    for p, g, m, s in table.arrays(VALUE, GRADIENT, FIRST, SECOND):
        assert (p.dtype.name, g.dtype.name) == kinds
        value, d = p.astype(F), g.astype(F)
        if decay == "decoupled":
            value = value * first
        elif decay:
            d = value * first + d
        m[...] = m * beta1 + d * rest1
        s[...] = s * beta2 + d * d * rest2
        p[...] = value - m / (np.sqrt(s) * root + eps) * rate


def _numbers(options: Any) -> Any:
    return options if isinstance(options, tuple) else options._array


def norm(table: Table, kind: str, most: float = math.inf) -> tuple[Any, Any]:
    """As ``autoq.kernels.cuda.gradients.norm``."""
    LAUNCHES.append("norm")
    found = math.sqrt(sum(float(np.sum(g.astype(np.float64) ** 2)) for (g,) in table.arrays(GRADIENT)))
    factor = most / found if most < found < math.inf else 1.0
    return ndarray(np.asarray(found)), ndarray(np.asarray(factor, F))


def scale(table: Table, kind: str, factor: Any) -> None:
    """As ``autoq.kernels.cuda.gradients.scale``."""
    LAUNCHES.append("scale")
    number = F(factor) if isinstance(factor, float) else factor._array
    for g, out in table.arrays(GRADIENT, VALUE):
        assert g.dtype.name == kind
        assert out.dtype == F
        out[...] = g.astype(F) * number


UPDATE = {"Table": Table, "sgd": sgd, "adam": adam} | {
    "VALUE": VALUE, "GRADIENT": GRADIENT, "FIRST": FIRST, "SECOND": SECOND,
}  # fmt: skip
MODULES = {"update": UPDATE, "gradients": {"norm": norm, "scale": scale}}
