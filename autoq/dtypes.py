"""The dtypes of dense tensors under the array API standard's names, ``int8`` among them.

``aq.int8`` is a quantized format (S1), as ``aq.int4`` is; the NumPy dtype of whole numbers of 8 bits is
``aq.dtypes.int8``. The others are the same objects as ``aq.float32`` and so on.

Example:
    >>> import autoq as aq
    >>> aq.tensor([1, 2], dtype=aq.dtypes.int8), aq.tensor([1.0, 2.0], dtype=aq.int8)
    (tensor([1 2], int8), <AutodiffQTensor (2,) int8>)
"""

from __future__ import annotations

import numpy as np

from autoq.types import bfloat16 as bfloat16
from autoq.types import bool_ as bool  # noqa: F401
from autoq.types import float16 as float16
from autoq.types import float32 as float32
from autoq.types import float64 as float64
from autoq.types import int16 as int16
from autoq.types import int32 as int32
from autoq.types import int64 as int64
from autoq.types import uint8 as uint8
from autoq.types import uint16 as uint16
from autoq.types import uint32 as uint32
from autoq.types import uint64 as uint64

int8 = np.dtype(np.int8)

# What ``aq.__array_namespace_info__().dtypes()`` lists, by the standard's kinds.
KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": (),
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"]

__all__ = [
    *("bfloat16", "bool", "float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
]
