"""Every implementation of the formats behind one interface, so that one test serves them all."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..schemes import QuantScheme
from ..storage import convert
from . import reference
from .reference import Reference

Array = np.ndarray[Any, np.dtype[Any]]


class Oracle:
    """The plain NumPy definition of :mod:`autoq.testing.reference`.

    Example:
        >>> Oracle.encode(np.array([2.5, 100.0]), "e2m1").tolist()
        [4, 7]
    """

    @staticmethod
    def quantize(x: Array, scheme: QuantScheme, *, scales: Any = None, draw: Any = None) -> Reference:
        """Codes, scales and tensor scale of ``x``."""
        return reference.quantize(x, scheme, scales=scales, draw=draw)

    @staticmethod
    def dequantize(codes: Array, scales: Array, tensor_scale: Any, scheme: QuantScheme) -> Array:
        """float32 values."""
        return reference.dequantize(codes, scales, tensor_scale, scheme)

    @staticmethod
    def pack(codes: Array, bits: int) -> Array:
        """uint32 words of each line of codes."""
        return reference.pack(codes, bits)

    @staticmethod
    def unpack(words: Array, bits: int, n: int) -> Array:
        """The first ``n`` codes of each line of words."""
        return reference.unpack(words, bits, n)

    @staticmethod
    def encode(values: Array, element: str) -> Array:
        """Element codes of values as they are; infinities saturate, NaN takes the NaN code or 0."""
        return reference.encode(values, element)

    @staticmethod
    def decode(codes: Array, element: str) -> Array:
        """float32 values of element codes."""
        return reference.decode(codes, element)


class Storage:
    """What users run: the kernels behind :mod:`autoq.storage.convert`, unpacked to codes.

    Element codes are those of a tensor under one given scale of 1.

    Example:
        >>> Storage.encode(np.array([2.5, 100.0]), "e2m1").tolist()
        [4, 7]
    """

    @staticmethod
    def quantize(x: Array, scheme: QuantScheme, *, scales: Any = None, draw: Any = None) -> Reference:
        """Codes, scales and tensor scale of ``x``."""
        packed = convert.quantize(x, scheme, scales=scales, draw=draw)
        codes = convert.unpack(packed.words, scheme.element_bits, np.shape(x))
        return Reference(codes, packed.scales, packed.tensor_scale)

    @staticmethod
    def dequantize(codes: Array, scales: Array, tensor_scale: Any, scheme: QuantScheme) -> Array:
        """float32 values."""
        words = convert.pack(codes, scheme.element_bits)
        return convert.dequantize(words, scales, tensor_scale, scheme, codes.shape)

    @staticmethod
    def pack(codes: Array, bits: int) -> Array:
        """uint32 words of each line of codes."""
        return convert.pack(np.asarray(codes, np.uint8), bits)

    @staticmethod
    def unpack(words: Array, bits: int, n: int) -> Array:
        """The first ``n`` codes of each line of words."""
        return convert.unpack(np.asarray(words, np.uint32), bits, (*words.shape[:-1], n))

    @classmethod
    def encode(cls, values: Array, element: str) -> Array:
        """Element codes of values as they are; infinities saturate, NaN takes the NaN code or 0."""
        values = np.asarray(values, np.float32)
        scheme = QuantScheme(element, None, nonfinite="saturate")
        return cls.quantize(values, scheme, scales=np.ones((1,) * values.ndim, np.float32)).codes

    @classmethod
    def decode(cls, codes: Array, element: str) -> Array:
        """float32 values of element codes."""
        codes = np.asarray(codes, np.uint8)
        return cls.dequantize(codes, np.ones((1,) * codes.ndim, np.float32), None, QuantScheme(element, None))
