"""QTensor: packed values, block scales and an optional tensor scale, with the invariants between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..devices import (
    address,
    device_of,
    is_array,
    on_gpu,
    resolve,
    same_memory,
    to_device,
    to_host,
    two_devices,
)
from ..errors import DTypeError, ShapeError
from ..schemes import QuantScheme
from ..schemes import scheme as find_scheme
from . import convert
from .allocation import ALIGNMENT, Allocation, Signature, signature_of
from .axes import lengths_of
from .device import scale_to
from .inputs import FLOAT32
from .interop import Interop
from .layout import Array, Layout, Shape, grid_shape, words_shape
from .methods import LayoutMethods
from .packing import unpack
from .plan import plan_of


class QTensor(LayoutMethods, Interop):
    """A packed quantized tensor. Immutable by convention; its arrays may be views of another's.

    Invariants, in storage order (``layout.storage_shape(shape)``):

    - ``words`` is uint32 of the storage shape but for the last axis, which holds
      ``ceil(n * bits / 32)`` words: a little-endian stream, value k at bit ``k * bits``.
      Padding bits are zero.
    - ``scales`` has the shape of the block grid, ``ceil(dim / block)`` an axis, and the scheme's scale dtype.
    - ``tensor_scale`` is a float32 exactly when the scheme has two levels; on a GPU it is an array without
      axes there, which is never read back.
    - The arrays are of NumPy, or of CuPy and on one GPU.

    Args:
        words: uint32 words, any strides, of NumPy or CuPy.
        scales: Stored block scales, any strides.
        tensor_scale: float32 or None.
        scheme: The tensor's dtype.
        shape: The logical shape.
        layout: Axis order; logical order is storage order by default.

    Raises:
        DTypeError, ShapeError: If an invariant doesn't hold.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((2, 64), np.float32), scheme("mxfp8"))
        >>> q.T.shape, q.nbytes, q.bits_per_value
        ((64, 2), 132, 8.25)
    """

    __slots__ = (
        "words",
        "scales",
        "tensor_scale",
        "scheme",
        "shape",
        "layout",
        "signature",
        "addresses",
        "_allocation",
        "_memory",
        "__weakref__",
    )
    words: Array
    scales: Array
    tensor_scale: Any
    scheme: QuantScheme
    shape: Shape
    layout: Layout
    # What launches of kernels depend on, and where arrays on a GPU begin: worked out when first asked for.
    signature: Signature
    addresses: tuple[int, ...]
    # Of arrays on a GPU that are made when first asked for: how they lie, and in what; else there is None.
    _allocation: Allocation
    _memory: Any

    def __init__(
        self,
        words: Array,
        scales: Array,
        tensor_scale: Any,
        scheme: QuantScheme,
        shape: Shape,
        layout: Layout | None = None,
    ) -> None:
        self.words, self.scales, self.scheme, self._memory = words, scales, scheme, None
        self.tensor_scale = None if tensor_scale is None else _one_float(tensor_scale)
        self.shape = lengths_of(shape)
        self.layout = Layout.identity(len(self.shape)) if layout is None else layout
        _check(self)

    @staticmethod
    def make(
        words: Array,
        scales: Array,
        tensor_scale: Any,
        scheme: QuantScheme,
        shape: Shape,
        layout: Layout | None = None,
    ) -> QTensor:
        """A tensor of arrays known to keep the invariants: nothing is checked."""
        q = _new(QTensor)
        q.words, q.scales, q.tensor_scale, q.scheme, q.shape = words, scales, tensor_scale, scheme, shape
        q.layout = Layout.identity(len(shape)) if layout is None else layout
        q._memory = None
        return q

    @staticmethod
    def within(allocation: Allocation) -> QTensor:
        """A tensor in memory of its own that nothing has written to yet, for kernels to encode into."""
        memory = allocation.memory()
        if memory.__class__ is np.ndarray:
            words, scales, *level = allocation.arrays(memory)
            return QTensor.make(
                words, scales, level[0] if level else None, allocation.scheme, allocation.shape
            )
        q = _new(QTensor)
        q.scheme, q.shape, q.layout = allocation.scheme, allocation.shape, allocation.layout
        q._allocation, q._memory = allocation, memory
        q.signature, q.addresses = allocation.signature, allocation.addresses(memory)
        if len(q.addresses) == 2:
            q.tensor_scale = None
        return q

    @property
    def is_on_gpu(self) -> bool:
        """Whether the arrays are CuPy's; they aren't made for that."""
        return self._memory is not None or on_gpu(self.words)

    @classmethod
    def quantize(
        cls, array: Array, scheme: QuantScheme | str, scales: Any = None, draw: Any = None
    ) -> QTensor:
        """Encode an array; arguments and errors of :func:`autoq.storage.convert.quantize`.

        The scheme may be given by its name; of an unknown one the nearest is named.

        Example:
            >>> QTensor.quantize([[1.0, 2.0, 3.0]], "mxfp4")
            QTensor(mxfp4, shape=(1, 3), 5 bytes)
        """
        if type(scheme) is not QuantScheme:
            scheme = find_scheme(scheme)
        packed = convert.quantize(array, scheme, scales=scales, draw=draw)
        shape = array.shape if is_array(array) else np.shape(array)
        return QTensor.make(*packed, scheme, shape)

    @staticmethod
    def encode(array: Array, scheme: QuantScheme) -> QTensor:
        """The result of an op: as :meth:`quantize`, but rounded to nearest whatever the scheme says (S41)."""
        return QTensor.make(*convert.encode(array, scheme), scheme, array.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> QuantScheme:
        """The scheme: a quantized tensor's dtype."""
        return self.scheme

    @property
    def storage_shape(self) -> Shape:
        """The shape in storage order."""
        return self.shape if self.layout.is_identity else self.layout.storage_shape(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of words, scales and tensor scale; what a broadcast axis repeats counts once."""
        scale_bytes = 0 if self.tensor_scale is None else 4
        return _own_bytes(self.words) + _own_bytes(self.scales) + scale_bytes

    @property
    def bits_per_value(self) -> float:
        """Bits a value takes, scales and padding included; the scheme's own for an empty tensor."""
        return 8 * self.nbytes / self.size if self.size else self.scheme.bits_per_value

    def codes(self) -> Array:
        """The raw code of every value: uint8 of the logical shape."""
        return self._logical(unpack(self.words, self.scheme.element_bits, self.storage_shape))

    def effective_scales(self) -> Array:
        """float32 factor of every block, in logical axis order: block scale times tensor scale."""
        return self._logical(convert.effective_scales(self.scales, self.tensor_scale, self.scheme))

    def dequantize(self, dtype: Any = FLOAT32, out: Array | None = None) -> Array:
        """Decode.

        Args:
            dtype: Float dtype of the result, rounded from float32.
            out: Array of the logical shape to write into; its dtype then decides.

        Example:
            >>> from autoq.schemes import scheme
            >>> QTensor.quantize(np.arange(3, dtype=np.float32), scheme("mxfp8")).dequantize().tolist()
            [0.0, 1.0, 2.0]
        """
        if out is not None and getattr(out, "shape", None) != self.shape:
            given = f"has the shape {out.shape}" if is_array(out) else f"is {out!r}"
            raise ShapeError(
                f"dequantize: out {given}", f"an array of {self.shape}", "Pass out of that shape."
            )
        if self.layout.is_identity:
            return convert.dequantize(
                self.words, self.scales, self.tensor_scale, self.scheme, self.shape, dtype, out
            )
        inverse = self.layout.inverse
        stored = None if out is None else out.transpose(inverse)
        return self._logical(
            convert.dequantize(
                self.words, self.scales, self.tensor_scale, self.scheme, self.storage_shape, dtype, stored
            )
        )

    def _logical(self, stored: Array) -> Array:
        return stored if self.layout.is_identity else stored.transpose(self.layout.order)

    def shares_memory(self, other: QTensor) -> bool:
        """Whether the words of both lie in the same memory.

        Example:
            >>> from autoq.schemes import scheme
            >>> q = QTensor.quantize(np.ones((4, 64), np.float32), scheme("mxfp8"))
            >>> q[::2].shares_memory(q), q.copy().shares_memory(q)
            (True, False)
        """
        if not isinstance(other, QTensor):
            return False
        if on_gpu(self.words) or on_gpu(other.words):
            return same_memory(self.words, other.words)
        return np.shares_memory(self.words, other.words)

    @property
    def device(self) -> str:
        """The device that holds the arrays."""
        return device_of(self.words)

    def to(self, device: str) -> QTensor:
        """The tensor on a device: itself where it is there, else a copy of its bytes.

        Raises:
            DeviceError: The device can't be used.

        Example:
            >>> from autoq.schemes import scheme
            >>> q = QTensor.quantize(np.ones((2, 32), np.float32), scheme("mxfp8"))
            >>> q.to("cpu") is q
            True
        """
        device = resolve(device)
        if device == self.device:
            return self
        words, scales = to_device(self.words, device), to_device(self.scales, device)
        level = scale_to(self.tensor_scale, device)
        return QTensor.make(words, scales, level, self.scheme, self.shape, self.layout)

    def same_bits(self, other: QTensor) -> bool:
        """Whether shape, canonical scheme, codes, scales and tensor scale are equal bit for bit (S39)."""
        if (
            not isinstance(other, QTensor)
            or self.shape != other.shape
            or self.scheme.canonical() != other.scheme.canonical()
        ):
            return False
        mine, theirs = to_host(self._logical(self.scales)), to_host(other._logical(other.scales))
        return (
            mine.shape == theirs.shape
            and mine.tobytes() == theirs.tobytes()
            and to_host(self.tensor_scale).tobytes() == to_host(other.tensor_scale).tobytes()
            and np.array_equal(to_host(self.codes()), to_host(other.codes()))
        )


_new = object.__new__


def make_late() -> None:
    """Let tensors have what isn't there until it is first asked for: what the modules for GPUs call.

    A class with such a function reads all of its attributes more slowly, which the CPU is spared.
    """
    QTensor.__getattr__ = _made_late  # type: ignore[attr-defined]


def _made_late(q: QTensor, name: str) -> Any:
    """An attribute that isn't there yet."""
    if name == "signature":
        words, scales, layout = q.words, q.scales, q.layout
        order = None if layout.is_identity else layout.order
        beyond = address(words) % ALIGNMENT
        q.signature = found = signature_of(q.scheme, q.shape, order, words.strides, scales.strides, beyond)
        return found
    if name == "addresses":
        level = () if q.tensor_scale is None else (q.tensor_scale,)
        arrays: Any = (q.words, q.scales, *level)
        q.addresses = places = tuple([array.data.ptr for array in arrays])
        return places
    if name not in ("words", "scales", "tensor_scale") or q._memory is None:
        raise AttributeError(f"{type(q).__name__!r} object has no attribute {name!r}")
    q.words, q.scales, *rest = q._allocation.arrays(q._memory)
    if rest:
        q.tensor_scale = rest[0]
    return getattr(q, name)


def _one_float(value: Any) -> Any:
    if on_gpu(value) and value.dtype == FLOAT32 and value.size == 1:
        return value.reshape(())
    try:
        return np.float32(value)
    except (TypeError, ValueError):
        raise DTypeError(
            f"QTensor: a tensor scale {value!r}", "a float32, or None", "Pass the scale of the tensor."
        ) from None


def _own_bytes(array: Array) -> int:
    """Bytes of an array, an axis of stride 0 counted once."""
    pairs = zip(array.shape, array.strides, strict=True)
    return int(math.prod(n if stride or not n else 1 for n, stride in pairs) * array.itemsize)


def _check(q: QTensor) -> None:
    """Raise unless the invariants hold."""
    if not isinstance(q.scheme, QuantScheme):
        raise DTypeError(
            f"QTensor: the scheme is {q.scheme!r}", "a QuantScheme", "Look it up: autoq.scheme(name)."
        )
    if not isinstance(q.layout, Layout):
        raise DTypeError(f"QTensor: the layout is {q.layout!r}", "a Layout, or None", "Leave it out.")
    if sorted(q.layout.order) != list(range(len(q.shape))) or min(q.shape, default=0) < 0:
        raise ShapeError(
            f"QTensor: axis order {q.layout.order} for the shape {q.shape}",
            "every axis once",
            "Pass a Layout of the tensor's rank.",
        )
    plan, stored = plan_of(q.scheme), q.storage_shape
    extents = q.scheme.extents(len(stored))
    _check_array("words", q.words, np.dtype(np.uint32), words_shape(stored, plan.bits))
    _check_array("scales", q.scales, plan.scale_dtype, grid_shape(stored, extents))
    arrays = [q.words, q.scales, *([q.tensor_scale] if q.tensor_scale is not None else [])]
    if len({device_of(array) for array in arrays}) > 1:
        raise two_devices("QTensor", arrays, ["words", "scales", "tensor_scale"][: len(arrays)])
    if (q.tensor_scale is not None) != q.scheme.tensor_scale:
        raise DTypeError(
            f"QTensor: tensor_scale is {q.tensor_scale} under {q.scheme.name}",
            "a float32 exactly under two-level schemes",
            "Add or drop the tensor scale.",
        )


def _check_array(name: str, array: Array, dtype: np.dtype[Any], shape: Shape) -> None:
    if not is_array(array) or array.dtype != dtype:
        raise DTypeError(
            f"QTensor: {name} are {getattr(array, 'dtype', type(array).__name__)}",
            str(dtype),
            "Pass the arrays that autoq.storage.convert.quantize returns.",
        )
    if array.shape != shape:
        raise ShapeError(
            f"QTensor: {name} have the shape {array.shape}",
            f"{shape}, in storage order",
            "Check the tensor's shape and the scheme's block.",
        )
