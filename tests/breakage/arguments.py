"""Random operands and arguments for the fuzz, of every dtype, scheme and layout; some are absurd."""

from __future__ import annotations

from typing import Any

import numpy as np

import autoq as aq
from autoq.errors import AutoqError
from autoq.schemes import CATALOG

SHAPES = (
    *((), (0,), (1,), (7,), (32,), (33,), (2, 3), (4, 32), (3, 40), (2, 0, 5), (1, 1), (5, 1), (1, 32)),
    *((2, 3, 16), (1, 2, 1, 3), (2, 16, 16), (32, 4), (16, 16), (1,) * 8),
)
FLOATS = (aq.float64, aq.float32, aq.float32, aq.float16, aq.bfloat16)
INTEGERS = tuple(np.dtype(t) for t in ("int8", "int32", "int64", "uint8", "uint64", "bool"))
ODD_SCHEMES = (
    aq.int4.replace(block=(7,)),
    aq.mxfp8.replace(block=(3, 5)),
    aq.mxfp4.replace(block=(1, 2, 4)),
    aq.int8.replace(scale="f16"),
    aq.int8.replace(scale="bf16", block=(16,)),
    aq.int4.replace(calibration="abs_mean"),
    aq.mxfp8.replace(nonfinite="saturate"),
    aq.mxfp8.replace(nonfinite="raise"),
    aq.fp8_e4m3.replace(scale="ue8m0"),
    aq.nvfp4.replace(block=(8,), scale_rule="round_up"),
    aq.nvfp4.replace(scale_rule="four_over_six"),
)
SCHEMES = (*dict.fromkeys(CATALOG.values()), *ODD_SCHEMES)
NUMBERS = (0, 1, -2, 3.5, 0.0, -0.0, True, np.float32(2), np.float64(0.1), np.int64(3), 1e30, 1e-40)
ABSURD = (
    *(None, "a", b"q", 1j, (), [], {}, {1, 2}, [[1], [2, 3]], 10**400, 2**70, float("nan"), slice(2), ...),
    *(object(), np.array([None, 1]), np.array(["x"]), np.complex64(1), np.datetime64("2020-01-01")),
)


class Arguments:
    """A seeded source of them.

    Args:
        seed: Of the NumPy generator behind it.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, choices: Any) -> Any:
        """One of a sequence."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        """True in that share of the cases."""
        return bool(self.rng.random() < share)

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        """Normal numbers; sometimes huge, subnormal, zeros, whole, or with NaN and infinities among them."""
        x = self.rng.standard_normal(shape)
        spoilt = self.rng.random(shape) < 0.2
        kinds = {
            0: lambda: x * 1e38,
            1: lambda: x * 1e-42,
            2: lambda: x * 0,
            3: lambda: np.where(spoilt, np.nan, x),
            4: lambda: np.where(spoilt, self.one((np.inf, -np.inf)), x),
            5: lambda: np.round(x * 3),
        }
        return np.asarray(kinds.get(int(self.rng.integers(12)), lambda: x)())

    def operand(self, shape: tuple[int, ...] | None = None) -> Any:
        """A tensor, an array, a list, a number, or something that is no operand at all."""
        kind = self.rng.random()
        if kind < 0.03:
            return self.one(ABSURD)
        if kind < 0.12:
            return self.one(NUMBERS)
        if shape is None or self.chance(0.15):
            shape = self.one(SHAPES)
        x = self.values(shape)
        if kind < 0.2:
            return np.asarray(x, self.one(FLOATS))
        if kind < 0.23:
            return x.tolist()
        if kind < 0.32:
            return aq.tensor(np.asarray(np.nan_to_num(x, posinf=9, neginf=-9) % 120, self.one(INTEGERS)))
        return self._floats(x)

    def _floats(self, x: np.ndarray) -> aq.Tensor:
        t = aq.tensor(np.asarray(x, self.one(FLOATS)), requires_grad=self.chance(0.5))
        if self.chance(0.6):
            try:
                t = t.quantize(self.one(SCHEMES))
            except AutoqError:  # blocks of more axes than x has, or NaN under nonfinite="raise"
                return t
        if self.chance(0.1):
            t = t.inhibit()
        return self.view(t) if self.chance(0.4) else t

    def view(self, t: aq.Tensor) -> aq.Tensor:
        """The tensor after up to two layout ops that it allows."""
        for _ in range(int(self.rng.integers(1, 3))):
            n = t.ndim
            moves = (
                lambda t: t.T,
                lambda t, n=n: aq.flip(t, int(self.rng.integers(-n, n))),
                lambda t: t[:: self.one((-1, 2))],
                lambda t: t[..., int(self.rng.integers(3)) :],
                lambda t: t.reshape(-1),
                lambda t: aq.broadcast_to(t, (2, *t.shape)),
                lambda t, n=n: t.permute_dims(*[int(i) for i in self.rng.permutation(n)]),
                lambda t, n=n: aq.expand_dims(t, int(self.rng.integers(n + 1))),
            )
            if n:
                t = self.one(moves)(t)
        return t

    def axis(self, ndim: int) -> Any:
        """An axis, None, two axes, or no axis at all."""
        kind = self.rng.random()
        if kind < 0.06:
            return self.one(("a", 1.0, {}, (0, 0), (0, "a"), [0], True, 99, 2**70, np.array(0), np.int64(0)))
        if kind < 0.3:
            return None
        if kind < 0.45 and ndim > 1:
            return tuple(int(i) for i in self.rng.choice(ndim, 2, replace=False))
        return int(self.rng.integers(-ndim, ndim)) if ndim else 0

    def index(self, shape: tuple[int, ...]) -> Any:
        """What may stand between brackets."""
        parts = tuple(self._part(n) for n in (*shape, 2)[: int(self.rng.integers(len(shape) + 2))])
        return parts[0] if len(parts) == 1 and self.chance(0.7) else parts

    def _part(self, n: int) -> Any:
        between = [int(i) for i in self.rng.integers(-n - 2, n + 2, 2)]
        positions = self.rng.integers(-max(n, 1), max(n, 1), 3)
        return self.one((
            *(int(self.rng.integers(-n - 1, n + 1)), slice(None), slice(None), slice(32), None, ...),
            *(slice(None, None, self.one((2, -1, -3))), slice(*between, self.one((None, 1, -1, 2)))),
            *(positions, positions.tolist(), self.rng.random(n) < 0.5),
            self.one(("a", 1.5, {}, True, np.int8(0), [True], slice("a"), 2**70, [1.5], [[1], [1, 2]])),
        ))  # fmt: skip

    def out_dtype(self) -> dict[str, Any]:
        """Mostly nothing; else ``out_dtype=`` with a dtype, a scheme, or nonsense."""
        kind = self.rng.random()
        if kind < 0.75:
            return {}
        if kind < 0.8:
            return {"out_dtype": self.one(("foo", 3, complex, object, None))}
        return {"out_dtype": self.one(FLOATS if kind < 0.9 else SCHEMES)}
