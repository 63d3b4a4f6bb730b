"""``aq.explain``: runs a function once and lists what each op decided, decoded, copied and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

from autoq.context import Observer, observing
from autoq.devices import on_gpu
from autoq.storage import QTensor
from autoq.tape.node import Node
from autoq.tape.op import Op
from autoq.tape.reasons import reason
from autoq.tape.tensor import Tensor
from autoq.tape.view import address, saved_values, type_name
from autoq.types import TensorType, dtype_name

HEADINGS = ("#", "op", "inputs", "output", "how", "decoded", "encoded", "copied", "saved", "kernels", "why")
ENCODERS = ("quantize_lines", "quantize_blocks", "quantize")
DECODERS = ("dequantize_lines", "dequantize")


@dataclass
class Step:
    """One op, or one op's gradient rules, as it ran.

    Attributes:
        position: Its number, in the order in which ops began.
        op: The op's name.
        backward: Whether these are its gradient rules and not the op itself.
        inputs: The types of the tensors that went in; of a backward step, of the gradient.
        shapes: Their shapes.
        type: The result's type; None of a backward step, whose results are dense floats.
        shape: The result's shape.
        why: The rule that decided the type.
        how: Of packed values that a layout op moved: ``"view"``, ``"copy"`` or ``"decode"`` (S34-S36); of
            dense ones ``"view"`` or ``"copy"``; else empty.
        decoded: How many packed values were decoded, by a kernel of its own or one that computes with them.
        encoded: How many values were encoded.
        copied: Bytes of the result of a layout op or cast that moved values without decoding them.
        saved_bytes: Bytes kept for backward.
        launches: How often each kernel ran, by name.
        detail: The static arguments, where blocks were cut.
    """

    position: int
    op: str
    backward: bool = False
    inputs: tuple[TensorType, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    type: TensorType | None = None
    shape: tuple[int, ...] = ()
    why: str = ""
    how: str = ""
    decoded: int = 0
    encoded: int = 0
    copied: int = 0
    saved_bytes: int = 0
    launches: dict[str, int] = field(default_factory=dict)
    detail: str = ""

    @property
    def decodes(self) -> int:
        """How often a decoding kernel ran."""
        return sum(self.launches.get(name, 0) for name in DECODERS)

    @property
    def encodes(self) -> int:
        """How often an encoding kernel ran."""
        return sum(self.launches.get(name, 0) for name in ENCODERS)

    @property
    def reencoded(self) -> bool:
        """Whether a layout op had to decode packed values and encode them again (S36)."""
        return self.how == "decode"

    def row(self) -> tuple[str, ...]:
        """Its cells under ``HEADINGS``."""
        inputs = ", ".join(type_name(t) for t in self.inputs)
        output = "" if self.type is None else f"{type_name(self.type)} {self.shape}"
        numbers = [f"{n:,}" if n else "" for n in (self.decoded, self.encoded)]
        sizes = [f"{n:,} B" if n else "" for n in (self.copied, self.saved_bytes)]
        kernels = sum(self.launches.values())
        name = self.op + (" (backward)" if self.backward else "")
        return (
            *(str(self.position), name, inputs, output, self.how),
            *(*numbers, *sizes, str(kernels) if kernels else "", self.why),
        )


class Explanation:
    """What a call did, op by op.

    Attributes:
        steps: One record an op, in the order in which they ran.
        result: What the function returned.
        saved_bytes: Bytes kept for backward, each buffer counted once.
    """

    def __init__(self, steps: list[Step], result: Any, saved_bytes: int) -> None:
        self.steps, self.result, self.saved_bytes = steps, result, saved_bytes

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Any:
        return iter(self.steps)

    def __getitem__(self, index: int) -> Step:
        return self.steps[index]

    @property
    def reencoded(self) -> list[Step]:
        """The layout ops that had to decode packed values and encode them again (S36)."""
        return [step for step in self.steps if step.reencoded]

    def _total(self) -> str:
        decoded, encoded = sum(s.decoded for s in self.steps), sum(s.encoded for s in self.steps)
        kernels = sum(sum(s.launches.values()) for s in self.steps)
        steps = "1 step" if len(self) == 1 else f"{len(self)} steps"
        return (
            f"{steps}, {decoded:,} values decoded, {encoded:,} encoded, {kernels} kernels, "
            f"{self.saved_bytes:,} bytes saved for backward"
        )

    def _notes(self) -> list[str]:
        """A sentence for each layout op that cut blocks."""
        return [
            f"#{s.position} {s.op}({s.detail}) cuts blocks of {dtype_name(s.inputs[0].dtype)} {s.shapes[0]}: "
            f"{s.decoded:,} values decoded, {s.encoded:,} encoded again (S36)"
            for s in self.reencoded
        ]

    def __str__(self) -> str:
        rows = [HEADINGS, *[step.row() for step in self.steps]]
        shown = [i for i in range(len(HEADINGS)) if any(row[i] for row in rows[1:])]
        widths = [max(len(row[i]) for row in rows) for i in shown]
        lines = [
            "  ".join(row[i].ljust(w) for i, w in zip(shown, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([*(lines if self.steps else []), self._total(), *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(h)}</th>" for h in HEADINGS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in step.row()) + "</tr>"
            for step in self.steps
        )
        notes = "".join(f"<p>{escape(line)}</p>" for line in (self._total(), *self._notes()))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Run a function once and list each op: its resolved type and why, what it decoded, copied and kept.

    Backward passes inside the function are listed too, a step for each node.

    Args:
        function: Any function of tensors.
        args, kwargs: What it is called with.

    Returns:
        An Explanation, which prints as a table, shows as one in a notebook, and iterates over its steps.
        Values are counted, not calls: a tiled op decodes in many small pieces.

    Example:
        >>> import autoq as aq
        >>> x, w = aq.tensor([[0.5] * 32] * 2).quantize(aq.mxfp8), aq.Parameter([2.0] * 32)
        >>> print(explain(lambda x: (x * w)[:, 4:12].sum(), x))
        #  op       inputs              output           how   decoded ... why
        0  mul      mxfp8, float32 (i)  mxfp8 (2, 32)          64      ... S7: a votes mxfp8; ...
        1  getitem  mxfp8               mxfp8 (2, 8)     copy          ... S4: layout keeps the type
        2  sum      mxfp8               float32 ()             16      ... S13: float32, a block needs an axis
        3 steps, 80 values decoded, 64 encoded, ... kernels, ... bytes saved for backward
    """
    with observing(_Recorder()) as observer:
        result = function(*args, **kwargs)
    assert isinstance(observer, _Recorder)
    return Explanation(observer.steps, result, sum(observer.saved.values()))


