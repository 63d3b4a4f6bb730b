"""The suites of other implementations' numbers, and the two codecs compared with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autoq.random import Draw
from autoq.schemes import QuantScheme
from autoq.storage import convert
from autoq.testing import reference
from autoq.testing.reference import Reference

SUITES = Path(__file__).parent.parent / "data" / "vectors"


class Oracle:
    """The plain NumPy definition."""

    quantize = staticmethod(reference.quantize)
    dequantize = staticmethod(reference.dequantize)
    pack = staticmethod(reference.pack)
    unpack = staticmethod(reference.unpack)

    @staticmethod
    def encode(values: np.ndarray, element: str) -> np.ndarray:
        return reference.encode(values, element)

    @staticmethod
    def decode(codes: np.ndarray, element: str) -> np.ndarray:
        return reference.decode(codes, element)


class Storage:
    """What users run: the kernels behind `autoq.storage.convert`, unpacked to codes."""

    @staticmethod
    def quantize(
        x: np.ndarray, scheme: QuantScheme, *, scales: object = None, draw: Draw | None = None
    ) -> Reference:
        packed = convert.quantize(x, scheme, scales=scales, draw=draw)
        codes = convert.unpack(packed.words, scheme.element_bits, np.shape(x))
        return Reference(codes, packed.scales, packed.tensor_scale)

    @staticmethod
    def dequantize(
        codes: np.ndarray, scales: np.ndarray, tensor_scale: object, scheme: QuantScheme
    ) -> np.ndarray:
        words = convert.pack(codes, scheme.element_bits)
        return convert.dequantize(words, scales, tensor_scale, scheme, codes.shape)

    @staticmethod
    def pack(codes: np.ndarray, bits: int) -> np.ndarray:
        return convert.pack(np.asarray(codes, np.uint8), bits)

    @staticmethod
    def unpack(words: np.ndarray, bits: int, n: int) -> np.ndarray:
        return convert.unpack(np.asarray(words, np.uint32), bits, (*words.shape[:-1], n))

    @classmethod
    def encode(cls, values: np.ndarray, element: str) -> np.ndarray:
        """Under one given scale of 1; non-finite values saturate as in the oracle's `encode`."""
        scheme = QuantScheme(element, None, nonfinite="saturate")
        values = np.asarray(values, np.float32)
        return cls.quantize(values, scheme, scales=np.ones((1,) * values.ndim, np.float32)).codes

    @classmethod
    def decode(cls, codes: np.ndarray, element: str) -> np.ndarray:
        codes = np.asarray(codes, np.uint8)
        return cls.dequantize(codes, np.ones((1,) * codes.ndim, np.float32), None, QuantScheme(element, None))


@pytest.fixture(params=[Oracle, Storage], ids=["oracle", "storage"])
def codec(request: pytest.FixtureRequest) -> type:
    return request.param


@pytest.fixture(scope="session")
def suite() -> Callable[[str], dict[str, np.ndarray]]:
    """The arrays of a suite by its name."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(SUITES / f"{name}.npz") as arrays:
            return {key: arrays[key] for key in arrays.files}

    return load
