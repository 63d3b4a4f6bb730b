"""Any format that is a list of values: encoded by a search, decoded by a look-up.

This is the codec of formats without a faster one: a new format needs its record and nothing else.
"""

from __future__ import annotations

import numpy as np

from ..bind import scalar
from ..codec import ElementCodec
from .bits import SIGN, ZERO, F, U, bits, real


def finite_codes(element: ElementCodec) -> tuple[np.ndarray, np.ndarray]:
    """Values that may be stored, ascending, and their codes: one code a value, of the two zeros +0."""
    values = np.array(element.values, np.float32)
    codes = np.flatnonzero((values >= element.minimum) & (values <= element.maximum))
    order = np.lexsort((np.signbit(values[codes]), values[codes]))
    codes = codes[order]
    first = np.append(True, np.diff(values[codes]) > 0)
    return values[codes[first]], codes[first].astype(np.uint32)


def negative_zero(element: ElementCodec) -> int:
    """The code of -0, or of +0 where there is none; -1 without any zero."""
    values = np.array(element.values, np.float32)
    zeros = np.flatnonzero(values == 0)
    return int(zeros[np.argmax(np.signbit(values[zeros]))]) if zeros.size else -1


def encoder(element: ElementCodec, rounding: str, keep_nan: bool):
    """``encode(t, limit, r)``: the code of the nearest value, ties to the even code.

    ``limit`` holds the bits of the largest magnitude to store, 0 for a block without codes.
    """
    values, codes = finite_codes(element)
    low, high, count = F(values[0]), F(values[-1]), len(values)
    minus_zero, nan_code = U(max(negative_zero(element), 0)), U(max(element.nan_code, 0))
    choose = chooser(values, codes, rounding)

    @scalar
    def encode(t, limit, r):
        reach = real(limit)
        top, bottom = min(high, reach), max(low, F(-reach))
        x = top if t > top else t
        x = bottom if x < bottom else x
        first, last = 0, count - 1
        while last - first > 1:
            middle = (first + last) >> 1
            if values[middle] <= x:
                first = middle
            else:
                last = middle
        place = choose(x, first, last, r)
        code = codes[place]
        if values[place] == F(0.0) and U(bits(t) & SIGN) != ZERO:
            code = minus_zero
        return code if limit != ZERO else ZERO

    @scalar
    def encode_nan(t, limit, r):
        return encode(t, limit, r) if t == t else nan_code

    return encode_nan if keep_nan else encode


def chooser(values: np.ndarray, codes: np.ndarray, rounding: str):
    """``choose(x, first, last, r)``: which of two neighbours ``x`` rounds to."""
    even = (codes & 1) == 0

    @scalar
    def nearest(x, first, last, r):
        below, above = np.float64(x) - np.float64(values[first]), np.float64(values[last]) - np.float64(x)
        if below == above:
            return last if even[last] else first
        return first if below < above else last

    if rounding == "nearest":
        return nearest
    draw_bits = 8 if rounding == "stochastic8" else 16
    span, spare = float(1 << draw_bits), 16 - draw_bits

    @scalar
    def stochastic(x, first, last, r):
        low, high = np.float64(values[first]), np.float64(values[last])
        width = high - low
        fraction = (np.float64(x) - low) / width if width > 0.0 else 0.0
        # Away from zero: below zero the lower neighbour is the one further out.
        outwards = last
        if low < 0.0:
            fraction, outwards = 1.0 - fraction, first
        away = np.rint(fraction * span) + np.float64(int(r) >> spare) >= span
        if away and fraction > 0.0:
            return outwards
        return first + last - outwards

    return stochastic


def decoder(element: ElementCodec):
    """``decode(code)``: the value of a code."""
    values = np.array(element.values, np.float32)
    mask = U((1 << element.bits) - 1)

    @scalar
    def decode(c):
        return values[U(c & mask)]

    return decode


def magnitudes(element: ElementCodec) -> np.ndarray:
    """The magnitudes that may be stored, ascending."""
    return np.unique(np.abs(finite_codes(element)[0]))
