"""Small programs that quantize: what casts, encodes and events are checked with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import autoq as aq
from autoq.tape.apply import apply
from autoq.tape.op import Op
from autoq.testing import check_grads, check_production

Program = Callable[..., Any]


def arrays(count: int = 2) -> list[np.ndarray]:
    """float32 (2, 32) each."""
    return list(np.random.default_rng(5).standard_normal((count, 2, 32)).astype(np.float32))


def quantized(x: Any) -> Any:
    return aq.tanh(x.quantize(aq.mxfp4)) ** 2


def clipped(x: Any) -> Any:
    given = np.full((2, 1), 0.2, np.float32)
    return aq.tanh(aq.quantize(x, aq.int4, ste="clip", scales=given)) ** 2


def dequantized(x: Any) -> Any:
    return aq.sin(x.quantize(aq.int4).dequantize()) * x


def cast(x: Any) -> Any:
    return aq.sin(x.quantize(aq.int4).dequantize().astype(aq.float64)) * x.astype(aq.float64)


def kept_apart(x: Any) -> Any:
    return aq.sin(x.quantize(aq.int4).inhibit()) * x


def moved(x: Any) -> Any:
    return apply("to_device", aq.tanh(x.quantize(aq.mxfp4)), device=x.device) * x


def with_quantized_gradient(x: Any) -> Any:
    return aq.sin(aq.quantize_grad(aq.tanh(x.quantize(aq.mxfp8)), aq.int4))


def with_learned_step(x: Any, step: Any) -> Any:
    return aq.tanh(aq.quantize(x, aq.int4, ste=aq.learned_step(step))) ** 2


def with_learned_clip(x: Any, level: Any) -> Any:
    return aq.tanh(aq.quantize(x, aq.int4, ste=aq.learned_clip(level))) ** 2


def layers(x: Any, y: Any) -> Any:
    """Encodes of one shape, one after the other, each read by the next."""
    h = x.quantize(aq.mxfp4)
    h = aq.tanh(h) * aq.exp(h)
    return aq.sin(h * y.quantize(aq.mxfp4))


def packed(op: Op, operands: tuple[Any, ...], static: dict[str, Any]) -> tuple[Program, list[Any]]:
    """The op on quantized operands, squared, as a program of its float operands."""
    from tests.ops.registry import run

    moving = [i for i, x in enumerate(operands) if np.ndim(x) and np.asarray(x).dtype.kind == "f"]

    def program(*inputs: Any) -> Any:
        found = dict(zip(moving, inputs, strict=True))
        given = [found[i].quantize(aq.int4) if i in found else x for i, x in enumerate(operands)]
        return aq.sin(run(op, given, static))

    return program, [operands[i].astype(np.float32) for i in moving]


LEARNED = np.array([[0.1], [0.2]], np.float32)  # some values saturate
CASTS: dict[str, list[tuple[Program, list[np.ndarray]]]] = {
    "quantize": [(quantized, arrays(1)), (clipped, arrays(1))],
    "dequantize": [(dequantized, arrays(1))],
    "astype": [(cast, arrays(1))],
    "identity": [(kept_apart, arrays(1))],
    "to_device": [(moved, arrays(1))],
    "quantize_grad": [(with_quantized_gradient, arrays(1))],
    "quantize_learned_step": [(with_learned_step, [*arrays(1), LEARNED])],
    "quantize_learned_clip": [(with_learned_clip, [*arrays(1), 7 * LEARNED])],
}


def frozen(program: Program, inputs: list[np.ndarray]) -> None:
    """The gradient check through rounding."""
    check_grads(program, *inputs, order=1, directions=2, through_rounding=True, allow_vacuous=True)


def production(program: Program, inputs: list[np.ndarray]) -> None:
    """The production path against the float64 one."""
    check_production(program, *inputs)


def casts(name: str) -> list[tuple[str, Callable[[], None]]]:
    """What a cast's rules are checked by."""
    return [
        (check.__name__, partial(check, program, inputs))
        for program, inputs in CASTS[name]
        for check in (frozen, production)
    ]
