"""The file: a safetensors container whose metadata hold the format version, the records and a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from autoq.errors import FileFormatError, MissingPackageError

FORMAT, VERSION = "autoq", 1

DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def pack_container(
    arrays: Mapping[str, np.ndarray], records: Mapping[str, Any], metadata: Mapping[str, Any]
) -> bytes:
    """The bytes of a file with these contiguous arrays.

    Args:
        arrays: By entry name; dtypes as in ``DTYPES``.
        records: How packed tensors are put together, JSON.
        metadata: The caller's own, JSON.
    """
    about = json.dumps({"version": VERSION, "packed": records, "metadata": metadata}, sort_keys=True)
    header = {"format": FORMAT, "autoq": about, "crc32": checksum(about, arrays)}
    return bytes(_safetensors().numpy.save(dict(arrays), header))


def unpack_container(data: bytes, path: Any) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, Any]]:
    """Arrays, records and metadata of a file's bytes.

    Raises:
        FileFormatError: For anything but an intact file of this format and version.
    """
    safetensors = _safetensors()
    try:
        entries = safetensors.deserialize(data)
        header = _header(data)
    except (safetensors.SafetensorError, ValueError, TypeError) as error:
        raise _refused(path, f"no intact safetensors file ({error})", len(data)) from error
    about = _about(path, header, len(data))
    arrays = {name: _array(path, name, entry) for name, entry in entries}
    if checksum(header["autoq"], arrays) != header.get("crc32"):
        raise _refused(path, "its checksum does not match its contents", len(data))
    return arrays, about["packed"], about["metadata"]


def checksum(about: str, arrays: Mapping[str, np.ndarray]) -> str:
    """CRC-32 of the records and of every entry's name, dtype, shape and bytes, in the order of names."""
    crc = zlib.crc32(about.encode())
    for name in sorted(arrays):
        array = arrays[name]
        crc = zlib.crc32(f"{name} {array.dtype.name} {array.shape}".encode(), crc)
        crc = zlib.crc32(array.reshape(-1).view(np.uint8).data, crc)
    return f"{crc:08x}"


def _header(data: bytes) -> dict[str, str]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]).get("__metadata__") or {}


def _about(path: Any, header: Mapping[str, str], size: int) -> dict[str, Any]:
    if header.get("format") != FORMAT or "autoq" not in header:
        raise _refused(path, f"a foreign safetensors file: its metadata are {dict(header)!r}", size)
    try:
        about: dict[str, Any] = json.loads(header["autoq"])
        version = about["version"]
        fits = isinstance(about["packed"], dict) and isinstance(about["metadata"], dict)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _refused(path, f"its autoq record is damaged ({error!r})", size) from error
    if not fits or version != VERSION:
        raise _refused(path, f"format version {version!r}, this autoq reads {VERSION}", size)
    return about


def _array(path: Any, name: str, entry: Mapping[str, Any]) -> np.ndarray:
    if entry["dtype"] not in DTYPES:
        raise _refused(path, f"entry {name!r} has dtype {entry['dtype']}", len(entry["data"]))
    return np.frombuffer(bytearray(entry["data"]), DTYPES[entry["dtype"]]).reshape(entry["shape"])


def _refused(path: Any, what: str, size: int) -> FileFormatError:
    return FileFormatError(
        f"load: {path} ({size} bytes): {what}.",
        "an intact file written by aq.io.save",
        "Copy or save the file again; read foreign files with safetensors.numpy.load_file.",
    )


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise MissingPackageError(
            "io: the package safetensors is not installed.",
            "an environment with the extra 'train'",
            "Run pip install -e '.[train]' in autoq's checkout.",
        ) from error
    return safetensors
