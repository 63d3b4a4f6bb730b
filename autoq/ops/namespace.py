"""What the package says of itself as a namespace of the Python array API standard."""

from __future__ import annotations

from typing import Any

from autoq import devices, dtypes
from autoq.errors import ArgumentError
from autoq.types import float32, int64

VERSION = "2024.12"
MAXIMUM_AXES = 64  # NumPy's


class ArrayNamespaceInfo:
    """What ``aq.__array_namespace_info__()`` returns: capabilities, devices and dtypes.

    Example:
        >>> ArrayNamespaceInfo().default_device()
        'cpu'
    """

    def capabilities(self) -> dict[str, Any]:
        """What depends on data works: boolean masks as indices, results whose shape is known only then."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MAXIMUM_AXES,
        }

    def default_device(self) -> str:
        """Where tensors are made."""
        return devices.resolve(None)

    def devices(self) -> list[str]:
        """Where tensors can be."""
        return devices.available()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, Any]:
        """The dtypes of what is made from Python numbers, and of positions. There is none for complex ones.

        Example:
            >>> ArrayNamespaceInfo().default_dtypes()["real floating"]
            dtype('float32')
        """
        devices.resolve(device)
        return {"real floating": float32, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes that tensors have, by name; ``int8`` is NumPy's, not the format ``aq.int8``.

        Args:
            device: ``"cpu"``.
            kind: A kind as of ``aq.isdtype``, or a tuple of them; None is all.

        Raises:
            ArgumentError: Another kind.

        Example:
            >>> ArrayNamespaceInfo().dtypes(kind="signed integer")["int8"]
            dtype('int8')
        """
        devices.resolve(device)
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for one in kinds:
            if one not in dtypes.KINDS:
                raise ArgumentError(f"dtypes: kind {one!r}.", ", ".join(dtypes.KINDS), "Pass one of these.")
        return {name: getattr(dtypes, name) for one in kinds for name in dtypes.KINDS[one]}


def array_namespace_info() -> ArrayNamespaceInfo:
    """Capabilities, devices and dtypes, as the array API standard asks for them.

    Example:
        >>> import autoq as aq
        >>> aq.__array_namespace_info__().devices()
        ['cpu'...
    """
    return ArrayNamespaceInfo()
