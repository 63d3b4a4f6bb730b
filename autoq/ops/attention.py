"""Scaled dot-product attention as one op: scores and their softmax stay in float, so that no mask and no
weight ever meets a quantizer (S47, S48)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.errors import ArgumentError, DTypeError, ShapeError
from autoq.ops.axes import Shape
from autoq.ops.random import dropout as dropped
from autoq.ops.samples import Case
from autoq.ops.softmax import softmax
from autoq.random import Draw
from autoq.tape.apply import apply
from autoq.tape.op import Op, register

if TYPE_CHECKING:
    from autoq.random import Generator
    from autoq.tape.tensor import Tensor


def scaled_dot_product_attention(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None,
    *, dropout: float = 0.0, rng: Generator | None = None, out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """softmax(q @ k.mT * scale) @ v: each query's mean of the values, weighted by how well its key fits.

    Decoded once, computed in float, encoded once: neither scores nor weights are ever quantized. A query
    whose keys are all masked gives 0.

    Source: Vaswani et al., "Attention Is All You Need", 2017; grouped heads: Ainslie et al., "GQA", 2023.

    Args:
        q: (..., heads, queries, d).
        k: (..., groups, keys, d), `groups` dividing `heads`: consecutive heads share keys and values.
        v: (..., groups, keys, e).
        mask: Bool, broadcasts to (..., heads, queries, keys); False leaves a key out. None keeps all.
        causal: Leave out keys that come after the query; the last query sees the last key.
        scale: None for 1 / sqrt(d).
        dropout: Each weight is set to 0 with this probability, the others divided by 1 - dropout.
        rng: The generator that the dropout is drawn from.
        out_dtype: Overrides the resolved dtype.

    Returns:
        (..., heads, queries, e).

    Raises:
        ShapeError: Shapes other than these, or a mask that doesn't broadcast.
        DTypeError: A mask that isn't bool.
        ArgumentError: Dropout without a generator, or outside 0 to 1.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        >>> scaled_dot_product_attention(x, x, x, causal=True)
        tensor([[[1.   0.  ]
                 [0.3302... 0.6697...]]], float32)
    """
    draw = None
    if dropout:
        if rng is None:
            raise ArgumentError(
                "scaled_dot_product_attention: dropout without a generator.",
                "rng=aq.Generator(seed)",
                "Pass rng=, so that the draws can be repeated.",
            )
        draw = rng.draw("scaled_dot_product_attention")
    return apply(
        "scaled_dot_product_attention", q, k, v, mask=mask, causal=causal, scale=scale, rate=float(dropout),
        draw=draw, out_dtype=out_dtype,
    )  # fmt: skip


def attention(
    q: Any, k: Any, v: Any, *, mask: Any = None, causal: bool = False, scale: float | None = None,
    rate: float = 0.0, draw: Draw | None = None,
) -> Any:  # fmt: skip
    """The forward of `scaled_dot_product_attention`, with the draw of its dropout as an argument."""
    _check(q.shape, k.shape, v.shape)
    lead, grouped = _split(q.shape, k.shape)
    scores = np.matmul(q.reshape(grouped), np.swapaxes(np.expand_dims(k, -3), -1, -2))
    scores *= _scale(q.shape, scale)
    weights = softmax(scores, mask=_mask(q.shape, k.shape, mask, causal))
    if rate and draw is not None:
        weights = dropped(weights, rate=rate, draw=draw)
    return np.matmul(weights, np.expand_dims(v, -3)).reshape(*lead, q.shape[-2], v.shape[-1])


def _split(q: Shape, k: Shape) -> tuple[Shape, Shape]:
    """The axes before the queries, and q's shape with its heads as groups of those that share keys."""
    if len(q) == 2:
        return (), (1, *q)
    repeats = q[-3] // k[-3] if k[-3] else 1
    return q[:-2], (*q[:-3], k[-3], repeats, *q[-2:])


def _scale(q: Shape, scale: float | None) -> float:
    return 1.0 / math.sqrt(q[-1] or 1) if scale is None else float(scale)


def _mask(q: Shape, k: Shape, mask: Any, causal: bool) -> Any:
    """The mask of the grouped scores, or None if no key is left out."""
    queries, keys = q[-2], k[-2]
    allowed = np.tri(queries, keys, keys - queries, dtype=bool) if causal else None
    if mask is None:
        return allowed
    mask = np.asarray(mask)
    if mask.dtype != np.bool_:
        raise DTypeError(
            f"scaled_dot_product_attention: a mask of {mask.dtype}.",
            "bool; False leaves a key out.",
            "Pass mask > -inf of an additive mask of zeros and -inf.",
        )
    try:
        mask = np.broadcast_to(mask, (*q[:-1], keys)).reshape(*_split(q, k)[1][:-1], keys)
    except ValueError:
        raise ShapeError(
            f"scaled_dot_product_attention: mask is {mask.shape}, scores are {(*q[:-1], keys)}.",
            "a mask that broadcasts to the scores.",
            "Insert axes of length 1 into the mask.",
        ) from None
    return mask if allowed is None else mask & allowed


