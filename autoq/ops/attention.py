"""Scaled dot-product attention as one op: scores and their softmax stay in float, so that no mask and no
weight ever meets a quantizer (S47, S48)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autoq.devices import array_namespace, beside, on_gpu
from autoq.errors import ArgumentError, DTypeError, ShapeError
from autoq.ops.arguments import array, number, whole
from autoq.ops.axes import Shape
from autoq.ops.samples import Case
from autoq.random import Draw
from autoq.tape.apply import apply
from autoq.tape.beside import held
from autoq.tape.namespace import RAW, RAW_ON_DEVICE
from autoq.tape.op import Op, register

if TYPE_CHECKING:
    from autoq.random import Generator
    from autoq.tape.tensor import Tensor


_NAME = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None,
    *, heads: int | None = None, kv_heads: int | None = None, dropout: float = 0.0,
    rng: Generator | None = None, out_dtype: Any = None,
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
        heads: With it, heads lie side by side on the last axis, as a Linear makes them, and packed operands
            need not be cut between them: q (..., queries, heads * d), the result (..., queries, heads * e).
        kv_heads: How many heads k and v then hold, (..., keys, kv_heads * d); None for as many.
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
    if number(_NAME, "dropout", dropout):
        if rng is None:
            raise ArgumentError(
                f"{_NAME}: dropout without a generator.",
                "rng=aq.Generator(seed)",
                "Pass rng=, so that the draws can be repeated.",
            )
        draw = rng.draw("scaled_dot_product_attention")
    return apply(
        "scaled_dot_product_attention", q, k, v, mask=mask, causal=causal, scale=scale, heads=heads,
        kv_heads=kv_heads, rate=float(dropout), draw=draw, out_dtype=out_dtype,
    )  # fmt: skip


def attention(
    q: Any, k: Any, v: Any, *, mask: Any = None, causal: bool = False, scale: float | None = None,
    heads: int | None = None, kv_heads: int | None = None, rate: float = 0.0, draw: Draw | None = None,
) -> Any:  # fmt: skip
    """The forward of `scaled_dot_product_attention`, with the draw of its dropout as an argument."""
    groups = _side_by_side(heads, kv_heads)
    q, k, v = _opened(_Raw, q, heads), _opened(_Raw, k, groups), _opened(_Raw, v, groups)
    _check(q.shape, k.shape, v.shape)
    F = RAW_ON_DEVICE if on_gpu(q) else RAW
    scores = F.matmul(q.reshape(_grouped(q.shape, k.shape)), np.swapaxes(np.expand_dims(k, -3), -1, -2))
    scores *= _scale(q.shape, scale)
    weights = F.softmax(scores, axis=-1, mask=_mask(q, q.shape, k.shape, mask, causal))
    if rate and draw is not None:
        weights = F.dropout(weights, rate=rate, draw=draw)
    y = F.matmul(weights, np.expand_dims(v, -3)).reshape(*q.shape[:-1], v.shape[-1])
    return _closed(_Raw, y, heads)


class _Raw:
    """What `_opened` and `_closed` take of the op namespace, on arrays."""

    @staticmethod
    def reshape(x: Any, shape: Shape) -> Any:
        return x.reshape(shape)

    @staticmethod
    def permute_dims(x: Any, axes: Shape) -> Any:
        return x.transpose(axes)


def _side_by_side(heads: int | None, kv_heads: int | None) -> int | None:
    """How many heads of keys and values lie side by side."""
    for what, count in (("heads", heads), ("kv_heads", kv_heads)):
        if count is not None:
            whole(_NAME, what, count, least=1)
    if heads is None and kv_heads is not None:
        raise ArgumentError(
            f"{_NAME}: kv_heads={kv_heads} without heads.",
            "heads= too, for operands with heads side by side.",
            "Pass heads=, or operands with an axis of heads alone.",
        )
    return heads if kv_heads is None else kv_heads


def _opened(F: Any, x: Any, heads: int | None) -> Any:
    """Heads that lie side by side, (..., n, heads * d), as (..., heads, n, d)."""
    if heads is None:
        return x
    if len(x.shape) < 2 or x.shape[-1] % heads:
        raise ShapeError(
            f"{_NAME}: an operand of shape {x.shape} as {heads} heads.",
            "(..., length, heads * d).",
            "Give the number of heads that the last axis holds.",
        )
    x = F.reshape(x, shape=(*x.shape[:-1], heads, x.shape[-1] // heads))
    return F.permute_dims(x, axes=_swapped(len(x.shape)))


def _closed(F: Any, x: Any, heads: int | None) -> Any:
    """The way back."""
    if heads is None:
        return x
    x = F.permute_dims(x, axes=_swapped(len(x.shape)))
    return F.reshape(x, shape=(*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def _swapped(rank: int) -> Shape:
    return (*range(rank - 3), rank - 2, rank - 3, rank - 1)


def _grouped(q: Shape, k: Shape) -> Shape:
    """q's shape with its heads as groups of those that share keys."""
    if len(q) == 2:
        return (1, *q)
    return (*q[:-3], k[-3], q[-3] // k[-3] if k[-3] else 1, *q[-2:])


def _scale(q: Shape, scale: float | None) -> float:
    return 1.0 / math.sqrt(q[-1] or 1) if scale is None else number(_NAME, "scale", scale)


def _mask(other: Any, q: Shape, k: Shape, mask: Any, causal: bool) -> Any:
    """The mask of the grouped scores on the device of another array, or None if no key is left out."""
    queries, keys = q[-2], k[-2]
    allowed = array_namespace(other).tri(queries, keys, keys - queries, dtype=bool) if causal else None
    if mask is None:
        return allowed
    mask = beside(array(_NAME, "mask", mask), other)
    if mask.dtype != np.bool_:
        raise DTypeError(
            f"{_NAME}: a mask of {mask.dtype}.",
            "bool; False leaves a key out.",
            "Pass mask == 0 of an additive mask of zeros and -inf.",
        )
    try:
        mask = np.broadcast_to(mask, (*q[:-1], keys)).reshape(*_grouped(q, k)[:-1], keys)
    except ValueError:
        raise ShapeError(
            f"{_NAME}: mask is {mask.shape}, scores are {(*q[:-1], keys)}.",
            "a mask that broadcasts to the scores.",
            "Insert axes of length 1 into the mask.",
        ) from None
    return mask if allowed is None else mask & allowed


def _check(q: Shape, k: Shape, v: Shape) -> None:
    ranks = len(q) == len(k) == len(v) >= 2
    fits = ranks and q[-1] == k[-1] and k[:-1] == v[:-1] and q[:-3] == k[:-3]
    if not fits or (len(q) > 2 and (q[-3] % k[-3] if k[-3] else q[-3])):
        raise ShapeError(
            f"{_NAME}: q is {q}, k is {k}, v is {v}.",
            "q (..., heads, queries, d), k (..., groups, keys, d), v (..., groups, keys, e), "
            "groups dividing heads.",
            "Move the heads before the positions with permute_dims.",
        )


class _Shared(NamedTuple):
    """What the rules have in common.

    Attributes:
        queries, keys, values: With an axis of the heads that share keys.
        weights: Before dropout.
        shape: That of q with its heads on an axis.
        heads: How many lie side by side in q and the result, in k and v; None where they have an axis.
    """

    queries: Any
    keys: Any
    values: Any
    weights: Any
    shape: Shape
    scale: float
    heads: tuple[int | None, int | None]
    rate: float
    draw: Draw | None


def _shared(
    F: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None,
    heads: int | None, kv_heads: int | None, rate: float, draw: Draw | None,
) -> _Shared:  # fmt: skip
    """The forward's weights, computed again for all rules at once."""
    groups = _side_by_side(heads, kv_heads)
    q, k, v = _opened(F, q, heads), _opened(F, k, groups), _opened(F, v, groups)
    factor = _scale(q.shape, scale)
    queries, keys = F.reshape(q, shape=_grouped(q.shape, k.shape)), F.expand_dims(k, axis=-3)
    scores = F.matmul(queries, F.matrix_transpose(keys)) * factor
    weights = F.softmax(scores, axis=-1, mask=_mask(held(q), q.shape, k.shape, mask, causal))
    values = F.expand_dims(v, axis=-3)
    return _Shared(queries, keys, values, weights, q.shape, factor, (heads, groups), rate, draw)


def _thinned(F: Any, x: Any, shared: _Shared) -> Any:
    """Dropout of the weights, or of their cotangent: the same values are kept."""
    return F.dropout(x, rate=shared.rate, draw=shared.draw) if shared.rate else x


def _grouped_cotangent(F: Any, g: Any, shared: _Shared) -> Any:
    """The result's cotangent with an axis of the heads that share keys."""
    g = _opened(F, g, shared.heads[0])
    return F.reshape(g, shape=(*shared.queries.shape[:-1], g.shape[-1]))


def _scores(F: Any, g: Any, shared: _Shared) -> Any:
    """The cotangent of the products of queries and keys."""
    products = F.matmul(_grouped_cotangent(F, g, shared), F.matrix_transpose(shared.values))
    d = _thinned(F, products, shared) * shared.weights
    d = d - shared.weights * F.sum(d, axis=-1, keepdims=True)
    return d * shared.scale


def _q(F: Any, g: Any, shared: _Shared) -> Any:
    found = F.matmul(_scores(F, g, shared), shared.keys)
    return _closed(F, F.reshape(found, shape=shared.shape), shared.heads[0])


def _k(F: Any, g: Any, shared: _Shared) -> Any:
    found = F.matmul(F.matrix_transpose(_scores(F, g, shared)), shared.queries)
    return _closed(F, F.sum(found, axis=-3, keepdims=False), shared.heads[1])


def _v(F: Any, g: Any, shared: _Shared) -> Any:
    weights = F.matrix_transpose(_thinned(F, shared.weights, shared))
    found = F.matmul(weights, _grouped_cotangent(F, g, shared))
    return _closed(F, F.sum(found, axis=-3, keepdims=False), shared.heads[1])


def _sample(rng: np.random.Generator) -> list[Case]:
    def heads(count: int, length: int, d: int = 4) -> Any:
        return rng.standard_normal((2, count, length, d))

    mask = np.array([[True, False, True], [False, False, False]])
    one, side = rng.standard_normal((3, 3, 4)), rng.standard_normal((3, 3, 8))
    return [
        ((heads(2, 3), heads(2, 3), heads(2, 3)), {"causal": True}),
        ((heads(4, 2), heads(2, 3), heads(2, 3, 3)), {"mask": mask, "scale": 0.7}),
        ((heads(2, 2), heads(1, 3), heads(1, 3)), {"rate": 0.4, "draw": Draw(7, 1)}),
        ((one[0], one[1], one[2]), {}),
        ((side[0], side[1, :, :4], side[2, :, :4]), {"heads": 4, "kv_heads": 2, "causal": True}),
        ((side[:2], side[1:, :, ::-1], side[::2]), {"heads": 2}),
    ]


register(
    Op(
        "scaled_dot_product_attention",
        attention,
        {"q": _q, "k": _k, "v": _v},
        accumulates=True,
        shared=_shared,
        sample=_sample,
    )
)
