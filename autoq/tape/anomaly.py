"""Finding the operation that made the first NaN or infinity, forward or backward."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.context import Observer, current, observing
from autoq.devices import to_host
from autoq.errors import NonFiniteError
from autoq.types import dtype_name

if TYPE_CHECKING:
    from autoq.tape.node import Node
    from autoq.tape.op import Op

PACKAGE = str(Path(__file__).parents[1])


@contextmanager
def detect_anomaly() -> Iterator[None]:
    """Stop at the operation that makes the first NaN or infinity, in a block and in backward within it.

    A NaN that an operand brings along is an error too, that names the operand. Infinite operands, of a mask
    for example, are not. It holds for the thread or task that enters the block; outside it costs nothing.

    Raises:
        NonFiniteError: What made it: the operation, the first place, types and shapes and, in backward, the
            operand whose gradient it is, the node and the line that recorded it.

    Example:
        >>> import autoq as aq
        >>> with detect_anomaly():
        ...     aq.tensor([4.0, 0.0]).log()
        Traceback (most recent call last):
        autoq.errors.NonFiniteError: log made -inf at index (1,) of its result from x float32 (2,).
          Allowed: finite values within detect_anomaly
          Keep its operands where it is finite, with aq.clip or aq.where for example.
    """
    with observing(Watcher(current().observer)):
        yield


class Watcher(Observer):
    """Looks at what every operation and every gradient rule makes, and hands on to the observer before it."""

    def __init__(self, outer: Observer | None) -> None:
        self.outer = outer or Observer()
        self.lines: weakref.WeakKeyDictionary[Node, str] = weakref.WeakKeyDictionary()

    def op(self, proceed: Any, op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Any:
        with np.errstate(all="ignore"):  # the error says more than NumPy's warning
            out = self.outer.op(proceed, op, operands, static, out_dtype)
        if not out._type.is_float:
            return out
        if getattr(out._node, "op", None) is op:
            self.lines[out._node] = _line()
        values = _numbers(out._value)
        if not np.isfinite(values).all():
            _judge(op, operands, values)
        return out

    def step(self, proceed: Any, node: Node, g: Any, grads: Any, owned: Any) -> None:
        self.outer.step(proceed, node, g, grads, owned)
        if not np.isfinite(_numbers(g)).all():
            return
        for i, parent in enumerate(node.parents):
            values = _numbers(grads[parent]) if parent is not None else np.zeros(())
            if not np.isfinite(values).all():
                raise NonFiniteError(
                    f"backward through {node.op.name} {node.shape}{self._place(node)} made {_first(values)} "
                    f"of the gradient by {_name(node.op, i)} {node.dtypes[i].name} {node.shapes[i]}.",
                    "finite gradients within detect_anomaly",
                    "Keep its operands where its derivative is finite, with aq.clip or aq.where for example.",
                )

    def moved(self, how: str) -> None:
        self.outer.moved(how)

    def launched(self, kernel: str, values: int) -> None:
        self.outer.launched(kernel, values)

    def _place(self, node: Node) -> str:
        line = self.lines.get(node)
        return f" (node {node.position}" + (f", recorded at {line})" if line else ")")


def _judge(op: Op, operands: Any, values: np.ndarray) -> None:
    """Raise for a result that isn't finite, unless infinite operands or padding account for it."""
    inputs = [(_name(op, i), x) for i, x in enumerate(operands) if not isinstance(x, int | bool | None)]
    infinite = False
    for name, x in inputs:
        found = _numbers(x)
        if np.isnan(values).any() and np.isnan(found).any():
            raise NonFiniteError(
                f"operand {name} of {op.name}, {_described(x)}, came in with {_first(found)}.",
                "operands without NaN within detect_anomaly",
                "Look where it was made: before the block, or in the data.",
            )
        infinite |= bool(np.isinf(found).any())
    if np.isnan(values).any() or not (infinite or op.kind == "layout"):
        raise NonFiniteError(
            f"{op.name} made {_first(values)} of its result from "
            + ", ".join(f"{name} {_described(x)}" for name, x in inputs)
            + ".",
            "finite values within detect_anomaly",
            "Keep its operands where it is finite, with aq.clip or aq.where for example.",
        )


def _numbers(x: Any) -> np.ndarray:
    """The values of a tensor, a stored value or a number as an array of floats."""
    x = getattr(x, "_value", x)
    array = to_host(x.dequantize() if hasattr(x, "dequantize") else x)
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def _first(values: np.ndarray) -> str:
    """The first NaN, or else infinity, and where."""
    found = np.isnan(values) if np.isnan(values).any() else np.isinf(values)
    index = tuple(int(i) for i in np.argwhere(found)[0])
    return f"{values[index]} at index {index}"


def _described(x: Any) -> str:
    return f"{dtype_name(x._type.dtype)} {x.shape}" if hasattr(x, "_type") else repr(x)


def _name(op: Op, i: int) -> str:
    return f"{op.operands[0]}[{i}]" if op.variadic else op.operands[i]


def _line() -> str:
    """The file and line outside the package that called for the operation."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
