"""Saving and loading state dicts, packed tensors as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autoq.devices import resolve, to_device, to_host
from autoq.errors import ArgumentError, AutoqError, DTypeError, FileFormatError
from autoq.io.atomic import write_atomically
from autoq.io.container import DTYPES, pack_container, unpack_container
from autoq.io.packed import assemble, contiguous, disassemble
from autoq.storage.qtensor import QTensor


class Loadable(Protocol):
    """What a file can be loaded into: a module or an optimizer."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over all of a state, or none of it."""


Path_ = str | os.PathLike[str]


def save(path: Path_, state: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
    """Write a state dict into one safetensors file, as a whole or not at all.

    Packed tensors are stored as words, scales and tensor scale, the scheme in the metadata; none is decoded.
    What is on a GPU is copied to the CPU first.

    Args:
        path: The file; an old one is replaced.
        state: Arrays, QTensors or tensors by name, as the ``state_dict()`` of a module or optimizer.
        metadata: Anything JSON can hold, by name; read it back with :func:`load_metadata`.

    Raises:
        DTypeError: For a value that is no array, or of a dtype that the format has not.
        ArgumentError: For metadata that are not JSON, or names that collide.
        MissingPackageError: Without safetensors.
        OSError: If the file can't be written.

    Example:
        >>> import autoq as aq, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     aq.io.save(f"{folder}/state.safetensors", {"w": aq.tensor([[1.0] * 32]).quantize(aq.nvfp4)})
        ...     aq.io.load(f"{folder}/state.safetensors")["w"].scheme.name
        'nvfp4'
    """
    if not isinstance(state, Mapping):
        raise DTypeError(
            f"save: a {type(state).__name__} as the state.",
            "a dict of arrays by name",
            "Call save(path, model.state_dict()).",
        )
    arrays: dict[str, np.ndarray] = {}
    records: dict[str, Any] = {}
    for name, value in state.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ArgumentError(
                f"save: the name {name!r}.",
                "strings, without safetensors' own name '__metadata__'",
                "Rename the entry.",
            )
        parts, record = _entries(name, value)
        _check_free(parts, arrays)
        arrays |= parts
        if record is not None:
            records[name] = record
    write_atomically(path, pack_container(arrays, records, _json(metadata)))


def load(path: Path_, *, device: str = "cpu") -> dict[str, Any]:
    """The state dict of a file: NumPy arrays, and QTensors with the very bits that were saved.

    Args:
        path: The file.
        device: Where the arrays are to be; on a GPU they are CuPy's. Modules and optimizers take over a state
            from any device.

    Raises:
        DeviceError: The device can't be used.
        FileFormatError: For a truncated, corrupt or foreign file.
        MissingPackageError: Without safetensors.
        OSError: If the file can't be read.
    """
    place = resolve(device)
    arrays, records, _ = unpack_container(Path(path).read_bytes(), path)
    state: dict[str, Any] = {}
    for name, record in records.items():
        try:
            state[name] = assemble(name, record, arrays)
            parts, _ = _entries(name, state[name])
        except (AutoqError, KeyError, TypeError, ValueError) as error:
            raise FileFormatError(
                f"load: {path}: the packed tensor {name!r} can't be put together ({error}).",
                "a file whose schemes are registered here",
                "Register the element or scale format it was saved with, or save the file again.",
            ) from error
        for part in parts:
            arrays.pop(part)
    if place == "cpu":
        return {**arrays, **state}
    moved = {name: to_device(array, place) for name, array in arrays.items()}
    return {**moved, **{name: q.to(place) for name, q in state.items()}}


def load_metadata(path: Path_) -> dict[str, Any]:
    """The metadata that were saved with a state dict.

    Raises:
        FileFormatError: For a truncated, corrupt or foreign file.
    """
    return unpack_container(Path(path).read_bytes(), path)[2]


def load_into(model: Loadable, path: Path_) -> None:
    """Load a file into a model, which keeps its old values if anything does not fit.

    Raises:
        FileFormatError: For a truncated, corrupt or foreign file.
        StateError: If the entries are not those of the model.

    Example:
        >>> import autoq as aq, tempfile
        >>> a, b = (aq.nn.Linear(4, 2, rng=aq.Generator(seed)) for seed in (0, 1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     aq.io.save(f"{folder}/model.safetensors", a.state_dict())
        ...     aq.io.load_into(b, f"{folder}/model.safetensors")
        >>> bool((a.weight.numpy() == b.weight.numpy()).all())
        True
    """
    if not hasattr(model, "load_state_dict"):
        raise DTypeError(
            f"load_into a {type(model).__name__}.", "a module or an optimizer", "Use aq.io.load for the dict."
        )
    model.load_state_dict(load(path))


def _entries(name: str, value: Any) -> tuple[dict[str, np.ndarray], dict[str, Any] | None]:
    value = getattr(value, "value", value)
    if isinstance(value, QTensor):
        return disassemble(name, value.to("cpu"))
    array = to_host(value)
    if array.dtype not in [np.dtype(dtype) for dtype in DTYPES.values()]:
        raise DTypeError(
            f"save: {name!r} is {array.dtype} (a {type(value).__name__}).",
            "QTensors and arrays of " + ", ".join(np.dtype(dtype).name for dtype in DTYPES.values()),
            "Convert the entry, or put it into metadata=.",
        )
    return {name: contiguous(array)}, None


def _check_free(new: Mapping[str, Any], taken: Mapping[str, Any]) -> None:
    clash = sorted(set(new) & set(taken))
    if clash:
        raise ArgumentError(
            f"save: two entries are stored as {clash[0]!r}.",
            "names that don't end in /words or /scales",
            "Rename one.",
        )


def _json(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    plain = metadata if metadata is None or isinstance(metadata, Mapping) else None
    if metadata is not None and plain is None:
        raise ArgumentError(
            f"save: metadata={metadata!r}.", "a dict, or None", "Put the value into a dict, by a name."
        )
    plain = dict(plain or {})
    try:
        restored: dict[str, Any] = json.loads(json.dumps(plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"save: metadata can't be written as JSON ({error}).",
            "strings, numbers, booleans, None, lists and dicts",
            "Convert arrays with .tolist().",
        ) from error
    return restored
