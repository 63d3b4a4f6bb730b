"""Capture: a whole training step as one CUDA graph, recorded once and then replayed.

Launching a small kernel costs the host more than the device takes to run it. A graph holds all launches of
a step and is started by one call. It repeats them with the same addresses, so that a captured step lives in
memory of its own: arguments are copied to where the first ones lay, and parameters are changed in place.
"""

from __future__ import annotations

import gc
import inspect
import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial, update_wrapper
from typing import Any

from autoq import devices
from autoq.captured_arguments import Arguments
from autoq.captured_memory import Uploads, allocator, constant, copied, room
from autoq.captured_state import Watch, check_same
from autoq.context import Observer, current, observing
from autoq.errors import ArgumentError, CaptureError
from autoq.random import drawing
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
    memory of the first ones. Returned tensors are copies without a tape.

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
        CaptureError: The step works on a GPU that it isn't to be captured on. At the recording call, it
            reads a value back or runs other operations than before; later, something that it works on was
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
        self.reset()

    def reset(self) -> None:
        """Forget the graph and its memory: the next calls warm up and record anew."""
        self.replays, self._calls = 0, 0
        self._trace: list[Any] = []
        self._leaves: list[Tensor] = []
        self._graph: _Graph | None = None
        self._first: Arguments | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, record or replay the step."""
        if RECORDINGS and recording() is not None:
            raise _nested()
        graph = self._graph
        if graph is not None:
            with devices.using_device(graph.arguments.device):
                graph.follow()
                graph.arguments.take(args, kwargs)
                result = graph.replay()
            self.replays += 1
            return result
        if self._first is not None:
            device = self._first.device
            self._first.check(args, kwargs)
        else:
            device = self._device or _device_of((args, kwargs))
        with devices.using_device(device):
            arguments = Arguments(self._signature, args, kwargs, device)
            return self._begin(arguments) if device != "cpu" else self._run(arguments)

    def _run(self, arguments: Arguments) -> Any:
        """A call on the CPU, as it is; work on a GPU, which isn't recorded, is refused."""
        alone = devices.LIBRARIES and current().observer is None
        with observing(_OnlyCPU()) if alone else nullcontext(), stepping():
            return mapped(arguments.call(self.step), _copied)

    def _begin(self, arguments: Arguments) -> Any:
        """A call before there is a graph: one that warms up, or the one that records."""
        if self._calls < self.warmup:
            watch = Watch(lambda x: x._node is LEAF)
            with observing(watch), stepping():
                result = arguments.call(self.step)
            self._calls, self._trace, self._leaves = self._calls + 1, watch.trace, watch.leaves()
            self._first = self._first or arguments
            return mapped(result, _copied)
        graph = _Graph(arguments)
        graph.record(self.step, self._trace, self._leaves)
        self._graph, self._trace, self._leaves, self._first = graph, [], [], None
        self.replays += 1
        return graph.start()

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

    def record(self, step: Callable[..., Any], trace: list[Any], known: list[Tensor]) -> None:
        """Run the step once while its launches are noted instead of started."""
        self.cupy.get_default_memory_pool().free_all_blocks()  # what the warm-up used
        watch = Watch(self._is_outside, known)
        generators: dict[int, Any] = {}
        stream = self.cupy.cuda.Stream(non_blocking=True)
        try:
            with _no_collection(), self.cupy.cuda.using_allocator(self._allocate), stream:
                with self._capturing(stream), observing(watch), self._drawing(generators):
                    self.result = mapped(self.arguments.call(step), _detached)
                    for seen in watch.seen:
                        seen.carry(self.cupy.copyto)
                check_same(trace, watch.trace)
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
        """A block whose launches become the graph; what CUDA refuses there becomes a CaptureError."""
        stream.begin_capture()
        try:
            with recorded_by(self.recording), _no_synchronization():
                yield
        except BaseException as error:
            _abandon(stream)
            if _is_cuda_error(error):
                raise _refused(error) from error
            raise
        try:
            self.graph = stream.end_capture()
        except Exception as error:
            raise _refused(error) from error

    @contextmanager
    def _drawing(self, generators: dict[int, Any]) -> Any:
        """A block in which generators give keys on the device; their state before is noted."""

        def drawn(generator: Any, path: str) -> Any:
            generators.setdefault(id(generator), (generator, generator.state_dict()))
            return self.recording.drawn(generator, path)

        token = drawing.set(drawn)
        try:
            yield
        finally:
            drawing.reset(token)

    def start(self) -> Any:
        """The graph's first run, with what the recording call computed on the host."""
        self.follow()
        return self._launched()

    def replay(self) -> Any:
        """Another run: check, compute the host's values, start the graph."""
        self.recording.check()
        for seen in self.seen:
            seen.check()
        self.recording.advance()
        result = self._launched()
        for seen in self.seen:
            seen.settle()
        return result

    def _launched(self) -> Any:
        """Copy the host's values, start the graph, and copy what the step returned."""
        self._uploads.start(self._stream)
        self.graph.launch(self._stream)
        return mapped(self.result, self._copied)

    def _copied(self, x: Any) -> Any:
        """A returned tensor with memory of its own; numbers and the like as they were when recorded."""
        value = x._value if isinstance(x, Tensor) else x
        if devices.on_gpu(value):
            value = copied(self.cupy, value)
        elif devices.is_array(value) or type(value) is QTensor:
            value = value.copy()
        return x.__class__(value, x._type) if isinstance(x, Tensor) else value

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

    def _is_outside(self, x: Tensor) -> bool:
        """Whether a tensor was there before the step: its memory isn't of the graph's pool."""
        array: Any = x._value.words if type(x._value) is QTensor else x._value
        return devices.on_gpu(array) and array.data.mem.ptr not in self.addresses


@contextmanager
def _no_collection() -> Any:
    """A block without garbage collection, which could free device objects while a stream is captured."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _no_synchronization() -> Any:
    """A block in which CuPy raises where it would wait for the device, for the CuPy versions that can."""
    import cupyx

    allow = getattr(cupyx, "allow_synchronize", None)
    if allow is None:
        yield
        return
    allowed = allow(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, without anything in its place
        allowed.__enter__()
    try:
        yield
    finally:
        allowed.__exit__(None, None, None)


def _abandon(stream: Any) -> None:
    """End a capture that failed; its graph, if CUDA still makes one, isn't wanted."""
    try:
        stream.end_capture()
    except Exception as error:
        if not _is_cuda_error(error):
            raise


def _is_cuda_error(error: Any) -> bool:
    """Whether CUDA, a library of it or CuPy refused something, for another reason than memory."""
    kind = f"{type(error).__module__}.{type(error).__name__}".lower()
    refused = any(part in kind for part in ("cuda", "nvmath", "synchronized"))
    return refused and not devices.out_of_memory(error)


def _refused(error: BaseException) -> CaptureError:
    return CaptureError(
        f"the step does what a CUDA graph can't hold ({error}).",
        "launches of kernels and copies on the device: no values read back, no waiting for the device",
        "Take .item(), .numpy(), print and tests of values out of the step; return the tensor instead.",
    )


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


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x


def _copied(x: Any) -> Any:
    """A returned tensor with memory of its own; numbers and the like as they were when it was recorded."""
    if not isinstance(x, Tensor):
        return x.copy() if devices.is_array(x) or isinstance(x, QTensor) else x
    out = x.detach()
    out._value, out._version = x._value.copy(), [0]
    return out
