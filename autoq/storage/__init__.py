"""Packed tensors: their bytes, their layout, and moving between them and arrays."""

from .convert import Packed as Packed
from .layout import Geometry as Geometry
from .layout import Layout as Layout
from .qtensor import QTensor as QTensor
from .tiles import map_tiles as map_tiles