def _check(q: Shape, k: Shape, v: Shape) -> None:
    ranks = len(q) == len(k) == len(v) >= 2
    fits = ranks and q[-1] == k[-1] and k[:-1] == v[:-1] and q[:-3] == k[:-3]
    if not fits or (len(q) > 2 and (q[-3] % k[-3] if k[-3] else q[-3])):
        raise ShapeError(
            f"scaled_dot_product_attention: q is {q}, k is {k}, v is {v}.",
            "q (..., heads, queries, d), k (..., groups, keys, d), v (..., groups, keys, e), "
            "groups dividing heads.",
            "Move the heads before the positions with permute_dims.",
        )


def _weights(F: Any, q: Any, k: Any, q_shape: Shape, k_shape: Shape, form: dict[str, Any]) -> Any:
    """Queries and keys in groups, and the weights before dropout."""
    q, k = F.reshape(q, shape=_split(q_shape, k_shape)[1]), F.expand_dims(k, axis=-3)
    scores = F.matmul(q, F.matrix_transpose(k)) * _scale(q_shape, form["scale"])
    mask = _mask(q_shape, k_shape, form["mask"], form["causal"])
    return q, k, F.softmax(scores, axis=-1, mask=mask)


def _grouped(F: Any, g: Any, q_shape: Shape, k_shape: Shape) -> Any:
    return F.reshape(g, shape=(*_split(q_shape, k_shape)[1][:-1], g.shape[-1]))


def _thinned(F: Any, x: Any, form: dict[str, Any]) -> Any:
    """Dropout of the weights, or of their cotangent: the same values are kept."""
    return F.dropout(x, rate=form["rate"], draw=form["draw"]) if form["rate"] else x


def _scores(F: Any, g: Any, q: Any, k: Any, v: Any, q_shape: Shape, k_shape: Shape, form: Any) -> Any:
    """Queries and keys in groups, and the cotangent of their products."""
    q, k, weights = _weights(F, q, k, q_shape, k_shape, form)
    values = F.matrix_transpose(F.expand_dims(v, axis=-3))
    d = _thinned(F, F.matmul(_grouped(F, g, q_shape, k_shape), values), form) * weights
    d = d - weights * F.sum(d, axis=-1, keepdims=True)
    return q, k, d * _scale(q_shape, form["scale"])


def _q(
    F: Any, g: Any, q: Any, k: Any, v: Any, q_shape: Shape, k_shape: Shape, mask: Any, causal: bool,
    scale: float | None, rate: float, draw: Draw | None,
) -> Any:  # fmt: skip
    form = {"mask": mask, "causal": causal, "scale": scale, "rate": rate, "draw": draw}
    _, keys, d = _scores(F, g, q, k, v, q_shape, k_shape, form)
    return F.reshape(F.matmul(d, keys), shape=q_shape)


def _k(
    F: Any, g: Any, q: Any, k: Any, v: Any, q_shape: Shape, k_shape: Shape, mask: Any, causal: bool,
    scale: float | None, rate: float, draw: Draw | None,
) -> Any:  # fmt: skip
    form = {"mask": mask, "causal": causal, "scale": scale, "rate": rate, "draw": draw}
    queries, _, d = _scores(F, g, q, k, v, q_shape, k_shape, form)
    return F.sum(F.matmul(F.matrix_transpose(d), queries), axis=-3, keepdims=False)


def _v(
    F: Any, g: Any, q: Any, k: Any, q_shape: Shape, k_shape: Shape, mask: Any, causal: bool,
    scale: float | None, rate: float, draw: Draw | None,
) -> Any:  # fmt: skip
    form = {"mask": mask, "causal": causal, "scale": scale, "rate": rate, "draw": draw}
    weights = _thinned(F, _weights(F, q, k, q_shape, k_shape, form)[2], form)
    product = F.matmul(F.matrix_transpose(weights), _grouped(F, g, q_shape, k_shape))
    return F.sum(product, axis=-3, keepdims=False)


def _sample(rng: np.random.Generator) -> list[Case]:
    def heads(count: int, length: int, d: int = 4) -> Any:
        return rng.standard_normal((2, count, length, d))

    mask = np.array([[True, False, True], [False, False, False]])
    one = rng.standard_normal((3, 3, 4))
    return [
        ((heads(2, 3), heads(2, 3), heads(2, 3)), {"causal": True}),
        ((heads(4, 2), heads(2, 3), heads(2, 3, 3)), {"mask": mask, "scale": 0.7}),
        ((heads(2, 2), heads(1, 3), heads(1, 3)), {"rate": 0.4, "draw": Draw(7, 1)}),
        ((one[0], one[1], one[2]), {}),
    ]


register(
    Op(
        "scaled_dot_product_attention",
        attention,
        {"q": _q, "k": _k, "v": _v},
        accumulates=True,
        sample=_sample,
    )
)
