"""Tensors between devices: ``to`` and its short forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoq.devices import resolve
from autoq.errors import ArgumentError
from autoq.gpu_checks import name_of
from autoq.tape.apply import apply

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor


class Moving:
    """How a tensor gets to another device."""

    __slots__ = ()

    def to(self: Any, device: str) -> Tensor:
        """The tensor on a device, itself where it is there; its gradient comes back (S4).

        Args:
            device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

        Raises:
            DeviceError: A device that isn't offered, or can't be used on this computer.

        Example:
            >>> import autoq as aq
            >>> x = aq.tensor([1.0])
            >>> x.to(x.device) is x
            True
        """
        device = resolve(device)
        return self if device == self.device else apply("to_device", self, device=device)

    def cpu(self: Any) -> Tensor:
        """The tensor on the CPU: ``to("cpu")``."""
        return self.to("cpu")

    def cuda(self: Any, index: int = 0) -> Tensor:
        """The tensor on a GPU: ``to("cuda")``, or that of another number."""
        return self.to(name_of(index))

    def to_device(self, device: str, *, stream: Any = None) -> Tensor:
        """``to`` under the array API standard's name; work on a GPU is in the order of CuPy's stream."""
        if stream is not None:
            raise ArgumentError(f"to_device with stream={stream!r}.", "stream=None", "Leave stream out.")
        return self.to(device)
