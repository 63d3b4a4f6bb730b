"""Element-wise functions over packed and dense operands, tile by tile: nothing is ever decoded whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..context import OBSERVERS, launched
from ..errors import ShapeError
from ..schemes import QuantScheme
from . import convert
from .boxes import Box, box_extents, boxes, cut_points
from .inputs import as_float32, cast
from .layout import Array, Shape, grid_shape, words_shape
from .plan import kernels, plan_of
from .qtensor import QTensor
from .readers import Reader, box_reader, line_reader, whole_tile
from .writers import Writer, dense_writer, packed_writer, refuse

TILE = 1 << 16
# Tiles of all threads together, in bytes: the rest of the 4 MB is words and temporaries, a third as much.
MEMORY = 11 << 18


def map_tiles(
    function: Callable[..., Any],
    operands: Sequence[Any],
    out: Any,
    compute: Any = np.float32,
    out_shape: Shape | None = None,
) -> Any:
    """Apply an element-wise function, decoding and encoding one tile of 64 Ki values at a time.

    Beside the result a few tiles of memory are taken, whatever the operands' size; a packed operand that
    is one line, broadcast over all others, is decoded once. Results of per-tensor and two-level schemes
    take two passes: the largest magnitude first. ``abs_mean`` over a whole tensor needs every value and is
    computed whole.

    Args:
        function: Float tiles in, one tile of their broadcast shape out; a ufunc writes into reused memory.
        operands: QTensors, NumPy arrays (floats and integers are converted to ``compute``, booleans stay),
            numbers and None, which are passed on.
        out: A QuantScheme (rounded to nearest, blocks along the last axis), or a NumPy dtype.
        compute: float32 or float64.
        out_shape: The result's shape; what the operands broadcast to by default.

    Returns:
        A QTensor in ``out.innermost()``, or an array.

    Raises:
        ShapeError: If the operands don't broadcast to ``out_shape``, or a result in blocks has no axis.
        NonFiniteError: Under ``nonfinite="raise"``.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((2, 64), np.float32), scheme("mxfp8"))
        >>> map_tiles(np.add, [q, q], scheme("mxfp8")).dequantize()[0, :2].tolist()
        [2.0, 2.0]
    """
    shape = _result_shape(operands, out_shape)
    compute = np.dtype(compute)
    packed = isinstance(out, QuantScheme)
    if packed:
        out = out.innermost(len(shape))
    if math.prod(shape) <= TILE or (packed and out.block is None and out.calibration != "abs_max"):
        return _whole(function, operands, out, compute, shape)
    work = _Work.of(function, operands, out, compute, shape)
    if not packed:
        result = np.empty(shape, out)
        work.run(lambda: dense_writer(result, work.shape))
        return result
    return _encoded(work, out, shape)


def _result_shape(operands: Sequence[Any], out_shape: Shape | None) -> Shape:
    shapes = [getattr(operand, "shape", ()) for operand in operands]
    try:
        found = np.broadcast_shapes(*shapes)
        return found if out_shape is None else np.broadcast_shapes(tuple(out_shape), found)
    except ValueError:
        raise ShapeError(
            f"operands of shapes {shapes}", "sizes equal or 1, trailing axes aligned", "Reshape an operand."
        ) from None


def _whole(
    function: Callable[..., Any], operands: Sequence[Any], out: Any, compute: np.dtype[Any], shape: Shape
) -> Any:
    """All at once: what a single tile does."""
    values = np.asarray(function(*[whole_tile(operand, compute) for operand in operands]))
    if values.shape != shape:
        values = np.broadcast_to(values, shape)
    if isinstance(out, QuantScheme):
        return QTensor.encode(values, out)
    return cast(values, out)


class _Work(NamedTuple):
    """A function over operands, and how they are cut.

    Attributes:
        shape: What is cut: the result's shape, or its lines where all operands are laid out so.
        extents: Extents of a box.
        readers: Makes readers with tiles of their own, one set a thread.
        result_shape: Before it was flattened to lines.
        refuses: The scheme if it refuses non-finite values: boxes then run in order.
    """

    function: Callable[..., Any]
    shape: Shape
    extents: Shape
    readers: Callable[[], list[Reader]]
    compute: np.dtype[Any]
    result_shape: Shape
    refuses: QuantScheme | None

    @staticmethod
    def of(
        function: Callable[..., Any],
        operands: Sequence[Any],
        out: Any,
        compute: np.dtype[Any],
        shape: Shape,
    ) -> _Work:
        cuts = cut_points(operands, out, shape)
        tile = min(TILE, MEMORY // ((len(operands) + 1) * compute.itemsize * _threads()))
        refuses = out if isinstance(out, QuantScheme) and out.nonfinite == "raise" else None
        flat = _flat_lines(operands, out, compute, shape, cuts[-1], tile)
        if flat is not None:
            lines, n = flat
            extents = box_extents(flat, (1, n), tile)

            def make() -> list[Reader]:
                found = [line_reader(operand, lines, n, compute) for operand in operands]
                return [reader for reader in found if reader is not None]

            return _Work(function, flat, extents, make, compute, shape, refuses)
        return _Work(
            function,
            shape,
            box_extents(shape, cuts, tile),
            lambda: [box_reader(operand, shape, compute) for operand in operands],
            compute,
            shape,
            refuses,
        )

    def run(self, make_writer: Callable[[], Writer]) -> None:
        """Compute every box and hand it to a writer; threads share the boxes along the first cut axis."""
        from ..kernels.cpu.pool import ranges, run

        axis = next((i for i, (n, e) in enumerate(zip(self.shape, self.extents, strict=True)) if e < n), 0)
        parts = 1 if self.refuses else _threads()

        def part(start: int, stop: int) -> None:
            write = make_writer()
            for box, values in self._tiles(axis, start, stop):
                if self.refuses:
                    refuse(values, box, self.shape, self.result_shape, self.refuses)
                write(box, values)

        run(part, ranges(self.shape[axis], parts, multiple=self.extents[axis]))

    def _tiles(self, axis: int, start: int, stop: int) -> Iterator[tuple[Box, Array]]:
        readers = self.readers()
        ufunc = isinstance(self.function, np.ufunc) and self.function.nout == 1
        scratch = np.empty(self.extents, self.compute) if ufunc else None
        shape = (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])
        for local in boxes(shape, self.extents):
            box = (
                *local[:axis],
                slice(local[axis].start + start, local[axis].stop + start),
                *local[axis + 1 :],
            )
            yield box, self._compute(readers, box, scratch)

    def _compute(self, readers: list[Reader], box: Box, scratch: Array | None) -> Array:
        shape = tuple([s.stop - s.start for s in box])
        tiles = [read(box) for read in readers]
        if scratch is None:
            values = np.asarray(self.function(*tiles))
            return values if values.shape == shape else np.broadcast_to(values, shape)
        if scratch.shape != shape:
            scratch = scratch.reshape(-1)[: math.prod(shape)].reshape(shape)
        self.function(*tiles, out=scratch)
        return scratch


def _threads() -> int:
    from ..kernels.cpu.pool import threads

    return threads()


def _flat_lines(
    operands: Sequence[Any], out: Any, compute: np.dtype[Any], shape: Shape, cut: int, tile: int
) -> tuple[int, int] | None:
    """Number and length of lines if operands and result can all be read as lines; else None."""
    if isinstance(out, QuantScheme) and out.block is not None and len(out.block) > 1:
        return None
    n, size = shape[-1], math.prod(shape)
    if n > tile:
        # Long lines are cut into shorter ones where blocks and words allow.
        if n % cut or not all(np.shape(operand) in ((), shape) for operand in operands):
            return None
        n = cut * math.gcd(n // cut, max(1, tile // cut))
    lines = size // n
    if any(line_reader(operand, lines, n, compute) is None for operand in operands):
        return None
    return lines, n


def _encoded(work: _Work, scheme: QuantScheme, shape: Shape) -> QTensor:
    """The result packed, after a first pass where the scheme needs the largest magnitude."""
    plan = plan_of(scheme)
    amax, given = None, None
    words = np.empty(words_shape(shape, plan.bits), np.uint32)
    scales = np.empty(grid_shape(shape, scheme.extents(len(shape))), plan.scale_dtype)
    if scheme.tensor_scale or scheme.block is None:
        amax, nonfinite = _magnitude(work)
        if scheme.block is None:
            # A block of just these values has the scale of the whole.
            extremes = np.array([amax, np.inf if nonfinite else 0.0], np.float32)
            scales[...] = convert.encode(extremes, scheme).scales
            given = float(convert.effective_scales(scales, None, scheme).reshape(-1)[0])
    tensor_scale = None if plan.tensor_scale is None or amax is None else plan.tensor_scale(amax)
    if given is not None and math.isnan(given):
        words[...] = 0
    else:
        work.run(lambda: packed_writer(words, scales, scheme, work.shape, amax, given))
    return QTensor.make(words, scales, tensor_scale, scheme, shape)


def _magnitude(work: _Work) -> tuple[float, bool]:
    """Largest finite magnitude of the result in float32, and whether anything in it isn't finite."""
    found: list[tuple[float, bool]] = []

    def writer() -> Writer:
        def write(box: Box, values: Array) -> None:
            flat = as_float32(values).reshape(-1)
            found.append((kernels().amax(flat), kernels().first_nonfinite(flat) >= 0))
            if OBSERVERS:
                launched("amax", flat.size)
                launched("first_nonfinite", flat.size)

        return write

    work.run(writer)
    return max(amax for amax, _ in found), any(nonfinite for _, nonfinite in found)
