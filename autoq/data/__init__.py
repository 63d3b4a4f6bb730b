"""Data sets: seeded mini-batches, splits and handwritten digits."""

from autoq.data.batches import Batches as Batches
from autoq.data.batches import Split as Split
from autoq.data.batches import split as split
from autoq.data.digits import digits as digits
