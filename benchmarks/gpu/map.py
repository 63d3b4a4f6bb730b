"""Element-wise: fused ops of packed and float operands as fractions of a copy, variants, torch beside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import autoq as aq
from autoq.storage import QTensor
from autoq.storage.plan import codec_of
from autoq.storage.tiles import map_tiles
from gpu.dequantize import SAMPLE, VALUES, Stored, on_device, peer

OF_COPY, OF_DENSE_COPY = 0.96, 0.95
OF_TORCH = {"float32": 0.28, "bfloat16": 0.55}
# Launches to compare with the usual ones.
MORE = {
    "nvfp4": ((16, 128, 0), (32, 256, 0), (32, 128, 8)),
    "int8": ((16, 128, 0),),
    "fp8_e4m3": ((32, 128, 8),),
}
BESIDE = {
    "a row": ((8, 128, 0), (32, 128, 0)), "a column": ((16, 128, 0),),
    "a float32 signal": ((4, 256, 0), (16, 256, 0)),
}  # fmt: skip
SAME = ("mxfp8", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp4", "nvfp4", "int8", "int4", "fp8_e4m3")


class Work(NamedTuple):
    """An expression over operands on the device, and what it gives.

    Attributes:
        function: Of NumPy arrays.
        operands: Packed or CuPy arrays.
        sample: The operands of the first rows, on the CPU.
        out: Where the result goes, Packed or a CuPy array.
        scheme: Of a packed result, else None.
    """

    function: Callable[..., Any]
    operands: list[Any]
    sample: list[Any]
    out: Any
    scheme: Any

    @property
    def moved(self) -> int:
        """Bytes that must move: each operand read once, the result written once."""
        return sum(nbytes(x) for x in [*self.operands, self.out])


def run(report: Any) -> None:
    """All of it; what is timed is compared with the CPU first."""
    import cupy

    size = report.size(VALUES, 1 << 16)
    seconds = added(report, cupy, size)
    dense_seconds = dense(report, cupy, size)
    for name in SAME[1:]:
        one = stored(cupy, name, size)
        work = same(cupy, name, np.add, [one, one])
        timed(report, f"{name} + {name} to {name}", work)
        if report.device and name in MORE:
            variants(report, f"{name} + {name}", work, MORE[name])
        del one, work
    unary(report, cupy, size)
    broadcast(report, cupy, size)
    general(report, cupy)
    if report.device and find_spec("torch") is not None:
        peers(report, size, seconds, dense_seconds)


def added(report: Any, cupy: Any, size: int) -> float:
    """Two MXFP8 signals added to one: the row of the table, and its variants."""
    operands = [stored(cupy, "mxfp8", size), stored(cupy, "mxfp8", size, seed=1)]
    work = same(cupy, "mxfp8", np.add, operands)
    seconds = timed(report, "mxfp8 + mxfp8 to mxfp8", work)
    report.bars("mxfp8 + mxfp8, of a copy", work.moved / seconds / report.copy_rate, OF_COPY)
    if report.device:
        variants(report, "mxfp8 + mxfp8", work, ((32, 64, 0), (32, 256, 0), (16, 256, 8)))
    return seconds


def variants(report: Any, name: str, work: Work, choices: Iterable[tuple[int, int, int]]) -> None:
    """The same work in other launches: values a lane, threads a block, waves."""
    for values, threads, waves in choices:
        with setting(values, threads, waves):
            timed(report, f"{name}: {values} values a lane, {threads} threads, {waves} waves", work)


def dense(report: Any, cupy: Any, size: int) -> float:
    """Float operands and results, with 16-byte accesses."""
    x, y = (cupy.random.default_rng(i).standard_normal(size, dtype=np.float32) for i in (0, 1))
    work = floats(cupy, np.add, [x, y], np.float32)
    seconds = timed(report, "float32 + float32", work)
    report.bars("float32 + float32, of a copy", work.moved / seconds / report.copy_rate, OF_DENSE_COPY)
    if report.device:
        variants(report, "float32 + float32", work, ((4, 128, 0),))
    for name, function in (("exp", np.exp), ("gelu", aq.gelu.op.forward), ("sigmoid", aq.sigmoid.op.forward)):
        timed(report, f"{name} of float32", floats(cupy, function, [x], np.float32), exact=False)
    timed(report, "float32 > float32 to bool", floats(cupy, np.greater, [x, y], np.bool_))
    halves = [a.astype(ml_dtypes.bfloat16) for a in (x, y)]
    timed(report, "bfloat16 + bfloat16", floats(cupy, np.add, halves, ml_dtypes.bfloat16))
    timed(report, "float32 + float32, one value off", floats(cupy, np.add, [x[1:], y[:-1]], np.float32))
    return seconds


def unary(report: Any, cupy: Any, size: int) -> None:
    """Activations of packed signals, forward and backward."""
    from autoq.ops.on_device.elementwise import TRACED

    one = stored(cupy, "mxfp8", size)
    for name in ("relu", "gelu", "silu", "tanh"):
        op = aq.tape.op.REGISTRY[name]
        timed(
            report, f"{name} of mxfp8 to mxfp8", same(cupy, "mxfp8", op.forward, [one]), exact=name == "relu"
        )
        timed(
            report, f"{name} of mxfp8 to float32", into_floats(cupy, op.forward, [one]), exact=name == "relu"
        )
    g = cupy.random.default_rng(0).standard_normal(one.shape, dtype=np.float32)
    for name in ("relu", "gelu"):
        rule = partial(aq.tape.op.REGISTRY[name].rules[0].function, TRACED)
        timed(report, f"gradient of {name} of mxfp8", into_floats(cupy, rule, [g, one]), exact=name == "relu")


def broadcast(report: Any, cupy: Any, size: int) -> None:
    """A bias, a column, a mask."""
    one = stored(cupy, "mxfp8", size)
    rows, columns = one.shape
    rng = cupy.random.default_rng(0)
    for name, shape in (("a row", (columns,)), ("a column", (rows, 1)), ("a float32 signal", one.shape)):
        other = rng.standard_normal(shape, dtype=np.float32)
        work = same(cupy, "mxfp8", np.add, [one, other])
        timed(report, f"mxfp8 + {name} to mxfp8", work)
        if report.device:
            variants(report, f"mxfp8 + {name}", work, BESIDE[name])
        timed(report, f"mxfp8 + {name} to float32", into_floats(cupy, np.add, [one, other]))


def general(report: Any, cupy: Any) -> None:
    """The walk by items: odd lengths, transposes."""
    rows = report.size(8192, 64)
    x = np.random.default_rng(0).standard_normal((rows, rows + 1)).astype(np.float32)
    for name in ("mxfp8", "nvfp4"):
        q = QTensor.quantize(x, name)
        work = same(cupy, name, np.add, [whole(cupy, q)] * 2)
        timed(report, f"{name} + {name}, rows of odd length", work)
    square = np.ascontiguousarray(x[:, :rows])
    q, other = QTensor.quantize(square, "mxfp8"), cupy.asarray(square)
    work = into_floats(cupy, np.add, [whole(cupy, q.T), other])
    timed(report, "transposed mxfp8 + float32", work)
    timed(report, "transposed float32 + float32", floats(cupy, np.add, [other.T, other], np.float32))


@contextmanager
def setting(values: int, threads: int, waves: int) -> Iterator[None]:
    """Other launches than the usual ones."""
    from autoq.kernels.cuda import map as maps

    before = maps.WISHES, maps.THREADS, maps.WAVES
    maps._launches.clear()
    maps.WISHES = dict.fromkeys(maps.WISHES, (values,))
    maps.THREADS, maps.WAVES = dict.fromkeys(maps.THREADS, threads), waves
    try:
        yield
    finally:
        maps.WISHES, maps.THREADS, maps.WAVES = before
        maps._launches.clear()


def timed(report: Any, name: str, work: Work, exact: bool = True) -> float:
    """Check one launch, then time it."""
    call = launch(work)
    call()
    report.check(f"{name} as on the CPU", partial(is_right, work, exact))
    return float(report.time(name, call, moved=work.moved))


def launch(work: Work) -> Callable[[], None]:
    """What is timed."""
    from autoq.kernels.cuda.map import mapped
    from autoq.kernels.cuda.trace import traced

    kinds = "".join("b" if getattr(x, "dtype", None) == np.bool_ else "f" for x in work.operands)
    found = traced(work.function, kinds)
    assert found is not None, "an expression"
    return partial(mapped, found.expression, work.operands, found.numbers, work.out)


def is_right(work: Work, exact: bool) -> bool:
    """Whether the first rows have the CPU's bits, or with functions of the library its values, nearly."""
    rows = np.broadcast_shapes(*[x.shape for x in work.sample])[0]
    operands = [x.dequantize() if isinstance(x, QTensor) else x for x in work.sample]
    if work.scheme is None:
        with np.errstate(all="ignore"):
            expected = work.function(*[x if x.dtype == np.bool_ else x.astype(np.float32) for x in operands])
        found = work.out[:rows].get()
        if exact:
            return np.array_equal(found, expected.astype(found.dtype))
        return bool(np.allclose(found, expected, rtol=1e-5, atol=1e-6))
    if work.scheme.tensor_scale or work.scheme.block is None:
        return True  # the scale is of all rows; the tests compare whole tensors
    expected = map_tiles(work.function, work.sample, work.scheme)
    words, scales = work.out.words[:rows].get(), work.out.scales[:rows].get()
    if exact:
        return np.array_equal(words, expected.words) and np.array_equal(scales, expected.scales)
    return bool((words == expected.words).mean() > 0.98)