class _Recorder(Observer):
    """Writes down a Step for every op; kernels count for the innermost op that is running."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.running: list[Step] = []
        self.saved: dict[int, int] = {}

    def op(self, proceed: Any, op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Any:
        step = self._begun(op.name)
        tensors = [x for x in operands if isinstance(x, Tensor)]
        step.inputs, step.shapes = tuple(x._type for x in tensors), tuple(x.shape for x in tensors)
        try:
            out = proceed(op, operands, static, out_dtype)
        finally:
            self.running.pop()
        step.type, step.shape = out._type, out.shape
        if op.kind not in ("layout", "cast"):
            _note_within(step, [x._value for x in tensors], out._value)
        step.why = reason(op, operands, out_dtype, out._type, step.how)
        if op.kind in ("layout", "cast"):
            _note_copy(step, out, tensors)
        if step.reencoded:
            step.detail = ", ".join(f"{name}={value!r}" for name, value in static.items())
        self._note_saved(step, out._node, op)
        return out

    def step(self, proceed: Any, node: Node, g: Any, grads: Any, owned: Any) -> None:
        step = self._begun(node.op.name)
        step.backward, step.shapes = True, (node.shape,)
        step.inputs = (g._type if isinstance(g, Tensor) else TensorType(g.dtype),)
        step.why = "S22: at the decoded operands"
        read = [x._value for x in node.saved or () if isinstance(x, Tensor)]
        try:
            proceed(node, g, grads, owned)
        finally:
            self.running.pop()
        if node.op.kind != "cast":
            _note_within(step, read, None)

    def moved(self, how: str) -> None:
        self.running[-1].how = how

    def launched(self, kernel: str, values: int) -> None:
        if not self.running:
            return  # outside any op, as in aq.tensor(..., dtype=scheme)
        step = self.running[-1]
        step.launches[kernel] = step.launches.get(kernel, 0) + 1
        if kernel in DECODERS:
            step.decoded += values
        elif kernel in ENCODERS:
            step.encoded += values

    def _begun(self, name: str) -> Step:
        step = Step(len(self.steps), name)
        self.steps.append(step)
        self.running.append(step)
        return step

    def _note_saved(self, step: Step, node: Any, op: Op) -> None:
        if isinstance(node, Node) and node.op is op:
            for value in saved_values(node):
                step.saved_bytes += int(value.nbytes)
                self.saved[address(value)] = int(value.nbytes)


def _note_within(step: Step, values: list[Any], result: Any) -> None:
    """Values that kernels of a GPU decode and encode while they compute, which no launch of its own tells."""
    read = sum(x.size for x in values if isinstance(x, QTensor) and on_gpu(x.words))
    step.decoded = max(step.decoded, read)
    if isinstance(result, QTensor) and on_gpu(result.words):
        step.encoded = max(step.encoded, result.size)


def _note_copy(step: Step, out: Tensor, tensors: list[Tensor]) -> None:
    """Whether values were moved to new memory, and how many bytes of it."""
    if step.decoded or step.encoded or not tensors:
        return
    shared = any(out.shares_memory(x) for x in tensors)
    if not step.how:
        step.how = "view" if shared else "copy"
    if step.how == "copy":
        step.copied = out.nbytes
