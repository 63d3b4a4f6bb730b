"""Forwards of ops by kernels for CUDA; imported when an operand on a GPU is first seen."""

from autoq.ops.on_device import division as division
from autoq.ops.on_device import elementwise as elementwise
from autoq.ops.on_device import losses as losses
from autoq.ops.on_device import products as products
from autoq.ops.on_device import reduce as reduce
from autoq.ops.on_device import rows as rows
from autoq.ops.on_device import scans as scans
from autoq.ops.on_device import scatter as scatter
