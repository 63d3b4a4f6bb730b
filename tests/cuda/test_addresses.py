"""Small operations on a GPU: one allocation, no arrays made, and launched by addresses as by arrays."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoq.kernels.cuda import launch, map
from autoq.ops.on_device import elementwise
from autoq.schemes import QuantScheme, scheme
from autoq.storage import QTensor
from autoq.storage.allocation import ALIGNMENT, Allocation
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import plan_of
from autoq.tape.op import REGISTRY
from autoq.types import float16, float32

from .driver import Driver
from .memory import DeviceArray, Library

SCHEMES = ("mxfp8", "mxfp4", "mxfp6_e3m2", "nvfp4", "int8", "fp8_block")
SHAPES = ((64,), (32, 64), (3, 5, 96), (2, 33))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver that notes launches, and memory that counts allocations."""
    driver, library = Driver(), Library()
    driver.put(monkeypatch, **library.names)
    monkeypatch.setattr(map, "device_capability", lambda index: (9, 0))
    monkeypatch.setattr(launch, "processors", lambda: 132)
    monkeypatch.setattr(elementwise, "_known", {})
    elementwise.packed_maker.cache_clear()
    yield SimpleNamespace(driver=driver, library=library)
    elementwise.packed_maker.cache_clear()


def known() -> list[QuantScheme]:
    return [scheme(name) for name in SCHEMES]


def on_device(library: Library, array: Any) -> DeviceArray:
    made = library.array(np.shape(array), np.asarray(array).dtype)
    made[...] = array
    return made


def packed(library: Library, shape: tuple[int, ...], chosen: QuantScheme, seed: int = 0) -> QTensor:
    """A tensor whose arrays lie apart, as ``quantize`` makes them."""
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    q = QTensor.quantize(x, chosen)
    level = None if q.tensor_scale is None else on_device(library, q.tensor_scale)
    return QTensor.make(on_device(library, q.words), on_device(library, q.scales), level, chosen, shape)


def computed(name: str, values: Any, out: Any) -> Any:
    return elementwise.elementwise(REGISTRY[name], values, {}, out, float32)


@pytest.mark.parametrize("chosen", known(), ids=SCHEMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_in_one_allocation_are_aligned_and_apart(chosen: QuantScheme, shape: Any) -> None:
    chosen, library = chosen.innermost(len(shape)), Library()
    cupy = SimpleNamespace(ndarray=library.array, cuda=SimpleNamespace(alloc=library.alloc))
    made = Allocation(chosen, shape, cupy)
    memory, plan = made.memory(), plan_of(chosen)
    arrays = made.arrays(memory)
    assert len(library.blocks) == 1
    assert len(arrays) == 2 + chosen.tensor_scale
    expected: list[Any] = [
        (words_shape(shape, plan.bits), np.uint32),
        (grid_shape(shape, chosen.extents(len(shape))), plan.scale_dtype),
        ((), np.float32),
    ]
    for i, (array, form) in enumerate(zip(arrays, expected, strict=False)):
        assert (array.shape, array.dtype) == (form[0], np.dtype(form[1]))
        assert array.flags.c_contiguous
        assert array.data.ptr % ALIGNMENT == 0
        array[...] = i + 1
    assert [np.unique(array).tolist() for array in arrays] == [[i + 1] for i in range(len(arrays))]
    assert made.addresses(memory) == tuple([array.data.ptr for array in arrays])
    assert made.size == sum(x.nbytes for x in arrays) + sum(-x.nbytes % ALIGNMENT for x in arrays[:-1])


@pytest.mark.parametrize("chosen", known(), ids=SCHEMES)
def test_a_tensor_makes_its_arrays_when_they_are_asked_for(chosen: QuantScheme) -> None:
    library = Library()
    cupy = SimpleNamespace(ndarray=library.array, cuda=SimpleNamespace(alloc=library.alloc))
    chosen = chosen.innermost(2)
    q = QTensor.within(Allocation(chosen, (4, 64), cupy))
    assert (q.shape, q.scheme, q.ndim, q.size, q.is_on_gpu) == ((4, 64), chosen, 2, 256, True)
    addresses, noted = q.addresses, q.signature
    assert library.arrays == 0
    with pytest.raises(AttributeError, match="no attribute 'word'"):
        _ = q.word
    words = q.words
    assert q.words is words
    found = [q.words, q.scales, *([q.tensor_scale] if chosen.tensor_scale else [])]
    assert library.arrays == len(found)
    assert addresses == tuple([array.data.ptr for array in found])
    assert chosen.tensor_scale or q.tensor_scale is None
    assert q.nbytes == sum(array.nbytes for array in found)
    alike = QTensor.make(q.words, q.scales, q.tensor_scale, chosen, (4, 64))
    assert (alike.addresses, alike.signature.parts) == (addresses, noted.parts)


def test_memory_is_freed_with_the_last_that_holds_it() -> None:
    library = Library()
    cupy = SimpleNamespace(ndarray=library.array, cuda=SimpleNamespace(alloc=library.alloc))
    made = Allocation(scheme("mxfp8").innermost(2), (4, 64), cupy)
    q = QTensor.within(made)
    assert library.alive == 1
    scales = q.scales
    del q
    assert library.alive == 1
    del scales
    assert library.alive == 0


def test_on_the_cpu_arrays_are_there_at_once() -> None:
    chosen = scheme("nvfp4").innermost(2)
    q = QTensor.within(Allocation(chosen, (4, 64), np))
    assert not q.is_on_gpu
    x = np.random.default_rng(0).standard_normal((4, 64), dtype=np.float32)
    expected = QTensor.quantize(x, chosen)
    q.words[...], q.scales[...], q.tensor_scale[...] = expected.words, expected.scales, expected.tensor_scale
    assert np.array_equal(q.dequantize(), expected.dequantize())


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q))])
def test_copies_keep_nothing_that_was_noted_of_the_first(made: Any) -> None:
    q = QTensor.quantize(np.ones((2, 64), np.float32), scheme("mxfp8"))
    noted = q.signature
    other = made(q)
    assert "addresses" not in [name for name in QTensor.__slots__ if _is_set(other, name)]
    assert not _is_set(other, "signature")
    assert other.signature is noted
    assert other.same_bits(q)


