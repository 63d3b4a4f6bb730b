"""Mini-batches: every row once an epoch, in an order that seed and epoch determine."""

import numpy as np
import pytest

import autoq as aq
from autoq.data import Batches, split
from autoq.devices import device_of, to_host
from autoq.errors import ArgumentError, ShapeError


def rows(n):
    return np.arange(n * 2, dtype=np.float32).reshape(n, 2), np.arange(n)


@pytest.mark.parametrize(("n", "size"), [(10, 3), (9, 3), (1, 5), (7, 1)])
def test_an_epoch_visits_every_row_once_with_its_label(n, size):
    x, y = rows(n)
    batches = Batches(x, y, size, aq.Generator(0))
    seen = list(batches)
    assert len(seen) == len(batches) == -(-n // size)
    assert all(len(part) == size for part, _ in seen[:-1])
    labels = np.concatenate([label for _, label in seen])
    assert sorted(labels) == list(range(n))
    np.testing.assert_array_equal(np.concatenate([part for part, _ in seen]), x[labels])


def test_a_last_batch_of_fewer_rows_can_be_dropped():
    batches = Batches(*rows(10), 3, aq.Generator(0), drop_last=True)
    assert [len(x) for x, _ in batches] == [3, 3, 3]
    assert len(batches) == 3


def epochs(batches, n):
    return [np.concatenate(list(batches)).tolist() for _ in range(n)]


def test_epochs_differ_and_the_seed_repeats_them():
    first = epochs(Batches(np.arange(20), batch_size=6, rng=aq.Generator(4)), 3)
    assert first == epochs(Batches(np.arange(20), batch_size=6, rng=aq.Generator(4)), 3)
    assert first[0] != first[1] != first[2]
    assert first != epochs(Batches(np.arange(20), batch_size=6, rng=aq.Generator(5)), 3)


def test_a_run_resumes_at_an_epoch_whatever_the_generator_drew_meanwhile():
    straight = epochs(Batches(np.arange(20), batch_size=6, rng=aq.Generator(4)), 3)
    rng = aq.Generator(4)
    rng.uniform(100)
    resumed = Batches(np.arange(20), batch_size=6, rng=rng)
    resumed.epoch = 2
    assert epochs(resumed, 1) == straight[2:]


def test_without_shuffling_rows_keep_their_order_and_need_no_generator():
    batches = Batches(np.arange(5), batch_size=2, shuffle=False)
    assert [part.tolist() for part in batches] == [[0, 1], [2, 3], [4]]


def test_a_dataset_with_no_rows_is_refused():
    with pytest.raises(ShapeError, match=r"no rows: x has shape \(0, 4\)(.|\n)*at least one row"):
        Batches(np.zeros((0, 4)), batch_size=2, rng=aq.Generator(0))
    with pytest.raises(ShapeError, match=r"no rows: x has shape \(\)"):
        Batches(3.0, batch_size=2, rng=aq.Generator(0))


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_a_batch_size_below_one_is_refused(size):
    with pytest.raises(ArgumentError, match=f"batch_size={size}(.|\n)*at least 1"):
        Batches(*rows(4), size, aq.Generator(0))


def test_x_and_y_of_different_lengths_are_refused():
    with pytest.raises(ShapeError, match=r"x has 4 rows, y has shape \(3,\)"):
        Batches(rows(4)[0], np.arange(3), 2, aq.Generator(0))


def test_shuffling_without_a_generator_says_what_to_pass():
    with pytest.raises(ArgumentError, match=r"rng is None(.|\n)*Pass rng=aq.Generator\(seed\)"):
        Batches(*rows(4), 2)


def test_a_split_parts_the_rows_and_keeps_their_labels():
    x, y = rows(50)
    parts = split(x, y, 0.2, aq.Generator(0))
    assert len(parts.train_x) == 40
    assert len(parts.test_x) == 10
    assert sorted([*parts.train_y, *parts.test_y]) == list(range(50))
    np.testing.assert_array_equal(parts.test_x, x[parts.test_y])
    np.testing.assert_array_equal(parts.test_y, split(x, y, 0.2, aq.Generator(0)).test_y)


def test_a_split_leaves_at_least_one_row_on_each_side():
    assert [len(part) for part in split(np.arange(2), None, 0.01, aq.Generator(0))[::2]] == [1, 1]
    assert [len(part) for part in split(np.arange(2), None, 0.99, aq.Generator(0))[::2]] == [1, 1]
    with pytest.raises(ShapeError, match="1 row"):
        split(np.arange(1), None, 0.5, aq.Generator(0))
    with pytest.raises(ArgumentError, match="fraction=1.0"):
        split(np.arange(9), None, 1.0, aq.Generator(0))


def test_batches_of_tensors_are_tensors_on_their_device(device):
    x, y = rows(10)
    there = [aq.tensor(part, device=device) for part in (x, y)]
    same = zip(Batches(*there, 3, aq.Generator(4)), Batches(x, y, 3, aq.Generator(4)), strict=True)
    for found, expected in same:
        assert [part.device for part in found] == [device, device]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
    parts = split(*there, 0.2, aq.Generator(1))
    for a, b in zip(parts, split(x, y, 0.2, aq.Generator(1)), strict=True):
        assert a.device == device
        np.testing.assert_array_equal(a.numpy(), b)


def test_arrays_on_a_device_stay_arrays_there(device):
    x, y = rows(10)
    there = [aq.tensor(part, device=device).value for part in (x, y)]
    for found, expected in zip(
        Batches(*there, 3, shuffle=False), Batches(x, y, 3, shuffle=False), strict=True
    ):
        for a, b in zip(found, expected, strict=True):
            assert device_of(a) == device
            np.testing.assert_array_equal(to_host(a), b)


def test_batches_of_a_packed_tensor_are_packed_and_off_the_tape(device):
    x = aq.tensor(np.arange(320, dtype=np.float32).reshape(10, 32), device=device, requires_grad=True)
    packed = x.quantize("mxfp8")
    for batch, numbers in zip(
        Batches(packed, batch_size=4, shuffle=False), ((0, 4), (4, 8), (8, 10)), strict=True
    ):
        assert batch.dtype == aq.mxfp8
        assert not batch.requires_grad
        np.testing.assert_array_equal(batch.numpy(), packed.numpy()[slice(*numbers)])
