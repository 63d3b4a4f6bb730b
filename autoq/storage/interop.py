"""How a packed tensor meets the rest of Python: printing, notebooks, pickling, NumPy, scale tiles."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices import on_gpu, to_host, using_device
from ..errors import ArgumentError, DTypeError
from ..memory import within_memory
from ..schemes import QuantScheme
from .inputs import cast
from .layout import Array, Layout, Shape

if TYPE_CHECKING:
    from .qtensor import QTensor


class Interop:
    """Protocols of Python and NumPy for QTensor."""

    __slots__ = ()

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Array:
        """The decoded values, float32 unless ``dtype`` says otherwise. There is never a view of them."""
        if copy is False:
            raise ArgumentError(
                "a NumPy view of packed values", "copy=None or True", "Decode with .dequantize()."
            )
        if on_gpu(self.words):
            raise DTypeError(
                "a NumPy array of a packed tensor on a GPU",
                "packed tensors on the CPU",
                'Copy it to the CPU first: .to("cpu"), or .numpy() of a Tensor.',
            )
        values: Array = self.dequantize()
        return cast(values, np.float32 if dtype is None else dtype)

    def __reduce__(self: Any) -> tuple[Any, ...]:
        host = self.to("cpu")
        arrays = np.ascontiguousarray(host.words), host.scales.copy()
        return _rebuilt, (*arrays, host.tensor_scale, self.scheme, self.shape, self.layout.order)

    @within_memory("a copy")
    def copy(self: Any) -> QTensor:
        """The same tensor in memory of its own, which holds only what the view shows."""
        from .qtensor import QTensor

        level = self.tensor_scale
        with using_device(self.device):
            words, scales = self.words.copy(), self.scales.copy()
            level = level.copy() if on_gpu(level) else level  # there an array, perhaps beside all the words
        return QTensor.make(words, scales, level, self.scheme, self.shape, self.layout)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> QTensor:
        return self.copy()

    def __repr__(self: Any) -> str:
        return f"QTensor({self.scheme.name}, shape={self.shape}, {self.nbytes} bytes)"

    def __str__(self: Any) -> str:
        """The line that ``repr`` gives, and below it the decoded values: a few of them, to four digits.

        Example:
            >>> from autoq.storage.qtensor import QTensor
            >>> print(QTensor.quantize([[0.3, 1.0, -2.0]], "mxfp4"))
            QTensor(mxfp4, shape=(1, 3), 5 bytes)
            [[ 0.25  1.   -2.  ]]
        """
        return f"{self!r}\n{summary(self.dequantize())}"

    def _repr_html_(self: Any) -> str:
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in _facts(self)
        )
        return f"<table>{rows}</table>"

    def scales_swizzled(self: Any) -> Array:
        """The stored scales in tiles of 128 x 4, flat, as Blackwell's tensor cores read them.

        Rows of the block grid (leading axes flattened) are padded to 128 and columns to 4 with zeros; in a
        tile, scale (r, c) is at ``(r % 32) * 16 + (r // 32) * 4 + c``; tiles follow in row-major order.

        Source: cuBLAS documentation, 1D block scaling factors layout.

        Example:
            >>> from autoq.schemes import scheme
            >>> from autoq.storage.qtensor import QTensor
            >>> QTensor.quantize(np.ones((128, 128), np.float32), scheme("mxfp8")).scales_swizzled().shape
            (512,)
        """
        grid = self.scales.reshape(-1, self.scales.shape[-1] if self.scales.ndim else 1)
        rows, columns = grid.shape
        padded = np.pad(grid, ((0, -rows % 128), (0, -columns % 4)))
        tiles = padded.reshape(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4)
        return tiles.transpose(0, 3, 2, 1, 4).reshape(-1)


def summary(values: Array) -> str:
    """Values as text of a few lines: of more than a hundred only the first and last along each axis.

    Example:
        >>> print(summary(np.arange(1000) / 8))
        [  0.      0.125   0.25  ... 124.625 124.75  124.875]
    """
    return np.array2string(values, threshold=100, precision=4, max_line_width=110)


def _rebuilt(
    words: Array,
    scales: Array,
    tensor_scale: np.float32 | None,
    scheme: QuantScheme,
    shape: Shape,
    order: tuple[int, ...],
) -> QTensor:
    from .qtensor import QTensor

    return QTensor(words, scales, tensor_scale, scheme, shape, Layout(order))


def _facts(q: QTensor) -> list[tuple[str, str]]:
    scales = to_host(q.effective_scales())
    finite = scales[np.isfinite(scales)]
    extent = f"{finite.min():.6g} to {finite.max():.6g}" if finite.size else "none"
    return [
        ("shape", str(q.shape)),
        ("scheme", q.scheme.name),
        ("bytes", f"{q.nbytes:,}"),
        ("bits per value", f"{q.bits_per_value:.4g}"),
        ("scales", extent),
    ]
