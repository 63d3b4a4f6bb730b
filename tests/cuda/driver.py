"""What stands for the driver that kernels are launched by, where there is no device."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from autoq.kernels.cuda import launch

STREAM, DEVICE, FIRST = 77, 3, 1000
LOADED: list[Any] = []  # kernels keep what they were loaded as from test to test
C_TYPES: dict[str, Any] = {
    "bool_": ctypes.c_bool,
    "boolean": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


def c_type(kind: str) -> Any:
    return ctypes.c_void_p if kind.endswith("*") else C_TYPES[kind]


def read(address: int, signature: Sequence[str]) -> list[Any]:
    """Parameters as the driver reads them: by the address of each."""
    places = (ctypes.c_void_p * len(signature)).from_address(address)
    found = [c_type(kind).from_address(place).value for kind, place in zip(signature, places, strict=True)]
    return [0 if value is None else value for value in found]


class Driver:
    """What stands for the driver: it notes what it is called with, and reads the parameters at the end.

    Args:
        signature: Of the parameters; that of the kernel by default.

    Attributes:
        meanwhile: Called when a launch is under way, before its parameters are read.
    """

    def __init__(self, signature: Sequence[str] = ()) -> None:
        self.signature = signature
        self.calls: list[tuple[int, ...]] = []
        self.parameters: list[list[Any]] = []
        self.meanwhile: Callable[[], Any] | None = None
        self.contexts: list[int] = []

    def launch(self, *call: int) -> None:
        *numbers, parameters, extra = call
        assert extra == 0
        if self.meanwhile is not None:
            then, self.meanwhile = self.meanwhile, None
            then()
        self.calls.append(tuple(numbers))
        signature = self.signature or LOADED[numbers[0] - FIRST].signature
        self.parameters.append(read(parameters, signature))

    def stream(self, device: int) -> Any:
        assert device == DEVICE
        return SimpleNamespace(ptr=STREAM)

    def put(self, monkeypatch: pytest.MonkeyPatch, **cupy: Any) -> None:
        """Let kernels launch here, with these attributes of CuPy besides."""
        cuda = SimpleNamespace(
            driver=SimpleNamespace(launchKernel=self.launch),
            get_current_stream=self.stream,
            runtime=SimpleNamespace(
                memGetInfo=lambda: self.contexts.append(threading.get_ident()), getDevice=lambda: DEVICE
            ),
            **cupy.pop("cuda", {}),
        )
        made = SimpleNamespace(cuda=cuda, **cupy)
        monkeypatch.setattr(launch, "_cupy", lambda: made)
        monkeypatch.setattr(launch, "_driver", launch._Driver())
        monkeypatch.setattr(launch, "_thread", launch._Thread())
        monkeypatch.setattr(launch, "load", self.load)

    def load(self, source: Any) -> Any:
        """A kernel as CuPy loads it: what it is called by."""
        LOADED.append(source)
        return SimpleNamespace(ptr=FIRST + len(LOADED) - 1)
