"""Two trainings at once, graphs that free themselves, and memory that stays flat."""

import gc
import threading
import weakref

import numpy as np

import autoq as aq
from autoq import nn


def train(seed, steps):
    """The parameters after some steps of a small model with a stochastically rounded signal."""
    rng, numbers = aq.Generator(seed), np.random.default_rng(seed)
    first = nn.Linear(32, 32, rng=rng, weight_scheme=aq.mxfp8)
    model = nn.Sequential(first, nn.ReLU(), nn.Dropout(0.1, rng), nn.LayerNorm(32), nn.Linear(32, 8, rng=rng))
    optimizer = aq.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        x = aq.tensor(numbers.standard_normal((4, 32), dtype=np.float32))
        signal = x.quantize(aq.mxfp8, rounding="stochastic", rng=rng)
        optimizer.zero_grad()
        aq.cross_entropy(model(signal), numbers.integers(0, 8, 4)).backward()
        optimizer.step()
    return np.concatenate([p.numpy().ravel() for p in model.parameters()])


def test_two_threads_training_at_once_get_what_they_get_one_after_the_other():
    alone = {seed: train(seed, 20) for seed in (1, 2)}
    together = {}
    threads = [
        threading.Thread(target=lambda seed=seed: together.update({seed: train(seed, 20)})) for seed in alone
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, parameters in alone.items():
        np.testing.assert_array_equal(together[seed], parameters)


def test_no_grad_in_one_thread_does_not_reach_another():
    entered, done = threading.Event(), threading.Event()

    def silent():
        with aq.no_grad():
            entered.set()
            done.wait(10)

    thread = threading.Thread(target=silent)
    thread.start()
    try:
        assert entered.wait(10)
        assert (aq.tensor([1.0], requires_grad=True) * 2).requires_grad
    finally:
        done.set()
        thread.join()


def graph(x):
    """The nodes at both ends of a graph that backward never walks, held by nothing but weak references."""
    q = x.quantize(aq.mxfp8)
    y = aq.layer_norm((q @ aq.Parameter(np.ones((64, 8), np.float32))).softmax()).sum()
    return weakref.ref(q._node), weakref.ref(y._node)


def test_a_dropped_graph_is_freed_by_its_reference_counts_alone():
    x = aq.tensor(np.ones((4, 64), np.float32), requires_grad=True)
    second_gradient = aq.grad(lambda x: aq.grad(lambda x: (x.tanh() * x).sum())(x).sum())
    graph(x), second_gradient(x)  # what is compiled at the first use leaves cycles
    gc.collect()
    gc.disable()
    try:
        assert all(node() is None for node in graph(x))
        second = weakref.ref(second_gradient(x))
        assert second() is None
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_training_keeps_the_number_of_objects_flat():
    train(3, 5)
    gc.collect()
    before = len(gc.get_objects())
    train(3, 100)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
