"""Optimizer steps on the device: one launch for all parameters of a group, and what clips their gradients.

A ``Table`` holds the addresses of the parameters' arrays and which block works on which part of which
parameter. The arithmetic is float32, in the order of autoq/optim, so that the bits are the CPU's. Options
are numbers, or a float32 array on the device that a replayed graph reads anew.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import F
from .compile import uses_cuda
from .intrinsics import floats_at, halves_at, load4, store4
from .launch import SIMULATED, kernel, library
from .operand import float_reader, float_writer

cuda: Any = None
uses_cuda(globals())

THREADS = 256
FOUR, SIXTEEN = 4, 15
# Rows of a table: addresses of the parameter, its gradient and two state arrays; its length; its first block.
VALUE, GRADIENT, FIRST, SECOND, LENGTH, BLOCK = range(6)
ROWS = 6
LEAST_PART, MOST_PART, WANTED_BLOCKS = 1 << 11, 1 << 16, 1 << 11
SGD_OPTIONS, ADAM_OPTIONS = 3, 8


class Table:
    """Where the arrays of several parameters lie on the device.

    Args:
        sizes: The parameters' numbers of values.
        place: Copies a NumPy array to the device; CuPy's ``array`` if None.

    Attributes:
        part: How many values of one parameter a block works on.
        blocks: How many blocks there are.
        owner: int32, the parameter of each block, on the device.
        array: int64 (rows, parameters), on the device; None before ``point``.
    """

    def __init__(self, sizes: tuple[int, ...], place: Any = None) -> None:
        self.count, self.part = len(sizes), part_of(sum(sizes))
        parts = [-(-size // self.part) for size in sizes]
        self.blocks = sum(parts)
        self._host = np.zeros((ROWS, self.count), np.int64)
        self._host[LENGTH] = sizes
        self._host[BLOCK] = np.cumsum([0, *parts[:-1]]) if parts else []
        self._place = place or library().array
        self.owner = self._place(np.repeat(np.arange(self.count, dtype=np.int32), parts))
        self.array: Any = None

    def point(self, rows: dict[int, list[Any]]) -> None:
        """Take over arrays, C-contiguous, one a parameter and row; copied to the device where one moved.

        Args:
            rows: Of ``VALUE``, ``GRADIENT``, ``FIRST`` and ``SECOND``, those that a step reads.
        """
        moved = False
        for row, arrays in rows.items():
            addresses = [address_of(array) for array in arrays]
            if self._host[row].tolist() != addresses:
                self._host[row], moved = addresses, True
        if self.array is None:
            self.array = self._place(self._host)
        elif moved:
            copy_to_device(self._host, self.array)


def part_of(values: int) -> int:
    """How many values a block works on: fewer of a small model, so that every multiprocessor has some."""
    wanted = -(-values // WANTED_BLOCKS)
    return min(max(1 << max(wanted - 1, 0).bit_length(), LEAST_PART), MOST_PART)


def address_of(array: Any) -> int:
    """The address of an array's first value."""
    address: int = array.__array_interface__["data"][0] if SIMULATED else array.data.ptr
    return address


def copy_to_device(host: np.ndarray, array: Any) -> None:
    """Copy a small NumPy array onto the device, in the order of the current stream, without waiting."""
    if SIMULATED:
        array[...] = host
        return
    import cupy

    array.set(host, stream=cupy.cuda.get_current_stream())


def pointer_at(kind: str):
    """The function from an address to a pointer to numbers of a kind."""
    return floats_at if kind == "float32" else halves_at


def option_reader(count: int, stored: bool):
    """``options(array, a, …, h)``: the options, from the array or as they are given."""

    @scalar
    def read3(array, a, b, c):
        return array[0], array[1], array[2]

    @scalar
    def given3(array, a, b, c):
        return a, b, c

    @scalar
    def read8(array, a, b, c, d, e, f, g, h):
        return array[0], array[1], array[2], array[3], array[4], array[5], array[6], array[7]

    @scalar
    def given8(array, a, b, c, d, e, f, g, h):
        return a, b, c, d, e, f, g, h

    if count == SGD_OPTIONS:
        return read3 if stored else given3
    return read8 if stored else given8


def sgd_step(momentum: bool, nesterov: bool, decay: bool):
    """``step(p, g, v, options) -> (p, v)``: the arithmetic of SGD on one value."""

    @scalar
    def step(p, g, v, options):
        if decay:
            g = F(F(p * options[2]) + g)
        if momentum:
            v = F(F(v * options[1]) + g)
            g = F(g + F(v * options[1])) if nesterov else v
        return F(p - F(g * options[0])), v

    return step


def adam_step(decay: str):
    """``step(p, g, m, s, options) -> (p, m, s)``: the arithmetic of Adam on one value.

    The options: the weight decay or what it leaves, beta1, 1 - beta1, beta2, 1 - beta2, one over the root of
    the square's bias, eps, lr over the mean's bias.
    """
    coupled, decoupled = decay == "coupled", decay == "decoupled"

    @scalar
    def step(p, g, m, s, options):
        if decoupled:
            p = F(p * options[0])
        if coupled:
            g = F(F(p * options[0]) + g)
        m = F(F(m * options[1]) + F(g * options[2]))
        s = F(F(s * options[3]) + F(F(g * g) * options[4]))
        root = F(F(F(math.sqrt(s)) * options[5]) + options[6])
        return F(p - F(F(m / root) * options[7])), m, s

    return step


