"""The table of layout ops in the docs: as the rules S34 to S36 say, and as a count of decodes finds it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autoq as aq
from autoq.context import Observer, observing
from autoq.devices import same_memory
from autoq.storage import QTensor, convert, device, encoding, move, packing, readers
from autoq.storage.plan import Kernels, kernels
from autoq.tape.op import REGISTRY
from tests.examples import scaled
from tests.storage.tensors import (
    DEVICE,
    SCHEMES,
    check_invariants,
    names,
    quantized,
    same_floats,
    shapes,
    small_names,
    values,
)

PATH = Path(__file__).parents[2] / "docs" / "layout_table.py"
spec = importlib.util.spec_from_file_location("layout_table", PATH)
assert spec
assert spec.loader
table: Any = importlib.util.module_from_spec(spec)
sys.modules["layout_table"] = table
spec.loader.exec_module(table)

# By the letter of S34 to S36, one mark a kind of block in the table's order: v metadata, c copy, d decode.
# 32 last | 32 at -2 | 16 last, 2 levels | 32 x 32 | 16 x 16, 2 levels | whole, 8 bits | whole, 4 bits
LETTER = """
permute_dims      vvvvvvv permutes the blocks with the axes
transpose         vvvvvvv
matrix_transpose  vvvvvvv
expand_dims       vvvvvvv
expand_dims       vvvvvvv
squeeze           vvvvvvv
reshape           vcvvvvv merging leading axes of a contiguous tensor; the transposed one is not
reshape           vvvvvvv splitting leading axes
reshape           vvvvvvv splitting the last axis at whole blocks
reshape           cvcccvv pieces that aren't whole blocks; of whole tensors, 8 values are whole words
reshape           vdvddvv merging lines of whole blocks; blocks across lines can't follow
reshape           dddddvv a partial block in the middle of a line
reshape           dvdddcc pieces of 9 values: no block follows, no word edge
broadcast_to      vvvvvvv an axis that no block spans
broadcast_to      vvvvvvv
broadcast_to      vcvccvv
broadcast_to      cvccccc lines of one value repeated: other words
getitem           vvvvvvv an axis that no block spans
getitem           vvvvvvv any step, negative included
getitem           vvvvvvv from block edge to block edge
getitem           vdvddvv
getitem           vdvddvv
getitem           vdvddvv
getitem           vvvvvvv from block and word edge to block edge
getitem           vvvvvvv to the axis' end
getitem           cvcccvc starts on a block edge, ends inside a block; 4 bits: off a word
getitem           cvccccc ends off a word
getitem           dvdddvc starts inside a block; of whole tensors words decide
getitem           dvdddcc
getitem           dvdddcc
getitem           vvvvvvv
getitem           ccccccc take of rows
getitem           ccccccc
getitem           cdcddcc lines by two arrays: whole lines, but axis -2 must not be in a block
take              ccccccc
take              ccccccc places 3, 0, 0 of a blocked axis lie in one block
take              ccccccc
take              dcdddcc places of two blocks
flip              vvvvvvv
flip              vcvccvv whole blocks of a blocked axis
flip              cvccccc
flip              dvdddcc a flip over a partial block
split             vvvvvvv
split             vvvvvvv
concat            ccccccc where scales of whole tensors agree
concat            ccccccc
concat            ccccccc
concat            dcdddcc after a partial block
concat            ccdcddd scales of whole tensors disagree
stack             ccccccc
stack             ccccccc
pad               ccccccc
pad               ccccccc
pad               dcdddcc
repeat            ccccccc
repeat            ccccccc
tile              ccccccc
tile              ccccccc
tile              dcdddcc a partial block in the middle of a line
roll              ccccccc
roll              ccccccc
roll              dcdddcc
diagonal          dddddcc one of the axes is always a block's
diagonal          cdcddcc whole lines, unless axis -2 is in a block
embedding         ccccccc
contiguous        vvvvvvv
contiguous        ccccccc
"""
MARKS = {"v": "view", "c": "copy", "d": "decode"}
EXPECTED = [line.split()[:2] for line in LETTER.strip().splitlines()]
ROWS = [pytest.param(i, id=f"{case.op}-{i}") for i, case in enumerate(table.CASES)]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what is decoded, counted where storage decodes and not by the observer."""
    counts: list[int] = []

    def counting(function: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            counts.append(1)
            return function(*args, **kwargs)

        return counted

    monkeypatch.setattr(convert, "_decode", counting(convert._decode))
    monkeypatch.setattr(device, "decode", counting(device.decode))
    monkeypatch.setattr(readers, "_packed_lines", counting(readers._packed_lines))
    return counts


@pytest.mark.compiled
@pytest.mark.parametrize("row", ROWS)
def test_a_case_takes_what_the_rules_say(row: int, decoded: list[int]) -> None:
    case, (op, marks) = table.CASES[row], EXPECTED[row]
    assert case.op == op
    for kind, mark in zip(table.KINDS, marks, strict=True):
        q = table.source(kind, case.shape)
        decoded.clear()
        result = case.action(q)
        count = len(decoded)
        packed = result if isinstance(result, QTensor) else result.qtensor
        assert bool(count) == (mark == "d"), kind
        assert packed.shares_memory(q.qtensor) == (mark == "v"), kind
        assert table.grade(case, kind) == MARKS[mark], kind
        check_invariants(packed)


@pytest.mark.compiled
@pytest.mark.parametrize("row", ROWS)
def test_values_move_bit_for_bit_unless_blocks_are_cut(row: int) -> None:
    case, (_, marks) = table.CASES[row], EXPECTED[row]
    for kind, mark in zip(table.KINDS, marks, strict=True):
        if case.op == "contiguous" or "apart" in case.what:
            continue  # no dense twin here; tests/storage/test_moves.py compares them
        q = table.source(kind, case.shape)
        expected = case.action(q.dequantize()).numpy()
        moved = case.action(q).qtensor
        if mark == "d":
            assert moved.same_bits(QTensor.encode(np.ascontiguousarray(expected), moved.scheme)), kind
            assert moved.scheme == q.dtype.innermost(expected.ndim)
        else:
            assert same_floats(moved.dequantize(), expected), kind
            assert moved.scheme == q.dtype


def test_every_layout_op_has_its_rows() -> None:
    assert [case.op for case in table.CASES] == [op for op, _ in EXPECTED]
    packed = {name for name, op in REGISTRY.items() if op.kind == "layout" and op.packed is not None}
    assert packed == {case.op for case in table.CASES} - {"split", "contiguous"}


@pytest.mark.compiled
def test_the_page_in_the_docs_is_what_the_code_does() -> None:
    assert table.PAGE.read_text() == table.layout_page()


def by_the_letter(q: QTensor, axis: int, part: slice) -> str:
    """What S34 to S36 say of a slice of one axis of a contiguous tensor, worked out by brute force."""
    n, last = q.shape[axis], axis == q.ndim - 1
    extent = q.scheme.extents(q.ndim)[axis]  # 0: one block whatever the size
    places = list(range(n))[part]
    if extent < 2 and not last:
        return "view"
    whole = extent or 1
    edge = [k for k in range(n + 1) if k % whole == 0 and (not last or k * q.scheme.element_bits % 32 == 0)]
    start, stop, step = part.indices(n)
    if step == 1 and start in edge and (stop in edge or stop == n):
        return "view"
    blocks = [places[k : k + whole] for k in range(0, len(places), whole)] if extent else []
    return "copy" if all(len({p // whole for p in block}) == 1 for block in blocks) else "decode"


@settings(max_examples=scaled(300), deadline=None)
@given(st.data(), st.one_of(small_names, names))
def test_slices_of_every_scheme_take_what_the_letter_says(data: Any, name: str) -> None:
    scheme = SCHEMES[name]
    shape = data.draw(shapes(scheme, least=1).filter(all))
    q = quantized(values(shape), scheme)
    axis = data.draw(st.integers(0, q.ndim - 1))
    bound = st.one_of(st.none(), st.integers(-shape[axis], shape[axis]), st.sampled_from((4, 8, 16, 32)))
    part = slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from((None, None, 1, -1, 2, -3))))
    if not range(shape[axis])[part]:
        return
    result, how = move.getitem(q, (slice(None),) * axis + (part,))
    assert how == by_the_letter(q, axis, part)
    assert result.shares_memory(q) == (how == "view")
    if how == "view":
        assert same_memory(result.scales, q.scales)


class Launches(Observer):
    """The kernels that ran, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def launched(self, kernel: str, values: int) -> None:
        self.names.append(kernel)


SINGLE = [name for name, s in aq.CATALOG.items() if s.block and len(s.block) == 1 and not s.tensor_scale]


# On a GPU one function quantizes, whatever the scheme, and finds the magnitude itself.
ENCODING = ["quantize_lines" if DEVICE == "cpu" else "quantize"]


@pytest.mark.parametrize("name", SINGLE)
def test_quantize_of_a_whole_tensor_is_one_launch_and_contiguous(name: str) -> None:
    with observing(Launches()) as seen:
        q = table.values((4, 24, 136)).quantize(name)
    assert seen.names == ENCODING  # type: ignore[attr-defined]
    assert q.is_contiguous


def test_two_levels_take_one_pass_more() -> None:
    with observing(Launches()) as seen:
        table.values((4, 24, 136)).quantize(aq.nvfp4)
    assert seen.names == (["amax"] if DEVICE == "cpu" else []) + ENCODING  # type: ignore[attr-defined]


def test_metadata_launches_nothing() -> None:
    q = table.source("32 along the last axis")
    with observing(Launches()) as seen:
        views = [
            q.T,
            q[1],
            q[::-2],
            q[..., 32:96],
            q.reshape(4, 64, 4, 32),
            aq.broadcast_to(q, (3, *q.shape)),
        ]
    assert seen.names == []  # type: ignore[attr-defined]
    assert all(view.shares_memory(q) for view in views)


@pytest.mark.skipif(DEVICE != "cpu", reason="about the kernels of the CPU")
def test_observed_launches_are_those_of_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch that an observer is told of is a call of that kernel, and the other way round."""
    called: list[str] = []
    found = kernels()

    def counted(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return getattr(found, name)(*args, **kwargs)

        return call

    counting = Kernels(*[counted(name) for name in Kernels._fields])
    for module in (packing, encoding, convert):
        if hasattr(module, "kernels"):
            monkeypatch.setattr(module, "kernels", lambda: counting)
        plans = module.__dict__.get("plan_of")
        if plans is not None:
            monkeypatch.setattr(module, "plan_of", lambda scheme, plans=plans: plans(scheme)._replace(
                quantize_lines=counting.quantize_lines, dequantize_lines=counting.dequantize_lines,
                amax=counting.amax))  # fmt: skip
    monkeypatch.setattr("autoq.storage.inputs.kernels", lambda: counting)
    with observing(Launches()) as seen:
        for kind in table.KINDS:
            q = table.source(kind)
            _ = q[..., 20:60], aq.flip(q, -1), q.dequantize(), q + q[:1, :1]
    assert called == seen.names  # type: ignore[attr-defined]
    assert {"quantize_lines", "quantize_blocks", "dequantize_lines", "amax", "unpack_lines"} <= set(called)
