"""Checkpoints: a part of a program that is computed again in backward instead of being kept (S28, S41)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from autoq.context import current, using
from autoq.devices import using_device
from autoq.errors import GradientError
from autoq.random import Draw, Generator, drawing
from autoq.tape.apply import apply
from autoq.tape.beside import filled
from autoq.tape.delivery import passed, tensor_of
from autoq.tape.gradient import unchanged, walk
from autoq.tape.namespace import RECORDED
from autoq.tape.node import LEAF, Node, compute_dtype, next_position
from autoq.tape.op import Op
from autoq.tape.tensor import Tensor
from autoq.tape.trees import mapped
from autoq.types import TensorType

F = TypeVar("F", bound=Callable[..., Any])


def checkpoint(fn: F) -> F:
    """A function that keeps its arguments only: what lies between is computed again in backward.

    Tensors that ``fn`` uses without getting them as arguments, such as a module's parameters, get their
    gradients too. Random draws and the settings of forward are repeated. Checkpoints nest, and can be
    differentiated again.

    Args:
        fn: A function of tensors, or of lists, tuples and dicts of them, that returns the like. It must
            compute the same again: what it changes outside, it changes twice.

    Returns:
        A function of the same arguments.

    Raises:
        GradientError: In backward, where ``fn`` computed something else than before, or an argument was
            changed in place since.

    Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([0.5] * 1000, requires_grad=True)
        >>> deep = lambda x: x.exp().sin().exp().sum()
        >>> aq.Tape.of(deep(x)).saved_bytes, aq.Tape.of(checkpoint(deep)(x)).saved_bytes
        (12000, 4000)
    """

    @wraps(fn)
    def kept_short(*args: Any, **kwargs: Any) -> Any:
        if not current().grad:
            return fn(*args, **kwargs)
        return _forward(fn, args, kwargs)

    return kept_short  # type: ignore[return-value]


class Segment:
    """What a checkpoint computes again: the function, its arguments, and the draws and settings of forward.

    Attributes:
        fn: The function.
        arguments: Its positional and keyword arguments, tensors in them replaced by their numbers.
        outside: Tracked places that the function reaches without getting them: nodes and leaves.
        draws: What its generators gave.
    """

    def __init__(self, fn: Callable[..., Any], arguments: Any) -> None:
        self.fn = fn
        self.arguments = arguments
        self.outside: list[Any] = []
        self.versions: list[int] = []
        self.draws: list[tuple[str, Draw]] = []
        self.settings = {k: getattr(current(), k) for k in ("resolution", "exact", "device", "products")}
        self.node: Any = None
        self.types: list[tuple[TensorType, tuple[int, ...]]] = []
        self._latest: tuple[Any, list[Any]] | None = None

    def reach(self, outside: list[Any]) -> None:
        """Note the places outside, and how often leaves among them had been changed."""
        self.outside = outside
        self.versions = [x._version[0] if isinstance(x, Tensor) else 0 for x in outside]

    def run(self, inputs: list[Tensor], draw: Callable[[Generator, str], Draw]) -> tuple[Any, list[Tensor]]:
        """Run the function on inputs: what it returned, and the tensors in it that it made."""
        start = next_position()
        args, kwargs = mapped(self.arguments, lambda x: inputs[x.number] if type(x) is Argument else x)
        with using(grad=True, **self.settings), _drawn_by(draw):
            result = self.fn(*args, **kwargs)
        made: dict[int, Tensor] = {}
        mapped(result, lambda x: made.setdefault(id(x), x) if _is_made(x, start) else x)
        return result, list(made.values())

    def gradient(self, F: Any, g: Any, i: int) -> Any:
        """The gradient by the i-th parent of the node; all of them are computed at the first one's turn."""
        latest = self._latest
        if latest is None or latest[0] is not g:
            latest = self._latest = g, self._gradients(g, F is RECORDED)
        found = latest[1]
        d, found[i] = found[i], None
        if all(x is None for x in found) and self._latest is latest:
            self._latest = None
        return d

    def _gradients(self, g: Any, create_graph: bool) -> list[Any]:
        """Gradients by all parents; None where none is asked."""
        node = self.node()
        self._check_outside()
        inputs = [_entered(unchanged(node, i), create_graph) for i in range(len(node.saved))]
        start = next_position()  # after the inputs, where the walk ends
        _, made = self.run(inputs, _Repeated(self.draws))
        self._compare(made)
        given = [x if x._node is LEAF else x._node for x in inputs]
        places = given + self.outside
        seeds = [(x, part) for x, part in zip(made, _parts(g, made), strict=True)]
        ours = set(places)
        found = walk(seeds, create_graph, create_graph, since=start)
        found.update({x: passed(x, found[x], create_graph) for x in given if x in found})
        new = [x for x in found if not _since(x, start) and x not in ours]
        if len(new) > sum(x not in found for x in self.outside):  # else it makes leaves of its own
            raise self._differs("reached a tracked tensor that it didn't reach before")
        return [
            None if parent is None else found.get(place, _zeros(g, shape))
            for parent, place, shape in zip(node.parents, places, node.shapes, strict=True)
        ]

    def _check_outside(self) -> None:
        for place, version in zip(self.outside, self.versions, strict=True):
            if isinstance(place, Tensor) and place._version[0] != version:
                raise GradientError(
                    f"a tensor of shape {place.shape} that {self._name()} uses was changed in place since.",
                    "values that backward needs, unchanged until then",
                    "Change it after backward.",
                )

    def _name(self) -> str:
        return f"checkpoint({getattr(self.fn, '__name__', repr(self.fn))})"

    def _compare(self, made: list[Tensor]) -> None:
        types = [(x._type, x.shape) for x in made]
        if types != self.types:
            raise self._differs(f"returned {types or 'nothing tracked'} where it returned {self.types}")

    def _differs(self, how: str) -> GradientError:
        return GradientError(
            f"{self._name()}, computed again in backward, {how}.",
            "a function that computes the same each time",
            "Pass what it depends on as arguments, and draw random numbers from an aq.Generator.",
        )


