"""The array API standard's protocols of dense tensors: their namespace, and DLPack."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from autoq.errors import ArgumentError, DTypeError, GradientError

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


class Standard:
    """What dense tensors answer; packed ones don't, for their dtypes are none of the standard's."""

    __slots__ = ()

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """The package itself.

        Raises:
            ArgumentError: A version of the standard that it doesn't follow.

        Example:
            >>> import autoq as aq
            >>> aq.tensor([1.0]).__array_namespace__() is aq
            True
        """
        if api_version is not None and api_version not in VERSIONS:
            raise ArgumentError(
                f"api_version={api_version!r}.", ", ".join(VERSIONS), "Leave api_version out for the newest."
            )
        return sys.modules[__name__.partition(".")[0]]

    def __dlpack__(
        self: Any,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory as a DLPack capsule, for ``from_dlpack`` of other libraries.

        Raises:
            GradientError: It is tracked: what is written there would escape the tape.
            DTypeError: bfloat16, which NumPy's arrays can't hand over.
            BufferError: A version or a copy that NumPy can't give.
        """
        if self._node is not None:
            raise GradientError(
                "__dlpack__ of a tracked tensor.", "untracked tensors.", "Call .detach() first."
            )
        if self._type.dtype.kind not in "fiub":
            raise DTypeError(
                f"__dlpack__ of a {self._type.dtype.name} tensor.",
                "bool, integers, float16, float32 and float64.",
                "Cast it with astype first.",
            )
        return self._value.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        """DLPack's type and number of the device: ``(1, 0)`` is the CPU, ``(2, N)`` a GPU."""
        kind, number = self._value.__dlpack_device__()
        return int(kind), int(number)

    @property
    def __cuda_array_interface__(self: Any) -> dict[str, Any]:
        """How other libraries find the memory of a tensor on a GPU; other tensors don't have it.

        Raises:
            AttributeError: It is on the CPU.
            GradientError: It is tracked: what is written there would escape the tape.
        """
        if self.device == "cpu":
            raise AttributeError("__cuda_array_interface__ of a tensor on the CPU")
        if self._node is not None:
            raise GradientError(
                "__cuda_array_interface__ of a tracked tensor.", "untracked tensors.", "Call .detach() first."
            )
        found: dict[str, Any] = self._value.__cuda_array_interface__
        return found
