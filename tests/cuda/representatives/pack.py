"""Kernels of packing: every width."""

from __future__ import annotations

from autoq.kernels.cuda.pack import pack_kernel, unpack_kernel, unpack_whole_kernel

REPRESENTATIVES = [
    (factory, (bits,))
    for factory in (pack_kernel, unpack_kernel, unpack_whole_kernel)
    for bits in (2, 3, 4, 6, 8)
]


def every():
    """Every width."""
    for factory in (pack_kernel, unpack_kernel, unpack_whole_kernel):
        for bits in range(1, 9):
            yield factory, (bits,)
