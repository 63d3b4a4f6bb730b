"""Philox streams: known answers, the lane layout, and what a draw depends on."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from autoq.errors import ArgumentError, StateError
from autoq.random import Draw, Generator, philox4x32, random_bits, random_words, uniform01

# Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]

# Written down once: a stream never changes, or saved runs could not resume.
STREAM = 10287255030548646683


def words(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, expected):
    got = philox4x32(np.stack([words(counter)] * 3), words(key))
    assert got.dtype == np.uint32
    np.testing.assert_array_equal(got, [words(expected)] * 3)


def test_element_i_takes_lane_i_modulo_8_of_block_i_over_8():
    draw = Draw(seed=0x0123456789ABCDEF, stream=0xFEDCBA9876543210)
    drawn = random_bits(draw, 20)
    for i in range(20):
        counter = np.array([[i // 8, 0, 0x76543210, 0xFEDCBA98]], np.uint32)
        word = int(philox4x32(counter, np.array([0x89ABCDEF, 0x01234567], np.uint32))[0, i % 8 // 2])
        assert drawn[i] == (word & 0xFFFF if i % 2 == 0 else word >> 16)


def test_groups_past_32_bits_carry_into_the_second_counter_word():
    start = 4 * (2**32 + 5)
    counter = np.array([[5, 1, 9, 0]], np.uint32)
    expected = philox4x32(counter, np.array([3, 0], np.uint32))[0]
    np.testing.assert_array_equal(random_words(Draw(3, 9), 4, start), expected)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 100])
@pytest.mark.parametrize("start", [0, 1, 3, 8, 13])
def test_a_part_of_a_draw_is_that_part_of_the_whole(n, start):
    draw = Draw(5, 6)
    for numbers in (random_words, random_bits, uniform01):
        np.testing.assert_array_equal(numbers(draw, n, start=start), numbers(draw, 200)[start : start + n])


def test_eight_bit_draws_are_the_top_of_the_sixteen():
    draw = Draw(1, 1)
    np.testing.assert_array_equal(random_bits(draw, 50, bits=8), random_bits(draw, 50) >> 8)


def test_uniform01_is_24_exact_bits_of_the_word():
    draw = Draw(8, 9)
    expected = (random_words(draw, 1000) >> 8).astype(np.float64) / 2**24
    assert uniform01(draw, 1000).dtype == np.float32
    np.testing.assert_array_equal(uniform01(draw, 1000), expected)


def test_a_draw_depends_on_seed_path_and_invocation_only():
    rng = Generator(11)
    first, second = rng.draw("a"), rng.draw("a")
    other = Generator(11)
    other.draw("b")
    assert (other.draw("a"), other.draw("a")) == (first, second)
    assert len({first, second, Generator(12).draw("a"), Generator(11).draw("b")}) == 4


def test_streams_are_the_same_in_another_process():
    code = "from autoq.random import Generator; print(Generator(5).draw('layers.3').stream)"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert int(run.stdout) == Generator(5).draw("layers.3").stream == STREAM


def test_state_resumes_every_path():
    rng = Generator(2)
    rng.uniform(3)
    rng.draw("x")
    state = rng.state_dict()
    expected = rng.uniform(3), rng.draw("x"), rng.permutation(9)
    resumed = Generator(99)
    resumed.load_state_dict(state)
    actual = resumed.uniform(3), resumed.draw("x"), resumed.permutation(9)
    for want, got in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_bad_state_is_refused_and_changes_nothing():
    rng = Generator(2)
    rng.draw("x")
    before = rng.state_dict()
    with pytest.raises(StateError, match="seed, invocations"):
        rng.load_state_dict({"seed": 1})
    with pytest.raises(ArgumentError):
        rng.load_state_dict({"seed": -1, "invocations": {}})
    assert rng.state_dict() == before


def test_spawned_generators_are_independent_of_what_was_drawn():
    rng = Generator(4)
    child = rng.spawn("worker")
    rng.draw("x")
    assert rng.spawn("worker").seed == child.seed
    assert len({child.seed, rng.spawn("other").seed, Generator(5).spawn("worker").seed, rng.seed}) == 4


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_uniform_and_normal_have_their_moments(dtype):
    rng = Generator(0)
    u = rng.uniform((100, 200), -2, 4, dtype=dtype)
    z = rng.normal((100, 200), mean=3, std=2, dtype=dtype)
    assert u.dtype == z.dtype == dtype
    assert u.shape == z.shape == (100, 200)
    u, z = u.astype(np.float64), z.astype(np.float64)
    assert -2 <= u.min() < -1.99
    assert 3.99 < u.max() <= 4
    assert abs(u.mean() - 1) < 0.05
    assert abs(u.var() - 3) < 0.06
    assert abs(z.mean() - 3) < 0.05
    assert abs(z.std() - 2) < 0.03
    standard = (z - 3) / 2
    # Five standard errors of the third and fourth moment of 20,000 numbers.
    assert abs((standard**3).mean()) < 5 * (15 / z.size) ** 0.5
    assert abs((standard**4).mean() - 3) < 5 * (96 / z.size) ** 0.5


def test_permutation_is_one_and_not_the_identity():
    order = Generator(0).permutation(1000)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    assert (order != np.arange(1000)).mean() > 0.98
    assert Generator(0).permutation(0).size == 0


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, "0", None])
def test_a_seed_out_of_range_is_an_error_with_three_parts(seed):
    with pytest.raises(ArgumentError) as error:
        Generator(seed)
    assert all([error.value.given, error.value.allowed, error.value.remedy])


def test_bits_other_than_8_and_16_are_refused():
    with pytest.raises(ArgumentError, match="8 or 16"):
        random_bits(Draw(0, 0), 1, bits=4)
