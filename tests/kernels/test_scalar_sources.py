"""The interpreter and compiled code run one source and give one result."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from autoq.kernels.cpu import dequantize, quantize, quantize_kernels
from autoq.kernels.cpu.bitstream import packer

from .codecs import CODECS, SCHEMES, block_of, edge_lines, finite_amax, results

DRAW = (0x0123456789ABCDEF, 0xFEDCBA9876543210)


def interpreted(name: str, x: np.ndarray, amax: float) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel gives as the plain Python function that it is."""
    codec = CODECS[name]
    make = quantize_kernels.byte_lines if codec.element.bits == 8 else quantize_kernels.packed_lines
    words, scales = results(name, x)
    stored = scales.view(np.uint16) if scales.dtype.itemsize == 2 else scales
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        misfit = make(codec)(
            x, words, stored, block_of(name), amax, quantize.NO_LINES, quantize.key_of(DRAW), 0
        )
    assert misfit == 0
    return words, scales


@pytest.mark.parametrize("name", CODECS)
def test_interpreter_and_compiled_kernel_agree_without_warnings(name: str) -> None:
    x = edge_lines(75)
    amax = finite_amax(x)
    words, scales = results(name, x)
    quantize.quantize_lines(x, CODECS[name], block_of(name), words, scales, amax, draw=DRAW)
    slow_words, slow_scales = interpreted(name, x, amax)
    assert scales.tobytes() == slow_scales.tobytes()
    np.testing.assert_array_equal(words, slow_words)


@pytest.mark.parametrize("name", [name for name in CODECS if "stochastic" not in name])
def test_finite_input_decodes_to_finite_values(name: str) -> None:
    x = edge_lines(75, finite=True)
    words, scales = results(name, x)
    amax = finite_amax(x)
    quantize.quantize_lines(x, CODECS[name], block_of(name), words, scales, amax)
    out = np.full_like(x, np.nan)
    level = np.float32(amax) / np.float32(2688) if SCHEMES[name].tensor_scale else None
    dequantize.dequantize_lines(words, scales, level, CODECS[name], block_of(name), out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("name", ["mxfp8", "mxfp6 floor", "int4 f16"])
def test_blocks_encode_as_lines_do(name: str) -> None:
    codec, block = CODECS[name], block_of(name)
    x = edge_lines(block)
    words, scales = results(name, x)
    quantize.quantize_lines(x, codec, block, words, scales)
    codes, block_scales = np.zeros(x.shape, np.uint8), np.zeros(len(x), scales.dtype)
    quantize.quantize_blocks(x, None, codec, codes, block_scales)
    packed = np.zeros_like(words)
    for line, row in zip(packed, codes, strict=True):
        packer(codec.element.bits)(np.pad(row, (0, -len(row) % 32)), line)
    np.testing.assert_array_equal(packed, words)
    assert block_scales.tobytes() == scales.tobytes()
