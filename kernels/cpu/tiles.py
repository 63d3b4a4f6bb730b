"""How lines of blocks are cut into tiles that stay in the first-level cache."""

from __future__ import annotations

from ..bind import scalar
from .bitstream import GROUP

# Values a tile: 4 KiB of float32. Larger tiles alternate between waiting for memory and computing.
TILE = 1024


@scalar
def tile_blocks(block, bits):
    """Blocks a tile: about TILE values; a multiple of GROUP codes where codes share bytes."""
    count = max(TILE // block, 1)
    if bits == 8:
        return count
    step = GROUP
    # The smallest step that makes step * block a multiple of GROUP, a power of two.
    while step > 1 and (step >> 1) * block % GROUP == 0:
        step >>= 1
    return (count + step - 1) // step * step


@scalar
def padded(count):
    """``count`` rounded up to a multiple of GROUP."""
    return (count + GROUP - 1) // GROUP * GROUP


@scalar
def line_layout(shape, line_bytes, block, bits):
    """(lines, values a line, bytes a line, blocks a line, values a block) as kernels walk them.

    Lines without a partial block or padding are one long line.
    """
    lines, n = shape
    width = max(min(block, n), 1)
    blocks = (n + width - 1) // width
    if n % width == 0 and line_bytes * 8 == n * bits:
        return 1, lines * n, lines * line_bytes, lines * blocks, width
    return lines, n, line_bytes, blocks, width


@scalar
def misfit(x, words, scales, blocks, bits):
    """Whether the results don't fit the lines."""
    return x.shape[0] != words.shape[0] or words.shape[1] * 8 < x.shape[1] * bits or scales.size != blocks