def stored(cupy: Any, name: str, size: int, seed: int = 0) -> Stored:
    """A packed signal; another seed turns it round."""
    made = on_device(cupy, aq.scheme(name), size)
    if not seed:
        return made
    words, scales, level = made.packed
    sample = made.sample._replace(words=made.sample.words[::-1], scales=made.sample.scales[::-1])
    return made._replace(packed=(words[::-1].copy(), scales[::-1].copy(), level), sample=sample)


def packed(x: Stored) -> Any:
    """A packed signal as kernels take it."""
    from autoq.kernels.cuda.operand import Packed

    return Packed(*x.packed, codec_of(x.scheme), x.scheme.block or (), x.shape)


def sampled(x: Any) -> Any:
    """The first rows on the CPU."""
    if isinstance(x, Stored):
        shape = x.shape[0] // x.times, x.shape[1]
        return QTensor.make(*x.sample, x.scheme, shape)
    return x


def whole(cupy: Any, q: QTensor) -> Any:
    """A small QTensor on the device, which is its own sample."""
    from autoq.kernels.cuda.operand import Packed

    level = None if q.tensor_scale is None else cupy.asarray(np.array(q.tensor_scale))
    order = None if q.layout.is_identity else q.layout.order
    arrays = cupy.asarray(q.words), cupy.asarray(q.scales), level
    return q, Packed(*arrays, codec_of(q.scheme), q.scheme.block or (), q.storage_shape, order)


