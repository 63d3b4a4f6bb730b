"""Names of GPUs, and what is missing where one can't be used."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from autoq.errors import DeviceError

OLDEST = 80  # compute capability 8.0: what bfloat16 and the conversions in the kernels need
INSTALL = "in autoq's checkout, for your driver's CUDA: pip install -e '.[cuda13]', or '.[cuda12]'."


def index_of(name: Any) -> int:
    """The number of a GPU in a device's name.

    Raises:
        DeviceError: It names no GPU.

    Example:
        >>> index_of("cuda"), index_of("cuda:1")
        (0, 1)
    """
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind != "cuda" or (number and not number.isdecimal()) or name == "cuda:":
        hint = " For a dtype use astype." if _is_dtype(name) else ""
        raise DeviceError(
            f"device {name!r} is not offered.",
            '"cpu", "cuda", "cuda:N" with the number of a GPU',
            f'Pass "cpu" or "cuda".{hint}',
        )
    return int(number or 0)


def name_of(index: Any) -> str:
    """The name of the GPU of a number: ``"cuda"`` is the first.

    Raises:
        DeviceError: It is no integer, or below 0.

    Example:
        >>> name_of(0), name_of(1)
        ('cuda', 'cuda:1')
    """
    if not isinstance(index, int | np.integer) or isinstance(index, bool) or index < 0:
        raise DeviceError(
            f"the number of a GPU is {index!r}.",
            "an integer of at least 0",
            'Pass a number, as in aq.cuda(1); a name, such as "cuda:1", is passed as device.',
        )
    return f"cuda:{index}" if index else "cuda"


def import_cupy(device: str = "cuda") -> Any:
    """CuPy, imported for a device.

    Raises:
        DeviceError: It isn't installed, or can't be loaded.
    """
    try:
        import cupy
    except (ImportError, OSError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise DeviceError(
                f"device {device!r} without CuPy ({error}).",
                '"cpu" where CuPy is not installed',
                f"Install it {INSTALL}",
            ) from None
        cause = error.__cause__ or error  # CuPy puts a page of advice around what failed
        raise DeviceError(
            f"device {device!r}: CuPy is installed, and can't be loaded ({cause}).",
            '"cpu" where CuPy can\'t be loaded',
            f"Install what it doesn't find: CuPy and the libraries of CUDA come together {INSTALL}",
        ) from error
    return cupy


def check_usable(index: int) -> None:
    """Raise DeviceError unless there is a GPU of that number that the kernels run on."""
    name = name_of(index)
    cupy = import_cupy(name)
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except RuntimeError as error:
        raise DeviceError(
            f"device {name!r}: CuPy finds no GPU ({error}).",
            '"cpu" on this computer',
            "Check that nvidia-smi lists a GPU and that its driver is as new as the CUDA that CuPy is for.",
        ) from None
    if index >= count:
        raise DeviceError(
            f"device {name!r} of {count} GPUs.",
            ", ".join(["'cpu'", *(repr(name_of(i)) for i in range(count))]),
            "Pass a number in range; CUDA_VISIBLE_DEVICES hides GPUs.",
        )
    capability = int(cupy.cuda.Device(index).compute_capability)
    if capability < OLDEST:
        raise DeviceError(
            f"device {name!r} has compute capability {capability / 10}.",
            f"GPUs of compute capability {OLDEST / 10} (Ampere) or newer",
            'Use device="cpu" on this computer.',
        )
    if find_spec("numba_cuda") is None:
        raise DeviceError(
            f"device {name!r} without numba-cuda, which compiles the kernels.",
            '"cpu" where numba-cuda is not installed',
            f"Install it and CuPy {INSTALL}",
        )


def _is_dtype(name: Any) -> bool:
    """Whether what was given for a device is, or names, a dtype of NumPy or a scheme."""
    if not isinstance(name, str):
        return not isinstance(name, int)
    try:
        np.dtype(name)
    except TypeError:
        return False
    return True
