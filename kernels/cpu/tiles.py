"""How lines of blocks are cut into tiles that stay in the first-level cache."""

from __future__ import annotations

from ..bind import scalar
from .bitstream import GROUP

# Values a tile: 16 KiB of float32.
TILE = 4096


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