@kernel
def sgd_kernel(kind, gradient_kind, momentum, nesterov, decay, stored):
    """A step of SGD of all parameters of a table."""
    options_of, step = option_reader(SGD_OPTIONS, stored), sgd_step(momentum, nesterov, decay)
    value_at, gradient_at = pointer_at(kind), pointer_at(gradient_kind)
    read, write, read_gradient = float_reader(kind), float_writer(kind), float_reader(gradient_kind)
    floats = kind == "float32" and gradient_kind == "float32"

    def sgd(table, owner, count, part, array, lr, mass, rate):
        k = owner[cuda.blockIdx.x]
        start = (cuda.blockIdx.x - table[BLOCK * count + k]) * part
        stop = min(start + part, table[LENGTH * count + k])
        value, gradient = table[VALUE * count + k], table[GRADIENT * count + k]
        velocity = table[FIRST * count + k] if momentum else 0
        p, g, v = value_at(value), gradient_at(gradient), floats_at(velocity)
        options = options_of(array, lr, mass, rate)
        if floats and (value | gradient | velocity) & SIXTEEN == 0:
            for i in range(start + FOUR * cuda.threadIdx.x, stop - 3, FOUR * THREADS):
                a, b = load4(p, i), load4(g, i)
                c = load4(v, i) if momentum else b
                r0, r1 = step(a[0], b[0], c[0], options), step(a[1], b[1], c[1], options)
                r2, r3 = step(a[2], b[2], c[2], options), step(a[3], b[3], c[3], options)
                store4(p, i, r0[0], r1[0], r2[0], r3[0])
                if momentum:
                    store4(v, i, r0[1], r1[1], r2[1], r3[1])
            start += (stop - start) & -FOUR
        for i in range(start + cuda.threadIdx.x, stop, THREADS):
            old = v[i] if momentum else F(0.0)
            r = step(read(p, i), read_gradient(g, i), old, options)
            write(p, i, r[0])
            if momentum:
                v[i] = r[1]

    return sgd, ("int64*", "int32*", "int64", "int64", "float32*", *["float32"] * SGD_OPTIONS)


@kernel
def adam_kernel(kind, gradient_kind, decay, stored):
    """A step of Adam of all parameters of a table."""
    options_of, step = option_reader(ADAM_OPTIONS, stored), adam_step(decay)
    value_at, gradient_at = pointer_at(kind), pointer_at(gradient_kind)
    read, write, read_gradient = float_reader(kind), float_writer(kind), float_reader(gradient_kind)
    floats = kind == "float32" and gradient_kind == "float32"

    def adam(table, owner, count, part, array, o0, o1, o2, o3, o4, o5, o6, o7):
        k = owner[cuda.blockIdx.x]
        start = (cuda.blockIdx.x - table[BLOCK * count + k]) * part
        stop = min(start + part, table[LENGTH * count + k])
        value, gradient = table[VALUE * count + k], table[GRADIENT * count + k]
        mean, square = table[FIRST * count + k], table[SECOND * count + k]
        p, g, m, s = value_at(value), gradient_at(gradient), floats_at(mean), floats_at(square)
        options = options_of(array, o0, o1, o2, o3, o4, o5, o6, o7)
        if floats and (value | gradient | mean | square) & SIXTEEN == 0:
            for i in range(start + FOUR * cuda.threadIdx.x, stop - 3, FOUR * THREADS):
                a, b, c, d = load4(p, i), load4(g, i), load4(m, i), load4(s, i)
                r0 = step(a[0], b[0], c[0], d[0], options)
                r1 = step(a[1], b[1], c[1], d[1], options)
                r2 = step(a[2], b[2], c[2], d[2], options)
                r3 = step(a[3], b[3], c[3], d[3], options)
                store4(p, i, r0[0], r1[0], r2[0], r3[0])
                store4(m, i, r0[1], r1[1], r2[1], r3[1])
                store4(s, i, r0[2], r1[2], r2[2], r3[2])
            start += (stop - start) & -FOUR
        for i in range(start + cuda.threadIdx.x, stop, THREADS):
            r = step(read(p, i), read_gradient(g, i), m[i], s[i], options)
            write(p, i, r[0])
            m[i], s[i] = r[1], r[2]

    return adam, ("int64*", "int32*", "int64", "int64", "float32*", *["float32"] * ADAM_OPTIONS)


def sgd(
    table: Table, kinds: tuple[str, str], options: Any, momentum: bool, nesterov: bool, decay: bool
) -> None:
    """A step of SGD, one launch.

    Args:
        table: Pointed at parameters, gradients and, with a momentum, velocities (float32).
        kinds: ``"float32"``, ``"float16"`` or ``"bfloat16"`` of parameters and of gradients.
        options: lr, momentum and weight decay as numbers, or a float32 (3,) array on the device.
        momentum: Whether there is a velocity.
        nesterov: Whether the step looks ahead.
        decay: Whether there is a weight decay.
    """
    stored = not isinstance(options, tuple)
    _launch(sgd_kernel(*kinds, momentum, nesterov, decay, stored), table, options, SGD_OPTIONS)


def adam(table: Table, kinds: tuple[str, str], options: Any, decay: str) -> None:
    """A step of Adam, one launch.

    Args:
        table: Pointed at parameters, gradients, means and squares (float32).
        kinds: As of ``sgd``.
        options: The eight numbers of ``adam_step``, or a float32 (8,) array of them on the device.
        decay: ``""``, ``"coupled"`` (an L2 term of the gradient) or ``"decoupled"`` (AdamW).
    """
    stored = not isinstance(options, tuple)
    _launch(adam_kernel(*kinds, decay, stored), table, options, ADAM_OPTIONS)


def _launch(made: Any, table: Table, options: Any, count: int) -> None:
    if table.blocks:
        numbers = options if isinstance(options, tuple) else (0.0,) * count
        array = None if isinstance(options, tuple) else options
        made(table.blocks, THREADS, table.array, table.owner, table.count, table.part, array, *numbers)
