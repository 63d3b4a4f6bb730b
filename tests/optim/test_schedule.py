"""Schedules set the learning rate of the next step."""

import math

import pytest

import autoq as aq
from autoq import optim
from autoq.errors import ArgumentError, StateError


def optimizer(*rates):
    return optim.SGD([{"params": [aq.Parameter([1.0])], "lr": rate} for rate in rates], lr=0.0)


def rates(schedule, steps):
    seen = []
    for _ in range(steps):
        seen.append(schedule.lr)
        schedule.step()
    return seen


def test_warm_up_rises_in_equal_steps_and_stays():
    assert rates(optim.LinearWarmup(optimizer(2.0), steps=4), 6) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


def test_the_cosine_is_the_papers_formula_after_the_warm_up():
    schedule = optim.CosineSchedule(optimizer(2.0), steps=12, warmup=2, final=0.1)
    expected = [1.0, 2.0] + [2.0 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * t / 10))) for t in range(10)]
    assert rates(schedule, 12) == pytest.approx(expected)
    assert rates(schedule, 3) == pytest.approx([0.2] * 3)


def test_the_cosine_never_rises_and_starts_at_the_full_rate():
    seen = rates(optim.CosineSchedule(optimizer(1.0), steps=50), 60)
    assert seen[0] == 1.0
    assert all(a >= b for a, b in zip(seen, seen[1:], strict=False))
    assert seen[-1] == 0.0


def test_every_group_keeps_its_ratio():
    groups = optimizer(1.0, 4.0)
    schedule = optim.CosineSchedule(groups, steps=8)
    for _ in range(3):
        schedule.step()
    first, second = (group["lr"] for group in groups.groups)
    assert 0 < first < 1
    assert second == pytest.approx(4 * first)


def test_a_schedule_goes_on_from_its_state():
    straight = optim.CosineSchedule(optimizer(1.0), steps=8, warmup=2)
    rates(straight, 5)
    resumed = optim.CosineSchedule(optimizer(0.125), steps=8, warmup=2)
    resumed.load_state_dict(straight.state_dict())
    assert resumed.lr == straight.lr
    assert rates(resumed, 3) == rates(straight, 3)


def test_bad_arguments_are_named():
    with pytest.raises(ArgumentError, match="steps=0"):
        optim.LinearWarmup(optimizer(1.0), steps=0)
    with pytest.raises(ArgumentError, match="warmup=8 of steps=8"):
        optim.CosineSchedule(optimizer(1.0), steps=8, warmup=8)
    with pytest.raises(ArgumentError, match="warmup=-1"):
        optim.CosineSchedule(optimizer(1.0), steps=8, warmup=-1)
    with pytest.raises(StateError, match="'count' and 'base'"):
        optim.LinearWarmup(optimizer(1.0), steps=2).load_state_dict({"count": 1})