class Argument:
    """Stands for a tensor in the arguments that a segment keeps, whose value its node keeps."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _Noted:
    """Lets generators draw as they would, and notes what they gave."""

    def __init__(self, draws: list[tuple[str, Draw]]) -> None:
        self.draws, self.outer = draws, drawing.get()

    def __call__(self, generator: Generator, path: str) -> Draw:
        draw = generator.drawn(path) if self.outer is None else self.outer(generator, path)
        self.draws.append((path, draw))
        return draw


class _Repeated:
    """Gives the noted draws again, whatever the generators did since."""

    def __init__(self, draws: list[tuple[str, Draw]]) -> None:
        self.rest = iter(draws)

    def __call__(self, generator: Generator, path: str) -> Draw:
        noted, draw = next(self.rest, (None, None))
        if noted != path or draw is None or draw.seed != generator.seed:
            raise GradientError(
                f"checkpoint, computed again in backward, draws for {path!r} where it drew for {noted!r}.",
                "a function that draws the same each time",
                "Let nothing but the arguments decide what it draws.",
            )
        return draw


def _forward(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the function, find out which tracked tensors it reached, and put one node in its place."""
    given: list[Tensor] = []

    def argument(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        given.append(x)
        return Argument(len(given) - 1)

    segment = Segment(fn, mapped((args, kwargs), argument))
    start = next_position()
    inputs = [_entered(x, False) for x in given]
    result, made = segment.run(inputs, _Noted(segment.draws))
    segment.types = [(x._type, x.shape) for x in made]
    back = {id(x): original for x, original in zip(inputs, given, strict=True)}
    outputs: dict[int, Tensor] = {}
    if made:
        segment.reach(_outside(made, {id(x) for x in inputs}, start))
        outputs = dict(zip(map(id, made), _outputs(segment, given, made), strict=True))
    return mapped(result, lambda x: outputs.get(id(x), back.get(id(x), x)))


def _entered(x: Tensor, create_graph: bool) -> Tensor:
    """An argument as the function gets it: on a tape of its own, or on x's where that is recorded."""
    if x._node is None:
        return x
    if create_graph:
        return apply("identity", x)
    return x._placed(LEAF)


def _outside(made: list[Tensor], inputs: set[int], start: int) -> list[Any]:
    """Nodes and leaves from before that the results depend on, the inputs left out."""
    found: dict[Any, None] = {}
    stack = list(dict.fromkeys(x._node for x in made))
    seen = set(stack)
    for node in stack:
        for parent in node.parents:
            if parent is None or parent in seen:
                continue
            if _since(parent, start):
                seen.add(parent)
                stack.append(parent)
            elif id(parent) not in inputs:
                found[parent] = None
    return list(found)


def _outputs(segment: Segment, given: list[Tensor], made: list[Tensor]) -> list[Tensor]:
    """The results on the outer tape: of one node or, where there are several, of a part of it each."""
    compute = compute_dtype([d for x in made for d in (x._type.gradient, x._node.compute)])
    shape = made[0].shape if len(made) == 1 else (sum(x.size for x in made),)
    whole = made[0]._type if len(made) == 1 else TensorType(compute)
    node = Node(CHECKPOINT, tuple(given), {"segment": segment}, compute, whole, shape)
    node.saved, node.versions = tuple(given), [x._version[0] for x in given]
    for place in segment.outside:
        node.parents.append(place)
        node.shapes.append(place.shape)
        node.dtypes.append((place.type if isinstance(place, Node) else place._type).gradient)
    node.dtypes = [compute_dtype((compute, dtype)) for dtype in node.dtypes]
    segment.node = weakref.ref(node)
    if len(made) == 1:
        return [made[0]._placed(node)]
    zero = filled(0, (), compute, made[0])
    with using_device(made[0].device):
        carrier = Tensor(np.broadcast_to(zero, shape), whole, node)
    ends = np.cumsum([x.size for x in made]).tolist()
    return [
        x._placed(Node(PART, (carrier,), {"start": end - x.size, "stop": end}, compute, x._type, x.shape))
        for x, end in zip(made, ends, strict=True)
    ]


def _parts(g: Any, made: list[Tensor]) -> Iterator[Any]:
    """The cotangent of each result, from that of the node."""
    if len(made) == 1:
        yield g
        return
    start = 0
    for x in made:
        part = g[start : start + x.size]
        yield apply("reshape", part, shape=x.shape) if isinstance(g, Tensor) else part.reshape(x.shape)
        start += x.size


def _part_rule(F: Any, g: Any, x_shape: tuple[int, ...], start: int, stop: int) -> Any:
    """The cotangent of one result within that of all: zeros elsewhere."""
    flat = F.reshape(g, shape=(stop - start,))
    return F.scatter_slice(flat, index=(slice(start, stop),), shape=x_shape)


def _zeros(g: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(g, Tensor):
        return tensor_of(filled(0, shape, g._type.gradient, g)).inhibit()
    return filled(0, shape, g.dtype, g)


def _is_made(x: Any, start: int) -> bool:
    return isinstance(x, Tensor) and _since(x._node, start)


def _since(place: Any, start: int) -> bool:
    return type(place) is Node and place.position >= start


@contextmanager
def _drawn_by(draw: Callable[[Generator, str], Draw]) -> Iterator[None]:
    token = drawing.set(draw)
    try:
        yield
    finally:
        drawing.reset(token)


def _computed_elsewhere(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("nodes of a checkpoint are made by its segment, not by running an op")


CHECKPOINT = Op(
    "checkpoint",
    lambda inputs, *, segment: _computed_elsewhere(),
    {"*": lambda F, g, i, segment: segment.gradient(F, g, i)},
    variadic=True,
)
PART = Op("checkpoint_part", lambda x, *, start, stop: _computed_elsewhere(), {"x": _part_rule})
