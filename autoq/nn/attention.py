"""Self-attention with heads that may share keys and values, and positions turned into angles."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.nn.linear import Linear
from autoq.nn.module import Module
from autoq.nn.setting import dtype_setting, setting_text
from autoq.nn.weighted import check_size, described
from autoq.ops.attention import scaled_dot_product_attention
from autoq.random import Generator
from autoq.schemes.scheme import QuantScheme
from autoq.tape.apply import apply


class MultiHeadAttention(Module):
    """Every position's mean of the values of all, weighted by how well its query fits their keys.

    Four Linears around one op: scores and their softmax stay in float, whatever the signal is (S47, S48).

    Source: Vaswani et al., "Attention Is All You Need", 2017; grouped heads: Ainslie et al., "GQA", 2023;
    rotary positions: Su et al., "RoFormer", 2021.

    Args:
        features: Last axis of input and output, ``x: (..., length, features)``.
        heads: How many heads; divides ``features``.
        kv_heads: How many heads of keys and values, each shared by ``heads / kv_heads``; None for as many.
        causal: Leave out positions that come later.
        rope_base: Turn queries and keys by their positions, with this base (10000 is usual); None doesn't.
        dropout: Probability with which weights are dropped in training.
        bias: Whether the Linears have one.
        weight_scheme: Scheme of the weights of all four Linears.
        rng: Generator of the starting values, and of dropout.
        signal: Dtype or scheme of what attention hands to the last Linear; None follows the input.
        out_dtype: Dtype or scheme of the output; None follows that.
        dtype: Float dtype of the parameters.

    Raises:
        ArgumentError: Without a generator, for sizes that don't divide, or an odd head size with rope.

    Example:
        >>> import autoq as aq
        >>> layer = aq.nn.MultiHeadAttention(64, 4, kv_heads=2, causal=True, rng=aq.Generator(0))
        >>> layer
        MultiHeadAttention(4, kv_heads=2, causal=True
          (query): Linear(64, 64)
          (key): Linear(64, 32)
          (value): Linear(64, 32)
          (output): Linear(64, 64)
        )
        >>> layer(aq.zeros((2, 5, 64))).shape
        (2, 5, 64)
    """

    def __init__(
        self, features: int, heads: int, *, kv_heads: int | None = None, causal: bool = False,
        rope_base: float | None = None, dropout: float = 0.0, bias: bool = True,
        weight_scheme: QuantScheme | None = None, rng: Generator | None = None, signal: Any = None,
        out_dtype: Any = None, dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        size = _head_size(features, heads, self.kv_heads, rope_base)
        if not 0 <= dropout < 1:
            raise ArgumentError(
                f"MultiHeadAttention: dropout is {dropout!r}.", "0 <= dropout < 1", "Pass a probability."
            )
        self.causal, self.rope_base, self.dropout, self.rng = causal, rope_base, dropout, rng
        self.signal = dtype_setting(signal)
        options: Any = {"weight_scheme": weight_scheme, "rng": rng, "dtype": dtype}
        self.query = Linear(features, heads * size, bias, **options)
        self.key = Linear(features, self.kv_heads * size, bias, **options)
        self.value = Linear(features, self.kv_heads * size, bias, **options)
        self.output = Linear(heads * size, features, bias, out_dtype=out_dtype, **options)

    def forward(self, x: Any, mask: Any = None, positions: Any = None) -> Any:
        """``x: (..., length, features)`` to the same shape.

        Args:
            x: The signal.
            mask: Bool, broadcasts to ``(..., heads, length, length)``; False leaves a position out.
            positions: For rope, numbers that broadcast to ``(..., length)``; None counts from 0.
        """
        y = scaled_dot_product_attention(
            self._turned(self.query(x), positions, self.heads),
            self._turned(self.key(x), positions, self.kv_heads),
            self.value(x),
            mask,
            self.causal,
            heads=self.heads,
            kv_heads=self.kv_heads,
            dropout=self.dropout if self.training else 0.0,
            rng=self.rng,
            out_dtype=self.signal,
        )
        return self.output(y)

    def describe(self) -> str:
        """The heads and what differs from the defaults."""
        given = {
            "kv_heads": None if self.kv_heads == self.heads else self.kv_heads,
            "causal": self.causal or None,
            "rope_base": self.rope_base,
            "dropout": self.dropout or None,
        }
        texts = [f"{key}={value!r}" for key, value in given.items() if value is not None]
        return described(str(self.heads), *texts, setting_text(signal=self.signal))

    def _turned(self, x: Any, positions: Any, heads: int) -> Any:
        """Queries or keys turned by their positions, if there is rope."""
        if self.rope_base is None:
            return x
        return apply("rope", x, positions=positions, base=self.rope_base, heads=heads)


def _head_size(features: Any, heads: Any, kv_heads: Any, rope_base: float | None) -> int:
    for name, size in (("features", features), ("heads", heads), ("kv_heads", kv_heads)):
        check_size("MultiHeadAttention", name, size)
    if features % heads or heads % kv_heads:
        raise ArgumentError(
            f"MultiHeadAttention: {features} features, {heads} heads, {kv_heads} of keys and values.",
            "heads that divide the features, kv_heads that divide the heads",
            "Choose divisors.",
        )
    if rope_base is not None and features // heads % 2:
        raise ArgumentError(
            f"MultiHeadAttention: rope on heads of {features // heads} features.",
            "an even number",
            "Use fewer heads, or no rope.",
        )
    return int(features // heads)
