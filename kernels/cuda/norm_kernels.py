"""Kernels of rows for layer and RMS normalization: forward, input gradient, weight and bias gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import F
from .chunks import QUAD, input_types, output_types
from .compile import uses_cuda
from .launch import kernel
from .row_kernels import UNIT, ZERO, Function, Shape, added, combined, quads_sum

cuda: Any = None
uses_cuda(globals())


def centerer(shape: Shape, centered: bool) -> Function:
    """``center(a, at, j, n, mean) -> sum``: a - mean in place, and the sum of its squares."""
    size, full = shape.size, shape.full

    @scalar
    def center(a, at, j, n, mean):
        found = ZERO
        for q in range(size // QUAD):
            b = at + QUAD * q
            if centered:
                for k in range(QUAD):
                    a[b + k] = F(a[b + k] - mean) if full or j + QUAD * q + k < n else ZERO
            low = F(F(a[b] * a[b]) + F(a[b + 1] * a[b + 1]))
            found = F(found + F(low + F(F(a[b + 2] * a[b + 2]) + F(a[b + 3] * a[b + 3]))))
        return found

    return center


def affine(shape: Shape, weight_side: Any, bias_side: Any) -> Function:
    """``finish(a, at, inverse, weights, biases, j, n, b)``: a chunk over its deviation, scaled and moved."""
    size = shape.size
    has_weight, has_bias = weight_side is not None, bias_side is not None
    load_weight: Any = shape.load(weight_side) if has_weight else None
    load_bias: Any = shape.load(bias_side) if has_bias else None

    @scalar
    def plain(a, at, inverse, weights, biases, j, n, b):
        for i in range(size):
            a[at + i] = F(a[at + i] * inverse)

    @scalar
    def weighted(a, at, inverse, weights, biases, j, n, b):
        load_weight(weights, 0, j, n, b, 0)
        for i in range(size):
            a[at + i] = F(F(a[at + i] * inverse) * b[i])

    @scalar
    def moved(a, at, inverse, weights, biases, j, n, b):
        load_bias(biases, 0, j, n, b, 0)
        for i in range(size):
            a[at + i] = F(F(a[at + i] * inverse) + b[i])

    @scalar
    def both(a, at, inverse, weights, biases, j, n, b):
        weighted(a, at, inverse, weights, biases, j, n, b)
        load_bias(biases, 0, j, n, b, 0)
        for i in range(size):
            a[at + i] = F(a[at + i] + b[i])

    if has_weight:
        return both if has_bias else weighted
    return moved if has_bias else plain


def optional(side: Any) -> tuple[str, ...]:
    """Parameters of an operand that may be missing."""
    return ("uint8*", "uint8*", "float32*", "int64", "int64") if side is None else input_types(*side)


@kernel
def norm_kernel(x_side, weight_side, bias_side, out_side, shape, centered):
    """Rows over the root of their mean square, after subtracting their mean if ``centered``."""
    size, lanes, held, each, slots = shape.size, shape.lanes, shape.held, shape.rows, shape.slots
    load, store, center = shape.load(x_side), shape.store(out_side), centerer(shape, centered)
    finish, sum_of, total_of = affine(shape, weight_side, bias_side), combined(lanes, added), quads_sum(size)
    span = lanes * size

    def norm(
        x, xs, xt, x_step, lines, w, ws, wt, w_step, w_lines, v, vs, vt, v_step, v_lines,
        out, outs, out_step, eps, rows, n,
    ):  # fmt: skip
        source, target = (x, xs, xt, x_step, lines), (out, outs, out_step)
        weights, biases = (w, ws, wt, w_step, w_lines), (v, vs, vt, v_step, v_lines)
        a, b = cuda.local.array(slots, np.float32), cuda.local.array(size, np.float32)
        start, slot = cuda.threadIdx.x % lanes * size, cuda.threadIdx.x // lanes
        count = held if held else (n + span - 1) // span
        for first in range(cuda.blockIdx.x * each, rows, cuda.gridDim.x * each):
            row, mean, squares = min(first + slot, rows - 1), ZERO, ZERO
            if held or centered:
                for c in range(count):
                    at = c * size if held else 0
                    load(source, row, start + c * span, n, a, at)
                    mean = F(mean + total_of(a, at))
                mean = F(sum_of(mean) / F(n)) if centered else ZERO
            for c in range(count):
                at = c * size if held else 0
                if not held:
                    load(source, row, start + c * span, n, a, at)
                squares = F(squares + center(a, at, start + c * span, n, mean))
            inverse = F(UNIT / F(math.sqrt(F(F(sum_of(squares) / F(n)) + eps))))
            for c in range(count):
                j, at = start + c * span, c * size if held else 0
                if not held:
                    load(source, row, j, n, a, at)
                    center(a, at, j, n, mean)
                finish(a, at, inverse, weights, biases, j, n, b)
                store(target, first + slot, rows, j, n, a, at)

    types = *input_types(*x_side), *optional(weight_side), *optional(bias_side), *output_types(*out_side)
    bound = shape.bound(x_side, weight_side, bias_side, out_side)
    return norm, (*types, "float32", "int64", "int64"), bound


def normalizer(shape: Shape, weight_side: Any) -> Function:
    """``scale(a, b, at, inverse, weights, j, n, d)``: y in ``a``, the weighted cotangent in ``b``.

    It returns the sums of the weighted cotangent, and of that times y.
    """
    size, has_weight = shape.size, weight_side is not None
    load_weight: Any = shape.load(weight_side) if has_weight else None
    total_of = quads_sum(QUAD)

    @scalar
    def scaled(a, b, at, inverse):
        plain, product = ZERO, ZERO
        for q in range(size // QUAD):
            i = at + QUAD * q
            for k in range(QUAD):
                a[i + k] = F(a[i + k] * inverse)
            plain = F(plain + total_of(b, i))
            low = F(F(b[i] * a[i]) + F(b[i + 1] * a[i + 1]))
            product = F(product + F(low + F(F(b[i + 2] * a[i + 2]) + F(b[i + 3] * a[i + 3]))))
        return plain, product

    @scalar
    def weighted(a, b, at, inverse, weights, j, n, d):
        load_weight(weights, 0, j, n, d, 0)
        for i in range(size):
            b[at + i] = F(b[at + i] * d[i])
        return scaled(a, b, at, inverse)

    @scalar
    def plain(a, b, at, inverse, weights, j, n, d):
        return scaled(a, b, at, inverse)

    return weighted if has_weight else plain


@kernel
def norm_gradient_kernel(x_side, weight_side, g_side, out_side, shape, centered):
    """The input gradient: the cotangent less its parts along 1 and the result, over the deviation."""
    size, lanes, held, each, slots = shape.size, shape.lanes, shape.held, shape.rows, shape.slots
    load, load_g, store = shape.load(x_side), shape.load(g_side), shape.store(out_side)
    center, scale = centerer(shape, centered), normalizer(shape, weight_side)
    sum_of, total_of, span = combined(lanes, added), quads_sum(size), lanes * size

    def gradient(
        x, xs, xt, x_step, lines, w, ws, wt, w_step, w_lines, g, gs, gt, g_step, g_lines,
        out, outs, out_step, eps, rows, n,
    ):  # fmt: skip
        source, target, given = (
            (x, xs, xt, x_step, lines),
            (out, outs, out_step),
            (g, gs, gt, g_step, g_lines),
        )
        weights, count = (w, ws, wt, w_step, w_lines), held if held else (n + span - 1) // span
        a, b, d = (
            cuda.local.array(slots, np.float32),
            cuda.local.array(slots, np.float32),
            cuda.local.array(size, np.float32),
        )
        start, slot = cuda.threadIdx.x % lanes * size, cuda.threadIdx.x // lanes
        for first in range(cuda.blockIdx.x * each, rows, cuda.gridDim.x * each):
            row, mean, squares, plain, product = min(first + slot, rows - 1), ZERO, ZERO, ZERO, ZERO
            if held or centered:
                for c in range(count):
                    at = c * size if held else 0
                    load(source, row, start + c * span, n, a, at)
                    if held:
                        load_g(given, row, start + c * span, n, b, at)
                    mean = F(mean + total_of(a, at))
                mean = F(sum_of(mean) / F(n)) if centered else ZERO
            for c in range(count):
                at = c * size if held else 0
                if not held:
                    load(source, row, start + c * span, n, a, at)
                squares = F(squares + center(a, at, start + c * span, n, mean))
            inverse = F(UNIT / F(math.sqrt(F(F(sum_of(squares) / F(n)) + eps))))
            for c in range(count):
                j, at = start + c * span, c * size if held else 0
                if not held:
                    load(source, row, j, n, a, at)
                    load_g(given, row, j, n, b, at)
                    center(a, at, j, n, mean)
                found = scale(a, b, at, inverse, weights, j, n, d)
                plain, product = F(plain + found[0]), F(product + found[1])
            plain = F(sum_of(plain) / F(n)) if centered else ZERO
            product = F(sum_of(product) / F(n))
            for c in range(count):
                j, at = start + c * span, c * size if held else 0
                if not held:
                    load(source, row, j, n, a, at)
                    load_g(given, row, j, n, b, at)
                    center(a, at, j, n, mean)
                    scale(a, b, at, inverse, weights, j, n, d)
                for i in range(size):
                    less = F(b[at + i] - plain) if centered else b[at + i]
                    b[at + i] = F(inverse * F(less - F(a[at + i] * product)))
                store(target, first + slot, rows, j, n, b, at)

    types = *input_types(*x_side), *optional(weight_side), *input_types(*g_side), *output_types(*out_side)
    bound = shape.bound(x_side, weight_side, g_side, out_side)
    return gradient, (*types, "float32", "int64", "int64"), bound


@kernel
def weight_kernel(x_side, g_side, shape, centered):
    """Sums over some rows of the cotangent times the normalized row, a row of ``parts`` each."""
    size, lanes, held, each, slots = shape.size, shape.lanes, shape.held, shape.rows, shape.slots
    load, load_g, center = shape.load(x_side), shape.load(g_side), centerer(shape, centered)
    sum_of, total_of, span = combined(lanes, added), quads_sum(size), lanes * size

    def weight(x, xs, xt, x_step, lines, g, gs, gt, g_step, g_lines, parts, eps, rows, n):
        source, given = (x, xs, xt, x_step, lines), (g, gs, gt, g_step, g_lines)
        a, b = cuda.local.array(slots, np.float32), cuda.local.array(slots, np.float32)
        sums = cuda.local.array(slots, np.float32)
        start, slot = cuda.threadIdx.x % lanes * size, cuda.threadIdx.x // lanes
        for i in range(slots):
            sums[i] = ZERO
        for first in range(cuda.blockIdx.x * each, rows, cuda.gridDim.x * each):
            row, mean, squares = min(first + slot, rows - 1), ZERO, ZERO
            for c in range(held):
                load(source, row, start + c * span, n, a, c * size)
                load_g(given, row, start + c * span, n, b, c * size)
                mean = F(mean + total_of(a, c * size))
            mean = F(sum_of(mean) / F(n)) if centered else ZERO
            for c in range(held):
                squares = F(squares + center(a, c * size, start + c * span, n, mean))
            inverse = F(UNIT / F(math.sqrt(F(F(sum_of(squares) / F(n)) + eps))))
            if first + slot < rows:
                for i in range(slots):
                    sums[i] = F(sums[i] + F(b[i] * F(a[i] * inverse)))
        place = (cuda.blockIdx.x * each + slot) * n
        for c in range(held):
            for i in range(size):
                if start + c * span + i < n:
                    parts[place + start + c * span + i] = sums[c * size + i]

    types = *input_types(*x_side), *input_types(*g_side), "float32*", "float32", "int64", "int64"
    return weight, types, shape.bound(x_side, g_side)


@kernel
def columns_kernel():
    """The sums of the columns of ``parts``: 32 columns a block, a warp's rows each, warps in order."""

    def columns(parts, out, count, n):
        held = cuda.shared.array((8, 32), np.float32)
        column, warp, found = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32, ZERO
        j = cuda.blockIdx.x * 32 + column
        if j < n:
            for row in range(warp, count, 8):
                found = F(found + parts[row * n + j])
        held[warp, column] = found
        cuda.syncthreads()
        if warp == 0 and j < n:
            for w in range(1, 8):
                found = F(found + held[w, column])
            out[j] = found

    return columns, ("float32*", "float32*", "int64", "int64")
