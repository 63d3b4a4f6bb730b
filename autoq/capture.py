"""Capture: a whole training step as one CUDA graph, recorded once and then replayed.

Launching a small kernel costs the host more than the device takes to run it. A graph holds all launches of
a step and is started by one call. It repeats them with the same addresses, so that a captured step lives in
memory of its own: arguments are copied to where the first ones lay, and parameters are changed in place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial, update_wrapper
from threading import RLock
from types import MethodType
from typing import Any

from autoq import devices
from autoq.captured_arguments import Arguments
from autoq.captured_memory import Uploads, allocator, constant, room
from autoq.captured_results import check_constants, constants, detached, fresh, own
from autoq.captured_state import Watch, check_same
from autoq.captured_stream import launches, no_collection
from autoq.context import Observer, current, observing
from autoq.errors import ArgumentError, CaptureError
from autoq.random import Generator, drawing
from autoq.recording import RECORDINGS, Recording, recorded_by, recording, stepping
from autoq.storage import QTensor
from autoq.tape.node import LEAF
from autoq.tape.tensor import Tensor
from autoq.tape.trees import leaves, mapped


def capture(step: Callable[..., Any] | None = None, *, device: str | None = None, warmup: int = 1) -> Any:
    """A training step that is recorded as a CUDA graph and replayed: the same results, nearly no host time.

    The first ``warmup`` calls run the step as it is, the next one records it, the others replay it. On the
    CPU every call runs the step. A step may do all of it: forward, ``backward()``, ``optimizer.step()``,
    ``optimizer.zero_grad()``. Draws of an ``aq.Generator``, learning rates and counts of steps go on from
    replay to replay as they would without capture.

    Arrays among the arguments become tensors on the device, the CPU too, and arguments are copied into the
    memory of the first ones. Returned tensors are copies without a tape. Calls in several threads wait for
    each other.

    A step that works on a GPU although neither ``device`` nor an argument nor the default device is one is
    refused at its first operation there. That is an error, not a warning: run as it is, the step would give
    the right results in each call, only never by a graph, and nothing has been changed yet.

    Args:
        step: A function of tensors, arrays, or nests of them; what is neither must be equal in all calls.
        device: Where to record; by default that of the tensor arguments, else the default device.
        warmup: Calls before the one that records.

    Returns:
        A function of the same arguments, with ``reset()`` to record anew; without ``step``, a decorator.

    Raises:
        CaptureError: The step works on a GPU that it isn't to be captured on, or returns an object with
            tensors in it. At the recording call, it reads a value back, runs other operations or returns
            other numbers than before, or changes what is on the CPU; later, something that it works on was
            replaced.
        ArgumentError, ShapeError, DTypeError, DeviceError: On a GPU, an argument of another value, shape,
            dtype or device than in the first call; anywhere, one that was computed from tracked tensors.

    Example:
        >>> import autoq as aq
        >>> w = aq.Parameter([1.0, 2.0])
        >>> optimizer = aq.optim.SGD([w], lr=0.25)
        >>> @aq.capture
        ... def step(x):
        ...     loss = ((w - x) ** 2).sum()
        ...     loss.backward()
        ...     optimizer.step()
        ...     optimizer.zero_grad()
        ...     return loss
        >>> [step(aq.tensor([0.0, 0.0])).item() for _ in range(3)]
        [5.0, 1.25, 0.3125]
    """
    if step is None:
        return lambda function: capture(function, device=device, warmup=warmup)
    if not callable(step) or not isinstance(warmup, int) or warmup < 1:
        raise ArgumentError(
            f"capture({step!r}, warmup={warmup!r}).", "a function, and warmup >= 1", "Pass the step itself."
        )
    return Captured(step, device, warmup)


class Captured:
    """A step that is recorded and replayed; what ``aq.capture`` returns.

    Attributes:
        step: The function.
        replays: How often the graph was started.
    """

    def __init__(self, step: Callable[..., Any], device: str | None, warmup: int) -> None:
        update_wrapper(self, step)
        self.step, self.warmup = step, warmup
        self._device = None if device is None else devices.resolve(device)
        self._signature = _signature(step)
        self._lock = RLock()  # calls in several threads take the same memory
        self.reset()

    def reset(self) -> None:
        """Forget the graph and its memory: the next calls warm up and record anew."""
        self.replays, self._calls = 0, 0
        self._trace: list[Any] = []
        self._lasting: list[Tensor] = []
        self._constants: list[str] = []
        self._graph: _Graph | None = None
        self._first: Arguments | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, record or replay the step."""
        if RECORDINGS and recording() is not None:
            raise _nested()
        if self._graph is None and self._first is None:
            device = self._device or _device_of((args, kwargs))
            if device == "cpu":
                return self._run(Arguments(self._signature, args, kwargs, device))
        with self._lock:
            return self._replay(args, kwargs) if self._graph is not None else self._begin(args, kwargs)

    def _run(self, arguments: Arguments) -> Any:
        """A call on the CPU, as it is; work on a GPU, which isn't recorded, is refused."""
        alone = devices.LIBRARIES and current().observer is None
        with observing(_OnlyCPU()) if alone else nullcontext(), stepping():
            return own(arguments.call(self.step))

    def _replay(self, args: Any, kwargs: Any) -> Any:
        """A call that starts the graph."""
        graph: Any = self._graph
        with devices.using_device(graph.arguments.device):
            graph.follow()
            graph.arguments.take(args, kwargs)
            result = graph.replay()
        self.replays += 1
        return result

    def _begin(self, args: Any, kwargs: Any) -> Any:
        """A call before there is a graph: one that warms up, or the one that records."""
        if self._first is None:
            device = self._device or _device_of((args, kwargs))
        else:
            device = self._first.device
            self._first.check(args, kwargs)
        with devices.using_device(device):
            arguments = Arguments(self._signature, args, kwargs, device)
            if self._calls < self.warmup:
                return self._warm_up(arguments)
            graph = _Graph(arguments)
            graph.record(self.step, self._trace, self._lasting, self._constants)
            self._graph, self._trace, self._lasting, self._first = graph, [], [], None
            self.replays += 1
            return graph.start()

    def _warm_up(self, arguments: Arguments) -> Any:
        """A call that runs the step and notes what it does."""
        watch = Watch(lambda x: x._node is LEAF)
        with observing(watch), stepping():
            result = arguments.call(self.step)
        returned = own(result)
        self._calls, self._trace, self._lasting = self._calls + 1, watch.trace, watch.lasting()
        self._constants = constants(result)
        self._first = self._first or arguments
        return returned

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """The step of an instance, if it is captured in a class: one instance, as of all arguments."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """A copy is one that has nothing recorded yet."""
        return Captured, (self.step, self._device, self.warmup)

    def __repr__(self) -> str:
        state = "not recorded" if self._graph is None else f"{self.replays} replays"
        return f"<captured {getattr(self.step, '__name__', self.step)!s}: {state}>"


class _OnlyCPU(Observer):
    """Refuses operations on a GPU, before the first of them, in a step that was taken for one of the CPU."""

    def op(self, proceed: Any, op: Any, operands: Any, static: dict[str, Any], out_dtype: Any) -> Any:
        """Run an operation of the CPU."""
        self._check(op.name, *operands)
        result = proceed(op, operands, static, out_dtype)
        self._check(op.name, result)
        return result

    def changed(self, tensor: Any) -> None:
        """A tensor on the CPU is about to be changed in place."""
        self._check("a change in place", tensor)

    def _check(self, what: str, *operands: Any) -> None:
        for x in operands:
            if isinstance(x, Tensor) and x.device != "cpu":
                raise _unrecorded(what, x.device)


class _Graph:
    """A recorded step: the graph, the memory that it works in, and what goes before and after a replay."""

    def __init__(self, arguments: Arguments) -> None:
        import cupy

        self.cupy, self.arguments = cupy, arguments
        self.pool = cupy.cuda.MemoryPool(allocator(cupy))
        self.addresses: set[int] = set()
        # The recording doesn't refer to the graph: without a cycle, reset() frees the memory at once.
        beside = cupy.cuda.Stream(non_blocking=True)
        self.recording = Recording(partial(room, cupy, beside), partial(constant, cupy, beside))
        self.seen: list[Any] = []
        self.graph: Any = None
        self.result: Any = None
        self._uploads: Any = None
        self._stream: Any = None

    def record(
        self, step: Callable[..., Any], trace: list[Any], known: list[Tensor], told: list[str]
    ) -> None:
        """Run the step once while its launches are noted instead of started.

        Args:
            step: The function.
            trace: What it did in the warm-up.
            known: What lasted of the tensors that it met there.
            told: The numbers that it returned there.
        """
        self.cupy.get_default_memory_pool().free_all_blocks()  # what the warm-up used
        watch = Watch(lambda x: self._is_outside(x._value), known)
        generators: dict[int, Any] = {}
        stream = self.cupy.cuda.Stream(non_blocking=True)
        try:
            with no_collection(), self.cupy.cuda.using_allocator(self._allocate), stream:
                with self._capturing(stream) as made, observing(watch), self._drawing(generators):
                    self.result = mapped(self.arguments.call(step), detached)
                    self._carry(watch)
                check_same(trace, watch.trace)
                check_constants(told, constants(self.result))
            self.graph = made[0]
            self._uploads = Uploads(self.cupy, self.recording.parts())
        except BaseException:
            for seen in watch.seen:
                seen.restore()
            for generator, state in generators.values():
                generator.load_state_dict(state)
            self.recording.fail()
            raise
        self.seen = watch.seen

    @contextmanager
    def _capturing(self, stream: Any) -> Any:
        """A block whose launches become the graph, and which is recorded."""
        with launches(stream) as made, recorded_by(self.recording):
            yield made

    def _carry(self, watch: Watch) -> None:
        """End the step: what took the place of a value or gradient goes to where that was read from.

        Neither what goes there nor a result may be in memory that is overwritten meanwhile.
        """
        for parameter in self.recording.idle:
            watch.see(parameter)  # one that gets a gradient later isn't passed over any more
        pairs = [pair for seen in watch.seen for pair in seen.carry()]
        if pairs:
            self.result = mapped(self.result, self._apart)
        for old, new in [(old, self._apart(new)) for old, new in pairs]:
            self.cupy.copyto(old, new)

    def _apart(self, x: Any) -> Any:
        """The values in the graph's own memory: a copy of what lies elsewhere, as in a parameter."""
        value = x._value if isinstance(x, Tensor) else x
        if not self._is_outside(value):
            return x
        return x.__class__(value.copy(), x._type) if isinstance(x, Tensor) else value.copy()

    @contextmanager
    def _drawing(self, generators: dict[int, Any]) -> Any:
        """A block in which generators give keys on the device; their state before is noted."""
        before = Generator(0).serial

        def drawn(generator: Any, path: str) -> Any:
            generators.setdefault(id(generator), (generator, generator.state_dict()))
            return self.recording.drawn(generator, path, generator.serial > before)

        token = drawing.set(drawn)
        try:
            yield
        finally:
            drawing.reset(token)

    def start(self) -> Any:
        """The graph's first run, with what the recording call computed on the host."""
        self.follow()
        self._launch()
        return fresh(self.cupy, self.result)

    def replay(self) -> Any:
        """Another run: check, compute the host's values, start the graph."""
        self.recording.check()
        for seen in self.seen:
            seen.check()
        self.recording.advance()
        self._launch()
        for seen in self.seen:
            seen.settle()
        return fresh(self.cupy, self.result)

    def _launch(self) -> None:
        """Copy the host's values and start the graph."""
        self._uploads.start(self._stream)
        self.graph.launch(self._stream)

    def follow(self) -> None:
        """Let the current stream wait for the one that the graph ran on last, before anything is written."""
        stream = self.cupy.cuda.get_current_stream()
        if self._stream is not None and self._stream.ptr != stream.ptr:
            stream.wait_event(self._stream.record())
        self._stream = stream

    def _allocate(self, size: int) -> Any:
        """Memory for the step, of a pool that nothing else takes from; it stays the graph's."""
        memory = self.pool.malloc(size)
        self.addresses.add(memory.mem.ptr)
        return memory

    def _is_outside(self, value: Any) -> bool:
        """Whether a value on a GPU was there before the step: its memory isn't of the graph's pool."""
        array: Any = value.words if type(value) is QTensor else value
        return devices.on_gpu(array) and array.data.mem.ptr not in self.addresses


def _nested() -> CaptureError:
    return CaptureError(
        "a captured step calls another captured step.",
        "one captured step for all of it",
        "Call the plain function there, which the outer step then records.",
    )


def _unrecorded(what: str, device: str) -> CaptureError:
    return CaptureError(
        f"a captured step works on {device} ({what}), but is to run on the CPU: nothing of it is recorded.",
        "steps on the device of capture, else of the arguments, else on the default device",
        f'Pass device="{device}" to aq.capture, or tensors on {device} as arguments.',
    )


def _signature(step: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(step)
    except (TypeError, ValueError):  # some built-in callables have none
        return None


def _device_of(tree: Any) -> str:
    """The first GPU among the tensors of a nest, else the default device."""
    for x in leaves(tree):
        if isinstance(x, Tensor) and x.device != "cpu":
            return x.device
        if devices.on_gpu(x):
            return devices.device_of(x)
    return current().device