def _is_set(q: QTensor, name: str) -> bool:
    try:
        QTensor.__dict__[name].__get__(q)
    except AttributeError:
        return False
    return True


def test_signatures_differ_by_all_that_launches_depend_on() -> None:
    q = QTensor.quantize(np.ones((8, 64), np.float32), scheme("mxfp8"))
    same = QTensor.quantize(np.zeros((8, 64), np.float32), scheme("mxfp8"))
    assert same.signature is q.signature
    others = [
        q.T,
        q[:4],
        q[::2],
        q[:, 32:],
        q[::-1],
        QTensor.quantize(np.ones((8, 64), np.float32), "mxfp6_e3m2"),
    ]
    raw = np.zeros(8 * 64 + 4, np.uint8)[4:].view(np.uint32).reshape(8, 16)
    others.append(QTensor.make(raw, q.scales, None, q.scheme, q.shape))
    signatures = [x.signature for x in (q, *others)]
    assert len({id(x) for x in signatures}) == len(signatures)


VALUES = {
    "add": lambda lib, s: (packed(lib, (32, 64), s), packed(lib, (32, 64), s, 1)),
    "relu": lambda lib, s: (packed(lib, (32, 64), s),),
    "mul": lambda lib, s: (packed(lib, (32, 64), s), 2.5),
    "sub": lambda lib, s: (packed(lib, (32, 64), s), on_device(lib, np.ones((64,), np.float32))),
    "div": lambda lib, s: (packed(lib, (32, 64), s)[::2], on_device(lib, np.ones((16, 1), np.float16))),
    "maximum": lambda lib, s: (packed(lib, (64, 32), s).T, packed(lib, (32, 64), s)),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("chosen", known(), ids=SCHEMES)
@pytest.mark.parametrize("dense", [False, True], ids=["packed", "dense"])
def test_a_launch_by_addresses_is_the_launch_by_arrays(
    device: Any, name: str, chosen: QuantScheme, dense: bool
) -> None:
    values = VALUES[name](device.library, chosen)
    out = float16 if dense else chosen
    first = computed(name, values, out)
    assert first is not NotImplemented
    calls, parameters = device.driver.calls, device.driver.parameters
    assert len(calls) in (1, 2)
    (call,) = elementwise._known.values()
    del calls[:], parameters[:]
    again = computed(name, values, out)
    by_addresses = list(zip(list(calls), list(parameters), strict=True))
    del calls[:], parameters[:]
    numbers = [float(values[i]) if number is None else number for number, i in call.numbers]
    map.launch(call.launches, values, again, numbers)
    by_arrays = list(zip(calls, parameters, strict=True))
    assert len(by_arrays) == len(by_addresses)
    for (one, given), (other, expected) in zip(by_addresses, by_arrays, strict=True):
        assert one == other
        measured = len(by_arrays) == 2  # into an array of its own, whose place differs
        differing = [i for i, (x, y) in enumerate(zip(given, expected, strict=True)) if x != y]
        assert len(differing) <= measured, (given, expected)
    result = [again] if dense or again.__class__ is DeviceArray else [again.words, again.scales]
    assert all(array.data.ptr in by_addresses[-1][1] for array in result)


@pytest.mark.parametrize(("name", "expected"), [("mxfp8", 1), ("nvfp4", 2)])
def test_an_operation_is_one_allocation_and_makes_no_arrays(device: Any, name: str, expected: int) -> None:
    chosen, library = scheme(name), device.library
    values = packed(library, (32, 64), chosen), packed(library, (32, 64), chosen, 1)
    first = computed("add", values, chosen)
    second = computed("add", (first, values[0]), chosen)
    blocks, arrays = len(library.blocks), library.arrays
    third = computed("add", (first, second), chosen)
    # Under two levels the largest magnitude is measured into an array of its own.
    assert len(library.blocks) - blocks == expected
    assert library.arrays - arrays == expected - 1
    assert (third.shape, third.scheme, third.is_on_gpu) == ((32, 64), chosen.innermost(2), True)
