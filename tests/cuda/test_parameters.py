"""Parameters as kernels get them: where the driver reads them, whoever else launches meanwhile."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoq.errors import ArgumentError, DeviceError
from autoq.kernels.cuda import launch
from autoq.kernels.cuda.compile import Source
from autoq.kernels.cuda.launch import Kernel
from autoq.kernels.cuda.parameters import NUMBERS, Parameters

from .driver import FIRST, LOADED, STREAM, Driver, c_type, read
from .listing import listed

SIGNATURES = sorted({kernel.factory(*kernel.parameters).source.signature for kernel in listed()})
MIXED = ("float32*", "float32", "int64", "uint8", "float64", "int16", "uint32*", "boolean", "int32")


def structure(signature: Sequence[str]) -> Any:
    """What a C compiler makes of the same parameters."""
    fields = [(f"p{i}", c_type(kind)) for i, kind in enumerate(signature)]
    return type("Fields", (ctypes.Structure,), {"_fields_": fields})


def array(address: int) -> Any:
    return SimpleNamespace(data=SimpleNamespace(ptr=address))


def examples(signature: Sequence[str]) -> list[Any]:
    """A value of each type that none of the others has."""
    values: list[Any] = []
    for i, kind in enumerate(signature):
        if kind.endswith("*"):
            values.append((1 << 63) + 4096 * i)
        elif kind.startswith("float"):
            values.append(-1.5 - i)
        elif kind.startswith("bool"):
            values.append(True)
        else:
            values.append((-1 - i if kind.startswith("int") else 100 + i) if i < 28 else i)
    return values


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], tuple[Kernel, Driver]]:
    """A kernel of a signature, and what takes its launches."""

    def made(signature: Sequence[str]) -> tuple[Kernel, Driver]:
        driver = Driver(signature)
        monkeypatch.setattr(launch, "SIMULATED", False)
        driver.put(monkeypatch)
        return Kernel(Source("noted", lambda: None, tuple(signature), "")), driver

    return made


@pytest.mark.parametrize("signature", [*SIGNATURES, MIXED, (), *[(kind,) for kind in NUMBERS]], ids=str)
def test_parameters_lie_and_look_as_in_c(signature: tuple[str, ...]) -> None:
    parameters, fields, values = Parameters(signature), structure(signature), examples(signature)
    expected = fields(*values)
    assert parameters.offsets == tuple([getattr(fields, name).offset for name, _ in fields._fields_])
    room = parameters.room()
    parameters.pack(room.values, 0, *values)
    whole = bytes(room.values)[: parameters.size]
    assert whole == bytes(expected)[: parameters.size]
    assert ctypes.sizeof(fields) - parameters.size < 8  # what C adds at the end, no parameter needs
    assert read(room.address, signature) == values


def test_there_are_signatures_to_check() -> None:
    kinds = {kind for signature in SIGNATURES for kind in signature}
    assert len(SIGNATURES) > 50
    assert {"int64", "float32", "uint32", "float32*"} <= kinds
    assert {kind for kind in kinds if not kind.endswith("*")} <= set(NUMBERS)


def test_a_launch_passes_grid_stream_and_parameters(launched: Any) -> None:
    made, driver = launched(("float32*", "uint32*", "float32", "int64"))
    before = launch.launches
    made(5, 64, array(4096), None, 0.1, -7, shared=256)
    assert launch.launches == before + 1
    assert driver.calls == [(FIRST + len(LOADED) - 1, 5, 1, 1, 64, 1, 1, 256, STREAM)]
    assert driver.parameters == [[4096, 0, float(np.float32(0.1)), -7]]


@pytest.mark.parametrize("value", [1e300, -1e300, float("inf"), 1e-45, -0.0, 1.0 + 2.0**-24])
def test_numbers_are_rounded_to_float32_as_numpy_does(launched: Any, value: float) -> None:
    made, driver = launched(("float32",))
    made(1, 32, value)
    made(1, 32, np.float64(value))
    with np.errstate(over="ignore"):
        expected = np.float32(value)
    made(1, 32, expected)
    (first,), (second,), (third,) = driver.parameters
    assert [np.float32(x).tobytes() for x in (first, second, third)] == [expected.tobytes()] * 3


def test_nan_and_numbers_of_numpy_arrive(launched: Any) -> None:
    made, driver = launched(("float32", "int64", "uint32"))
    made(1, 32, float("nan"), np.int32(-3), np.uint32(0xFFFFFFFF))
    (found,) = driver.parameters
    assert np.isnan(found[0])
    assert found[1:] == [-3, 0xFFFFFFFF]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "launched with 0 arguments"),
        ((None, 1.0, 2), "launched with 3 arguments"),
        ((None, 1.0, 2, 3, 4), "launched with 5 arguments"),
        ((np.zeros(2), 1.0, 2, 3), "argument 0, of type float32[*], is a ndarray"),
        ((None, "1", 2, 3), "argument 1, of type float32, is a str"),
        ((None, 1.0, 2.5, 3), "argument 2, of type int64, is 2.5"),
        ((None, 1.0, 1 << 63, 3), "argument 2, of type int64, is 9223372036854775808"),
        ((None, 1.0, np.int64(2), -1), "argument 3, of type uint32, is -1"),
        ((None, 1.0, None, 3), "argument 2, of type int64, is a NoneType"),
    ],
)
def test_arguments_that_dont_fit_are_named(launched: Any, given: tuple[Any, ...], said: str) -> None:
    made, driver = launched(("float32*", "float32", "int64", "uint32"))
    with pytest.raises(ArgumentError, match=f"noted: {said}"):
        made(1, 32, *given)
    assert driver.calls == []
    made(1, 32, None, True, np.uint8(2), True)
    assert driver.parameters == [[0, 1.0, 2, 1]]


def test_launches_at_the_same_time_keep_their_parameters(launched: Any) -> None:
    made, driver = launched(("float32*", "int64"))

    def another() -> None:
        thread = threading.Thread(target=made, args=(2, 32, array(8192), 2))
        thread.start()
        thread.join()
        made(3, 32, array(12288), 3)  # of the same thread: when garbage is collected

    driver.meanwhile = another
    made(1, 32, array(4096), 1)
    made(4, 32, array(16384), 4)
    assert driver.parameters == [[8192, 2], [12288, 3], [4096, 1], [16384, 4]]
    assert [call[1] for call in driver.calls] == [2, 3, 1, 4]


def test_memory_is_taken_again(launched: Any) -> None:
    made, _ = launched(("int64",))
    for value in range(10):
        made(1, 32, value)
    assert len(made._parameters.free) == 1


def test_each_thread_gets_a_context_once(launched: Any) -> None:
    made, driver = launched(("int64",))
    other = launch.Kernel(made.source)

    def twice() -> None:
        made(1, 32, 1)
        other(1, 32, 2)

    thread = threading.Thread(target=twice)
    twice()
    thread.start()
    thread.join()
    assert len(driver.contexts) == 2
    assert len(set(driver.contexts)) == 2
    assert len(driver.parameters) == 4


def test_of_two_that_load_a_kernel_at_once_the_first_is_launched(
    launched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, driver = launched(("int64",))
    loaded: list[int] = []

    def load(source: Source) -> Any:
        number = len(loaded) + 1
        loaded.append(number)
        if number == 1:
            made(1, 32, 1)  # as another thread would, before this one is done
        return SimpleNamespace(ptr=number)

    monkeypatch.setattr(launch, "load", load)
    made(1, 32, 2)
    made(1, 32, 3)
    assert loaded == [1, 2]
    assert [call[0] for call in driver.calls] == [2, 2, 2]
    assert driver.parameters == [[1], [2], [3]]


def test_an_error_of_the_driver_passes_and_the_next_launch_works(launched: Any) -> None:
    made, driver = launched(("int64",))

    def fail() -> None:
        raise RuntimeError("CUDA_ERROR_LAUNCH_FAILED")

    driver.meanwhile = fail
    with pytest.raises(RuntimeError, match="LAUNCH_FAILED"):
        made(1, 32, 1)
    made(1, 32, 2)
    assert driver.parameters == [[2]]


def test_blocks_are_checked_before_the_driver_is_called(launched: Any) -> None:
    made, driver = launched(("int64",))
    for blocks in (0, -1, 1 << 31):
        with pytest.raises(DeviceError):
            made(blocks, 32, 1)
    assert driver.calls == []


@pytest.mark.parametrize(
    ("signature", "arguments"), [(("int64",), (1, 2)), (("int64", "int64"), (1,)), (("int32",), (1 << 31,))]
)
def test_what_does_not_fit_is_never_launched(launched: Any, signature: Any, arguments: Any) -> None:
    made, driver = launched(signature)
    with pytest.raises(ArgumentError):
        made(1, 32, *arguments)
    assert driver.calls == []


def test_a_type_that_kernels_do_not_take_is_named() -> None:
    with pytest.raises(ArgumentError, match="complex64"):
        Parameters(("complex64",))
