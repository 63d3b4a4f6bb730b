"""aq.explain: what an explanation says is what happened, counted independently."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.context import OBSERVERS, Observer, current, observing
from autoq.storage import convert
from autoq.tape.reasons import reason

RNG = np.random.default_rng(0)


def signal(dtype: Any = aq.float32, shape: tuple[int, ...] = (4, 64), tracked: bool = False) -> Any:
    x = aq.tensor(RNG.standard_normal(shape).astype(np.float32), requires_grad=tracked)
    return x if dtype == aq.float32 else x.astype(dtype)


def only(function: Any, *args: Any) -> Any:
    (step,) = aq.explain(function, *args)
    return step


W = aq.Parameter(RNG.standard_normal((64, 64)).astype(np.float32))
Q4 = aq.Parameter(RNG.standard_normal((64, 64)).astype(np.float32)).quantize(aq.nvfp4)
# What is called, the dtype it gives, and what the reason has to say.
REASONS = [
    (lambda x: x.quantize(aq.mxfp8), aq.float32, "mxfp8", ["S3"]),
    (lambda x: x * 2, aq.mxfp8, "mxfp8", ["S7: a votes mxfp8"]),
    (lambda x: x @ W, aq.mxfp8, "mxfp8", ["S7: a votes mxfp8", "b float32 inhibits (S9)"]),
    (lambda x: x + signal(aq.float16), aq.mxfp8, "float16", ["S7: the widest of a mxfp8, b float16"]),
    (lambda x: x + signal(aq.bfloat16), aq.float16, "float32", ["S7", "equally wide", "float32"]),
    (lambda x: x + signal(aq.mxfp8_e5m2), aq.mxfp8, "float32", ["equally wide"]),
    (lambda x: x + signal(aq.mxfp8.replace(scale_rule="floor")), aq.mxfp8, "mxfp8", ["S8"]),
    (lambda x: x @ signal(aq.mxfp8, (8, 64)).mT, aq.mxfp8, "mxfp8", ["S7: a, b vote mxfp8"]),
    (lambda x: Q4.relu(), aq.float32, "float32", ["S6", "S10"]),
    (lambda x: W.relu(), aq.float32, "float32", ["S6: nothing propagates: x float32"]),
    (lambda x: x * aq.tensor(2.0), aq.mxfp8, "mxfp8", ["b has no axis (S5)"]),
    (lambda x: x.relu(out_dtype=aq.float16), aq.mxfp8, "float16", ["S14"]),
    (lambda x: x.sum(), aq.mxfp8, "float32", ["S7: x votes mxfp8", "S13", "axis"]),
    (lambda x: x.mean(-1, keepdims=True), aq.mxfp8, "float32", ["S13", "statistics"]),
    (lambda x: x.T, aq.mxfp8, "mxfp8", ["S4"]),
    (lambda x: W[np.array([1])], aq.float32, "float32", ["S10"]),
    (lambda x: x[:, 20:40], aq.mxfp8, "mxfp8", ["S36"]),
    (lambda x: x > 0, aq.mxfp8, "bool", ["S16"]),
    (lambda x: aq.exp(np.arange(3)), aq.float32, "float32", ["S5"]),
    (lambda x: aq.cross_entropy(x, np.zeros(4, int)), aq.mxfp8, "float32", ["S14"]),
]


@pytest.mark.parametrize("case", range(len(REASONS)))
def test_the_reason_names_the_rule_that_decided(case: int) -> None:
    function, dtype, result, said = REASONS[case]
    step = aq.explain(function, signal(dtype))[-1]
    assert step.type.dtype.name == result
    for part in said:
        assert part in step.why


@pytest.mark.parametrize("scheme", [aq.mxfp8, aq.nvfp4, aq.mxfp8_2d, aq.fp8_e4m3], ids=lambda s: s.name)
def test_decodes_are_those_that_storage_does(scheme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    original = convert._decode

    def counted(words: Any, scales: Any, tensor_scale: Any, plan: Any, out: Any) -> None:
        counts.append(out.size)
        original(words, scales, tensor_scale, plan, out)

    monkeypatch.setattr(convert, "_decode", counted)
    with aq.default_device("cpu"):  # kernels of a GPU decode while they compute
        q = signal(scheme, (64, 96))

    def program(q: Any) -> Any:
        y = (q * 2).relu()[:, 5:70]
        return aq.concat([y, y], 1).T.reshape(-1)[None]

    explained = aq.explain(program, q)
    assert sum(step.decodes for step in explained) == len(counts)
    assert sum(step.decoded for step in explained) == sum(counts)


def test_tiled_ops_count_values_and_not_only_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoq.storage.tiles.TILE", 512)
    monkeypatch.setattr("autoq.tape.apply.TILED_FROM", 512)
    q = signal(aq.mxfp8, (32, 64))
    step = only(lambda q: q * 2, q)
    assert step.decoded == step.encoded == q.size
    step = only(lambda q: q * 2, q.to("cpu"))
    assert step.decoded == step.encoded == q.size
    assert step.decodes > 1


@pytest.mark.parametrize("scheme", [aq.mxfp8, aq.nvfp4, aq.mxfp8_2d, aq.fp8_e4m3], ids=lambda s: s.name)
def test_packed_operands_count_however_many_kernels_ran(scheme: Any) -> None:
    q, w = signal(scheme, (64, 96)), signal(scheme, (96, 96))
    steps = aq.explain(lambda q, w: (q * q + 1.0, q @ w.T, (q > 0).sum(), q.softmax(), q.sum(-1)), q, w)
    assert [(s.op, s.decoded) for s in steps if s.decoded] == [
        *(("mul", 2 * q.size), ("add", q.size), ("matmul", q.size + w.size), ("greater", q.size)),
        *(("softmax", q.size), ("sum", q.size)),
    ]
    assert [(s.op, s.encoded) for s in steps if s.encoded] == [
        *((name, q.size) for name in ("mul", "add", "matmul", "softmax")),
        ("sum", 64),
    ]


def test_how_layout_ops_moved_values_is_said() -> None:
    q = signal(aq.mxfp8)
    assert only(lambda q: q.T, q).how == "view"
    copied = only(lambda q: aq.concat([q, q]), q)
    assert (copied.how, copied.copied) == ("copy", 2 * q.nbytes)
    cut = aq.explain(lambda q: q[:, 20:40], q)
    assert [s.op for s in cut.reencoded] == ["getitem"]
    assert (cut[0].decoded, cut[0].encoded) == (256, 80)
    assert "slice(20, 40, None)" in str(cut)
    assert "encoded again (S36)" in str(cut)
    dense = signal()
    assert only(lambda x: x.T, dense).how == "view"
    assert [s.how for s in aq.explain(lambda x: x.T.reshape(-1), dense)] == ["view", "copy"]


def test_saved_bytes_are_those_of_the_tape() -> None:
    x = signal(tracked=True)
    explained = aq.explain(lambda x: (x.quantize(aq.mxfp8) @ W).relu().dequantize().sum(), x)
    tape = aq.Tape.of(explained.result)
    assert explained.saved_bytes == tape.saved_bytes > 0
    assert [s.saved_bytes for s in explained] == [e.saved_bytes for e in tape if e.op != "leaf"]


def test_backward_steps_are_listed_with_what_they_decode() -> None:
    x = signal(tracked=True)
    explained = aq.explain(lambda x: x.quantize(aq.mxfp8).relu().dequantize().sum().backward(), x)
    backward = [(s.op, s.decoded) for s in explained if s.backward]
    assert backward == [("sum", 0), ("dequantize", 0), ("relu", 256), ("quantize", 0)]
    again = aq.explain(lambda x: aq.grad(lambda x: aq.grad(lambda x: (x**3).sum())(x).sum())(x), x.detach())
    assert {s.op for s in again if s.backward} >= {"pow", "sum", "mul"}


def test_explaining_changes_nothing() -> None:
    x = signal(tracked=True)

    def program(x: Any) -> Any:
        q = x.quantize(aq.nvfp4)
        return ((q @ W).gelu()[:, 3:50] * 0.5).T.reshape(-1).dequantize().sum()

    plain = program(x)
    plain.backward()
    expected, x.grad = x.grad.numpy(), None
    explained = aq.explain(program, x)
    explained.result.backward()
    assert explained.result.item() == plain.item()
    assert np.array_equal(x.grad.numpy(), expected)
    assert str(aq.Tape.of(explained.result)).splitlines()[1:] == str(aq.Tape.of(plain)).splitlines()[1:]


def test_an_error_inside_goes_through_and_leaves_no_observer() -> None:
    with pytest.raises(aq.errors.ShapeError):
        aq.explain(lambda x: x @ x, signal())
    assert OBSERVERS == []
    assert current().observer is None


def test_another_thread_is_not_explained() -> None:
    x = signal(aq.mxfp8)
    done: list[Any] = []

    def program(x: Any) -> Any:
        thread = threading.Thread(target=lambda: done.append((x * 3).relu()))
        thread.start()
        thread.join()
        return x * 2

    assert [s.op for s in aq.explain(program, x)] == ["mul"]
    assert done[0].dtype == aq.mxfp8


def test_arithmetic_of_floats_is_seen_though_it_takes_a_short_way_otherwise() -> None:
    assert [s.op for s in aq.explain(lambda x: x + x - 1.0, signal())] == ["add", "sub"]


def test_it_prints_and_shows_as_a_table() -> None:
    explained = aq.explain(lambda x: x * 2, signal(aq.mxfp8))
    assert str(explained).splitlines()[0].split()[:4] == ["#", "op", "inputs", "output"]
    html = explained._repr_html_()
    assert html.startswith("<table>")
    assert "mul" in html
    assert len(explained) == 1
    assert next(iter(explained)) is explained[0]
    assert str(aq.explain(lambda: None)).startswith("0 steps")


def test_an_inner_observer_takes_the_place_of_an_outer_one() -> None:
    class Names(Observer):
        def __init__(self) -> None:
            self.names: list[str] = []

        def op(self, proceed: Any, op: Any, operands: Any, static: Any, out_dtype: Any) -> Any:
            self.names.append(op.name)
            return proceed(op, operands, static, out_dtype)

    x = signal()
    outer, inner = Names(), Names()
    with observing(outer):
        _ = x + 1
        with observing(inner):
            _ = x * 2
        _ = x - 1
    assert (outer.names, inner.names) == (["add", "sub"], ["mul"])


def test_reasons_of_custom_ops_read_like_those_of_built_in_ones() -> None:
    op = aq.custom_op(lambda x, scale: x * scale, not_differentiable="a test", name="scaled")
    x = signal(aq.mxfp8)
    assert aq.explain(op, x, W[0].detach())[-1].why == "S7: x votes mxfp8; scale float32 inhibits (S9)"
    assert reason(op.op, (x, 2.0), None, x.tensor_type) == "S7: x votes mxfp8"


def test_a_tensor_shares_memory_with_its_views_only() -> None:
    for q in (signal(aq.mxfp8), signal()):
        assert q.T.shares_memory(q)
        assert q[1:].shares_memory(q)
        assert q.T.shares_memory(q.value)
        assert not (q * 1).shares_memory(q)
        assert q.is_contiguous
        assert not q[:, :32].is_contiguous
    assert not signal().T.is_contiguous
