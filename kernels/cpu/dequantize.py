"""Dequantize lines of packed codes: unpack a tile, decode it, multiply by the block's scale."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import ShapeError
from ..bind import compile_cpu, scalar
from ..codec import Codec, ElementCodec
from ..scalar.bits import F, U
from ..scalar.element import element_functions
from ..scalar.scale import scale_functions
from .bitstream import GROUP, unpacker
from .pool import PARALLEL_VALUES, ranges, run, threads
from .signatures import array, scale_array, signature
from .tiles import line_layout, misfit, padded, tile_blocks
from .views import flattened, part, register, rows, viewed

Array = np.ndarray
Kernel = Callable[..., int]

# Compiled kernels: by what decoding depends on, and by the codec's identity, which spares hashing it.
_lines: dict[tuple[ElementCodec, str, bool], Kernel] = {}
_lines_by_id: dict[int, tuple[Codec, Kernel]] = {}
_codes: dict[ElementCodec, Kernel] = {}
IDENTITIES = 1024


def dequantize_lines(
    words: Array, scales: Array, tensor_scale: float | None, codec: Codec, block: int, out: Array
) -> None:
    """Decode lines whose blocks run along them.

    Args:
        words: uint8 (lines, line bytes), C-contiguous.
        scales: Stored scales (lines, ceil(n / block)).
        tensor_scale: The float32 scale of two-level codecs, else None.
        codec: What the codes and scales are.
        block: Values a block.
        out: float32 (lines, n), written.

    Raises:
        ShapeError: If the arrays don't fit each other.

    Example:
        >>> from autoq.kernels.codec import Codec, ElementCodec
        >>> e2m1 = ElementCodec("e2m1", "minifloat", 4, 1, 1, 6.0, -6.0, 1.0, 7, False, -1)
        >>> out = np.empty((1, 4), np.float32)
        >>> dequantize_lines(np.array([[0x17, 0x5A]], np.uint8), np.array([[128]], np.uint8), None,
        ...                  Codec(e2m1, "ue8m0", "round_up"), 32, out)
        >>> out.tolist()
        [[12.0, 1.0, -2.0, 6.0]]
    """
    found = _lines_by_id.get(id(codec))
    kernel = found[1] if found is not None else _kernel(codec)
    if scales.dtype.itemsize == 2:
        scales = scales.view(np.uint16)
    factor = 1.0 if tensor_scale is None else float(tensor_scale)
    if out.size < PARALLEL_VALUES or threads() == 1:
        if kernel(words, scales, factor, block, out):
            raise _misfit(words, scales, out, block)
        return
    _spread(kernel, codec.element.bits, words, scales, factor, block, out)


def _spread(
    kernel: Kernel, bits: int, words: Array, scales: Array, factor: float, block: int, out: Array
) -> None:
    """Run the kernel on ranges of lines; of blocks, where those are whole bytes."""
    lines, n = out.shape
    if n % block == 0 and block * bits % 8 == 0 and words.shape == (lines, n * bits // 8):
        blocks = lines * (n // block)
        if scales.size != blocks:
            raise _misfit(words, scales, out, block)
        words, scales, out = (a.reshape(blocks, -1) for a in (words, scales, out))

    def piece(start: int, stop: int) -> int:
        rows = slice(start, stop)
        return kernel(words[rows], scales[rows], factor, block, out[rows])

    if any(run(piece, ranges(len(out), threads()))):
        raise _misfit(words, scales, out, block)


def decode_codes(codes: Array, codec: Codec, out: Array) -> None:
    """The element values of codes, without scales.

    Args:
        codes: uint8, flat.
        codec: What the codes are.
        out: float32 of the same size, written.
    """
    kernel = _codes.get(codec.element)
    if kernel is None:
        kernel = _codes[codec.element] = codes_kernel(codec.element)
    if kernel(codes, out):
        raise ShapeError(
            f"decode: codes {codes.shape}, out {out.shape}", "equal sizes", "Allocate out from codes.shape."
        )


def _kernel(codec: Codec) -> Kernel:
    key = codec.element, codec.scale, codec.two_level
    kernel = _lines.get(key)
    if kernel is None:
        kernel = _lines[key] = lines_kernel(codec)
    if len(_lines_by_id) >= IDENTITIES:
        _lines_by_id.clear()
    _lines_by_id[id(codec)] = codec, kernel
    return kernel


def _misfit(words: Array, scales: Array, out: Array, block: int) -> ShapeError:
    given = f"words {words.shape}, scales {scales.shape}, out {out.shape}, block {block}"
    return ShapeError(
        f"dequantize: {given}",
        "as many lines in each, a scale a block, a code a value",
        "Allocate out from the shape that was quantized.",
    )


def decode_pass(element: ElementCodec) -> Callable[..., None]:
    """``decode(codes, scales, out)``: the values of a tile (blocks, n)."""
    decode = element_functions(element).decode

    @scalar
    def decode_tile(codes, scales, out):
        for b in range(codes.shape[0]):
            scale = scales[b]
            for i in range(codes.shape[1]):
                out[b, i] = F(decode(U(codes[b, i])) * scale)

    return decode_tile


def scale_pass(codec: Codec) -> Callable[..., None]:
    """``effective(stored, tensor_scale, scales)``: what the codes of each block are multiplied by."""
    value, two_level = scale_functions(codec.scale, codec.rule).decode, codec.two_level

    @scalar
    def effective(stored, tensor_scale, scales):
        for b in range(stored.shape[0]):
            scale = value(U(stored[b]))
            scales[b] = F(scale * tensor_scale) if two_level else scale

    return effective


def lines_kernel(codec: Codec) -> Kernel:
    """The compiled kernel of lines: ``kernel(words, scales, tensor_scale, block, out) -> misfit``."""
    register()
    decode_tile, effective, bits = decode_pass(codec.element), scale_pass(codec), codec.element.bits
    unpack, direct = unpacker(bits), bits == 8
    like: Array = np.zeros(0, scale_functions(codec.scale, codec.rule).dtype)

    def kernel(words, scales, tensor_scale, block, out):
        lines, n, line_bytes, blocks, width = line_layout(out.shape, words.shape[1], block, bits)
        if misfit(out, words, scales, lines * blocks, bits):
            return 1
        packed, values, stored = flattened(words), flattened(out), viewed(flattened(scales), like)
        full = n // width
        tile = min(tile_blocks(width, bits), full)
        tile_scales = np.empty(tile, np.float32)
        scratch = np.empty(0 if direct else padded(tile * width + GROUP), np.uint8)
        for line in range(lines):
            start = 0
            while start < blocks:
                # A partial block is a tile of its own; its codes may begin inside a group of whole bytes.
                count = min(tile, full - start) if start < full else 1
                span = width if start < full else n - start * width
                used = part(tile_scales, 0, count)
                effective(part(stored, line * blocks + start, count), F(tensor_scale), used)
                codes, begin = packed, line * line_bytes + start * width
                if not direct:
                    begin = start * width % GROUP
                    at = (start * width - begin) * bits // 8
                    unpack(
                        part(packed, line * line_bytes + at, line_bytes - at),
                        part(scratch, 0, begin + count * span),
                    )
                    codes = scratch
                decode_tile(
                    rows(codes, begin, count, span), used, rows(values, line * n + start * width, count, span)
                )
                start += count
        return 0

    return compile_cpu(
        kernel,
        signature(
            "int64",
            array("uint8", 2, False),
            scale_array(codec.scale, 2, False),
            "float64",
            "int64",
            array("float32", 2),
        ),
    )


def codes_kernel(element: ElementCodec) -> Kernel:
    """The compiled kernel of codes: ``kernel(codes, out) -> misfit``."""
    decode = element_functions(element).decode

    def kernel(codes, out):
        if codes.size != out.size:
            return 1
        for i in range(codes.shape[0]):
            out[i] = decode(U(codes[i]))
        return 0

    return compile_cpu(kernel, signature("int64", array("uint8", 1, False), array("float32", 1)))
