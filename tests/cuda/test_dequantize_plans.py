"""Which kernel decodes what, with launches noted instead of made: no device is needed for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import dequantize as decoding
from autoq.kernels.cuda.launch import Kernel
from autoq.schemes import QuantScheme, scheme
from autoq.storage import convert
from autoq.storage.plan import codec_of


class DeviceArray(np.ndarray):
    """A NumPy array that gives its address as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """Name and parameters of the factory of every kernel that would be launched, with its arguments."""
    notes: list[tuple[str, tuple[Any, ...]]] = []

    def note(kernel: Kernel, blocks: int, threads: int, *arguments: Any) -> None:
        assert blocks > 0
        assert len(arguments) == len(kernel.source.signature)
        for kind, argument in zip(kernel.source.signature, arguments, strict=True):
            assert argument is None or isinstance(argument, DeviceArray if kind.endswith("*") else int)
        notes.append((kernel.source.name, arguments))

    monkeypatch.setattr(Kernel, "__call__", note)
    monkeypatch.setattr(decoding, "current_device", lambda: 0)
    monkeypatch.setattr(decoding, "device_capability", lambda device: (9, 0))
    monkeypatch.setattr(decoding, "_launches", {})
    return notes


def aligned(shape: tuple[int, ...], dtype: Any, skip: int = 0) -> DeviceArray:
    """An array whose first element lies ``skip`` bytes beyond a multiple of 16."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 16 + skip
    return raw[start : start + size].view(dtype).reshape(shape).view(DeviceArray)


def decode(chosen: QuantScheme, out: np.ndarray, skip: int = 0) -> None:
    words, scales, level = convert.quantize(np.ones(out.shape, np.float32), chosen)
    held = aligned(words.shape, np.uint32, skip)
    held[...] = words
    tensor_scale = None if level is None else np.array(level).view(DeviceArray)
    arrays = held, scales.view(DeviceArray), tensor_scale
    decoding.dequantize(*arrays, codec_of(chosen), chosen.block or (), out)


CASES = {
    "lines of whole blocks": ("mxfp8", aligned((4, 64), np.float32), "flat_kernel"),
    "16 bits": ("nvfp4", aligned((4, 64), ml_dtypes.bfloat16), "flat_kernel"),
    "24 bytes a block": ("mxfp6_e3m2", aligned((4, 96), np.float16), "flat_kernel"),
    "one scale": ("fp8_e4m3", aligned((4, 64), np.float32), "flat_kernel"),
    "tiles": ("mxfp8_2d", aligned((64, 64), np.float32), "flat_kernel"),
    "a partial block a line": ("mxfp8", aligned((4, 40), np.float32), "strided_kernel"),
    "one line with a partial block": ("mxfp8", aligned((1, 40), np.float32), "flat_kernel"),
    "a transposed result": ("mxfp8", aligned((64, 4), np.float32).T, "strided_kernel"),
    "a result off by one": ("mxfp8", aligned((4, 64), np.float32, 4), "strided_kernel"),
    "blocks of 20": (QuantScheme("int8", (20,)), aligned((4, 40), np.float32), "strided_kernel"),
}


@pytest.mark.parametrize("case", CASES)
def test_which_kernel_decodes(case: str, launched: list[Any]) -> None:
    name, out, kernel = CASES[case]
    decode(scheme(name), out)
    assert [found for found, _ in launched] == [kernel]


def test_words_of_odd_alignment_are_read_one_at_a_time(launched: list[Any]) -> None:
    out = aligned((4, 64), ml_dtypes.bfloat16)
    decode(scheme("mxfp8"), out)
    decode(scheme("mxfp8"), out, skip=4)
    (_, together), (_, apart) = launched
    # Runs of four codes, a word, wherever they lie.
    assert together[5] == apart[5] == out.size // 4


def test_the_same_layout_is_planned_once(launched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    plan = decoding.plan
    monkeypatch.setattr(decoding, "plan", lambda *arguments: planned.append(1) or plan(*arguments))
    for _ in range(3):
        decode(scheme("mxfp8"), aligned((4, 64), np.float32))
    decode(scheme("mxfp8"), aligned((5, 64), np.float32))
    assert len(launched) == 4
    assert len(planned) == 2


def test_axes_that_are_too_many_take_a_launch_each(launched: list[Any]) -> None:
    out = aligned((2, 3, 2, 3, 2, 40), np.float32).transpose(4, 3, 2, 1, 0, 5)
    decode(scheme("mxfp8"), out)
    assert {name for name, _ in launched} == {"strided_kernel"}
    assert len(launched) == 6
