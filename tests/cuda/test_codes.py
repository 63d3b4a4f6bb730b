"""The quick ways to codes and quotients, in the interpreter: the bits of the scalar source."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from autoq.kernels.cuda.block import (
    block_measure,
    chunk_codes,
    chunk_encoder,
    noter,
    quad_encoder,
    quick_encoder,
    quick_test,
)
from autoq.kernels.cuda.octets import chunk_decoder
from autoq.kernels.cuda.quantize_block import chooser, scaler
from autoq.kernels.cuda.quotient import divisible, fused, over, reciprocal, signed_over
from autoq.kernels.scalar.bits import ZERO, F, U
from autoq.kernels.scalar.element import element_functions
from autoq.kernels.scalar.rules import divides, tensor_factors
from autoq.schemes import CATALOG, scheme
from autoq.storage.plan import codec_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NAMES = [name for name in sorted(CATALOG) if scheme(name).block is None or len(scheme(name).block) == 1]


def blocks(size: int) -> Any:
    """Blocks of values: of all magnitudes, halfway between codes, of zeros, of a few sizes, not finite."""
    rng = np.random.default_rng(0)
    for exponent in (-140, -100, -60, -1, 0, 5, 61, 100, 126):
        yield (rng.standard_normal(size) * np.ldexp(0.5, exponent)).astype(np.float32)
    for scale in (1.0, 3.0, 0.7):
        yield (rng.integers(-16, 17, size) / 2 * scale).astype(np.float32)
        yield (rng.integers(-1, 2, size) * scale).astype(np.float32)
    sparse = rng.standard_normal(size).astype(np.float32)
    sparse[::2], sparse[1::4] = -0.0, 0.0
    yield sparse
    yield np.full(size, -0.0, np.float32)
    yield np.full(size, np.finfo(np.float32).max)
    for bad in (np.nan, np.inf, -np.inf):
        yield np.where(np.arange(size) == 5, np.float32(bad), sparse)


def rule(codec: Any, x: np.ndarray) -> tuple[Any, Any, Any]:
    """What is measured of a block, and its factor and limit; the tensor is a few times as large."""
    note, most, highest = noter(codec), ZERO, ZERO
    for value in x:
        most, highest = note(most, highest, value)
    found = block_measure(codec)(most, highest)
    finite = np.abs(x[np.isfinite(x)]).max(initial=0.0)
    p, q, level, _ = tensor_factors(codec)(F(min(3.0 * float(finite), 3e38)))
    _, factor, limit = chooser(codec)(found, F(0.0), p, q, level)
    return found, factor, limit


@pytest.mark.parametrize("converts", [False, True])
@pytest.mark.parametrize("policy", ["propagate", "saturate"])
@pytest.mark.parametrize("name", NAMES)
def test_the_quick_way_gives_the_codes_of_the_scalar_source(name: str, policy: str, converts: bool) -> None:
    codec = codec_of(scheme(name).replace(nonfinite=policy))
    quick, slow, each = quick_encoder(codec, converts), chunk_encoder(codec), chunk_codes(codec)
    if quick is None:
        assert policy == "saturate" or codec.element.kind == "integer"
        return
    scaled, quickly = scaler(codec), quick_test(codec, converts)
    divided, used = over if codec.element.kind == "integer" else signed_over, 0
    for x in blocks(16):
        found, factor, limit = rule(codec, x)
        if not quickly(found, factor, limit):
            continue
        used += 1
        inverse, rest = reciprocal(factor)
        for k in range(0, 16, each):
            values = tuple(x[k : k + each])
            wanted = slow(values, factor, limit)
            quotients = tuple(
                divided(v, factor, inverse, rest) if divides(codec) else scaled(v, factor) for v in values
            )
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # nothing wraps around: see the dialect in kernels/README.md
                assert quick(quotients) == wanted, (x, factor)
    assert used > 5


@pytest.mark.parametrize("converts", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_four_codes_of_any_block_are_those_of_the_scalar_source(name: str, converts: bool) -> None:
    codec = codec_of(scheme(name))
    encode, by_value = quad_encoder(codec, converts), chunk_encoder(codec)
    padding = (F(0.0),) * (chunk_codes(codec) - 4)
    for x in blocks(4):
        _, factor, limit = rule(codec, x)
        assert encode(*x, factor, limit) == by_value((*x, *padding), factor, limit)


@pytest.mark.parametrize("name", NAMES)
def test_whole_words_decode_as_code_by_code(name: str) -> None:
    element = codec_of(scheme(name)).element
    count, decode = chunk_decoder(element, converts=True)
    one, mask = element_functions(element).decode, (1 << element.bits) - 1
    for start in range(0, 1 << element.bits, count):
        codes = [(start + k) & mask for k in range(count)]
        word = sum(code << (element.bits * k) for k, code in enumerate(codes))
        found, wanted = (np.array(v, np.float32) for v in (decode(U(word)), [one(U(c)) for c in codes]))
        assert found[~np.isnan(wanted)].tobytes() == wanted[~np.isnan(wanted)].tobytes()
        assert np.array_equal(np.isnan(found), np.isnan(wanted))


def test_quotients_have_the_bits_of_a_division() -> None:
    rng = np.random.default_rng(0)
    for n in range(4000):
        divisor = F(np.ldexp(1 + rng.random(), int(rng.integers(-60, 60))))
        if n % 4 == 0:  # a significand of ones, or nearly
            divisor = np.nextafter(F(2.0 ** int(rng.integers(-50, 50))), F(0.0))
        x = F(rng.standard_normal() * float(divisor) * float(rng.choice([1e-6, 1.0, 100.0])))
        if n % 3 == 0:  # beside the middle between two integers
            x = np.nextafter(F(F(rng.integers(-127, 127) + 0.5) * divisor), F(rng.choice([-np.inf, np.inf])))
        assert divisible(divisor)
        found = signed_over(x, divisor, *reciprocal(divisor))
        assert found.tobytes() == F(x / divisor).tobytes(), (x, divisor)
    for zero in (F(0.0), F(-0.0)):
        for divisor in (F(3.0), F(5.0), F(1.0)):
            assert signed_over(zero, divisor, *reciprocal(divisor)).tobytes() == zero.tobytes()


def test_a_product_and_a_sum_are_rounded_once() -> None:
    # The exact sum is just above the middle of two float32; rounded to float64 first it would be the middle.
    a, b = F(1 + 2.0**-23), F(1 + 2.0**-23)
    assert fused(a, b, F(2.0**24)) == F(2.0**24 + 2)
    assert fused(a, b, F(-1.0)) == F(2.0**-22 + 2.0**-46)
    assert fused(F(1.0), F(1.0), F(2.0**24)) == F(2.0**24)
    assert fused(F(2.0**-100), F(2.0**-49), F(1 + 2.0**-23)) == F(1 + 2.0**-23)
    assert fused(F(3e38), F(3e38), F(1.0)) == np.inf