def parts(operands: list[Any]) -> tuple[list[Any], list[Any], tuple[int, ...]]:
    """Operands on the device, their first rows on the CPU, and the result's shape."""
    there, here, shapes = [], [], []
    rows = min([x.shape[0] // x.times for x in operands if isinstance(x, Stored)], default=None)
    for x in operands:
        if isinstance(x, tuple) and not isinstance(x, Stored):
            q, on = x
            there.append(on)
            here.append(q)
            shapes.append(q.shape)
        elif isinstance(x, Stored):
            there.append(packed(x))
            here.append(sampled(x))
            shapes.append(x.shape)
        else:
            there.append(x)
            head = x if x.ndim == 1 and rows is not None else x[: rows or SAMPLE]
            here.append(head.get())
            shapes.append(x.shape)
    return there, here, np.broadcast_shapes(*shapes)


def same(cupy: Any, name: str, function: Callable[..., Any], operands: list[Any]) -> Work:
    """Work whose result is packed in a named scheme."""
    from autoq.kernels.cuda.operand import Packed
    from autoq.storage.layout import grid_shape, words_shape
    from autoq.storage.plan import plan_of

    there, here, shape = parts(operands)
    scheme = aq.scheme(name)
    plan = plan_of(scheme)
    words = cupy.empty(words_shape(shape, plan.bits), np.uint32)
    scales = cupy.empty(grid_shape(shape, scheme.extents(len(shape))), plan.scale_dtype)
    level = cupy.empty((), np.float32) if scheme.tensor_scale else None
    out = Packed(words, scales, level, codec_of(scheme), scheme.block or (), shape)
    return Work(function, there, here, out, scheme)


def floats(cupy: Any, function: Callable[..., Any], operands: list[Any], dtype: Any) -> Work:
    """Work of float operands with a float or bool result."""
    there, here, shape = parts(operands)
    return Work(function, there, here, cupy.empty(shape, dtype), None)


def into_floats(cupy: Any, function: Callable[..., Any], operands: list[Any]) -> Work:
    """Work whose result is float32."""
    return floats(cupy, function, operands, np.float32)


def nbytes(x: Any) -> int:
    """Bytes of an operand or a result."""
    return int(x.words.nbytes + x.scales.nbytes) if hasattr(x, "words") else int(x.nbytes)


def peers(report: Any, size: int, seconds: float, dense_seconds: float) -> None:
    """torch's float32 and bfloat16 additions and activations; decode, add, encode under torch.compile."""
    import torch

    for dtype in (torch.float32, torch.bfloat16):
        x, y = (torch.randn(size, device="cuda", dtype=dtype) for _ in range(2))
        out = torch.empty_like(x)
        name = str(dtype).removeprefix("torch.")
        moved = 3 * size * dtype.itemsize
        found = report.time(f"torch {name} add", partial(torch.add, x, y, out=out), moved=moved, peer=True)
        report.bars(f"mxfp8 + mxfp8 over torch's {name} add", seconds / found, OF_TORCH[name], at_most=True)
        if dtype == torch.float32:
            report.figure("float32 + float32 over torch's", dense_seconds / found, "of torch's time")
            for other in ("exp", "sigmoid"):
                call = partial(getattr(torch, other), x, out=out)
                peer(report, f"torch {other} of float32", call, 2 * x.nbytes)
            peer(report, "torch gelu of float32", partial(torch.nn.functional.gelu, x), 2 * x.nbytes)
    compiled_peers(report, torch, size)


def compiled_peers(report: Any, torch: Any, size: int) -> None:
    """MXFP8 in and out under torch.compile: a few lines of it."""
    shape = size // 32, 32
    x, y = (torch.randn(shape, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    powers = torch.full((size // 32, 1), 127, device="cuda", dtype=torch.uint8)

    def decode(codes: Any, powers: Any) -> Any:
        return codes.to(torch.float32) * (powers.to(torch.int32) << 23).view(torch.float32)

    def add(x: Any, y: Any, one: Any, two: Any) -> Any:
        total = decode(x, one) + decode(y, two)
        amax = total.abs().amax(dim=1, keepdim=True)
        power = torch.ceil(torch.log2(amax / 448.0)).clamp(-127, 127)
        return (total * torch.exp2(-power)).to(torch.float8_e4m3fn), (power + 127).to(torch.uint8)

    call = partial(torch.compile(add), x, y, powers, powers.clone())
    peer(report, "torch.compile mxfp8 + mxfp8 to mxfp8", call, 3 * (x.nbytes + powers.nbytes))
