"""A packed tensor as plain arrays and a JSON record, and back, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autoq.schemes import QuantScheme
from autoq.schemes.scheme import FIELDS
from autoq.storage.layout import Layout
from autoq.storage.qtensor import QTensor

PARTS = ("words", "scales", "tensor_scale")


def part_name(name: str, part: str) -> str:
    """The entry in which a part of the tensor ``name`` is stored."""
    return f"{name}/{part}"


def contiguous(array: Any) -> np.ndarray:
    """The array in row-major order; ``np.ascontiguousarray`` alone gives a 0-d array an axis."""
    return np.ascontiguousarray(array).reshape(np.shape(array))


def disassemble(name: str, q: QTensor) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a packed tensor by entry name, views made contiguous, and its record."""
    parts = {"words": q.words, "scales": q.scales, "tensor_scale": q.tensor_scale}
    arrays = {part_name(name, part): contiguous(array) for part, array in parts.items() if array is not None}
    record = {
        "scheme": {field: getattr(q.scheme, field) for field in FIELDS},
        "shape": list(q.shape),
        "order": list(q.layout.order),
    }
    return arrays, record


def assemble(name: str, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> QTensor:
    """The packed tensor of a record; QTensor checks that its arrays fit each other.

    Raises:
        KeyError: If a part is missing.
        AutoqError: If scheme, shape and arrays do not fit.
    """
    fields = dict(record["scheme"])
    if fields["block"] is not None:
        fields["block"] = tuple(fields["block"])
    scheme = QuantScheme(**fields)
    words, scales = (arrays[part_name(name, part)] for part in ("words", "scales"))
    tensor_scale = (
        np.float32(arrays[part_name(name, "tensor_scale")].reshape(())) if scheme.tensor_scale else None
    )
    layout = Layout(tuple(record["order"]))
    return QTensor(words, scales, tensor_scale, scheme, tuple(record["shape"]), layout)
