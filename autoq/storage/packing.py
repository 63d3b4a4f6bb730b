"""Codes to words and back: the byte layout of a line."""

from __future__ import annotations

import numpy as np

from ..context import OBSERVERS, launched
from ..devices import array_namespace, device_of, on_gpu, using_device
from . import device
from .layout import Array, Shape, words_shape
from .plan import kernels


def pack(codes: Array, bits: int, out: Array | None = None) -> Array:
    """Pack uint8 codes into words along the last axis.

    Example:
        >>> hex(pack(np.array([1, 2, 3], np.uint8), 4)[0])
        '0x321'
    """
    if on_gpu(codes):
        if out is None:
            with using_device(device_of(codes)):
                out = array_namespace(codes).zeros(words_shape(codes.shape, bits), np.uint32)
        device.pack(codes, bits, out)
        return out
    words = np.zeros(words_shape(codes.shape, bits), np.uint32) if out is None else out
    if codes.size:
        n = codes.shape[-1] if codes.ndim else 1
        flat = np.ascontiguousarray(codes).reshape(-1, n)
        kernels().pack_lines(flat, bits, words.view(np.uint8).reshape(len(flat), -1))
        if OBSERVERS:
            launched("pack_lines", codes.size)
    return words


def unpack(words: Array, bits: int, shape: Shape) -> Array:
    """The uint8 codes of ``shape`` that ``words`` hold.

    Example:
        >>> unpack(np.array([0x321], np.uint32), 4, (3,)).tolist()
        [1, 2, 3]
    """
    if on_gpu(words):
        with using_device(device_of(words)):
            out = array_namespace(words).empty(shape, np.uint8)
        device.unpack(words, bits, out)
        return out
    codes = np.empty(shape, np.uint8)
    if codes.size:
        n = shape[-1] if shape else 1
        lines = codes.size // n
        flat = np.ascontiguousarray(words).view(np.uint8).reshape(lines, -1)
        kernels().unpack_lines(flat, bits, n, codes.reshape(lines, n))
        if OBSERVERS:
            launched("unpack_lines", codes.size)
    return codes
