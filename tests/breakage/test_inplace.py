"""Changes in place: refused as a whole, seen by backward, never a cut-off value."""

import numpy as np
import pytest

import autoq as aq
from autoq.errors import AutoqError, DTypeError, GradientError, IndexingError, ShapeError
from autoq.tape.op import REGISTRY
from tests.ops import registry


@pytest.mark.parametrize(
    ("index", "value", "error"),
    [
        (0, "a", DTypeError),
        (0, None, DTypeError),
        (0, 1j, DTypeError),
        (0, [1, 2], ShapeError),
        (5, 1.0, IndexingError),
        (1.5, 1.0, IndexingError),
        ({}, 1.0, IndexingError),
        (slice(None), np.array([1, 2, "a"], object), DTypeError),
    ],
)
def test_an_assignment_that_fails_changes_nothing(index, value, error):
    x = aq.tensor([1.0, 2.0, 3.0])
    with pytest.raises(error):
        x[index] = value
    assert x.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "change", ["x += 1.5", "x /= 2", "x[0] = 1.7", "x[0] = np.nan", "x.assign([0.5, 1.5])"]
)
def test_floats_are_not_cut_off_to_fit_integers(change):
    x = aq.tensor([1, 2])
    with pytest.raises(DTypeError, match="float"):
        exec(change, {"x": x, "np": np})
    assert x.tolist() == [1, 2]


def test_integers_change_in_place_by_integers():
    x = aq.tensor([1, 2])
    x += 1
    x *= np.int64(2)
    x[0] = True
    assert x.tolist() == [1, 6]


DENSE = sorted(n for n, op in REGISTRY.items() if hasattr(aq, n) and op.kind in ("float", "loss"))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", DENSE)
def test_the_result_of_a_computing_op_has_memory_of_its_own(name):
    for operands, static in registry.samples(name):
        tensors = [aq.tensor(x) if isinstance(x, np.ndarray) else x for x in operands]
        result = aq.tape.apply.apply(name, *tensors, **static)
        for x in tensors:
            if isinstance(x, aq.Tensor) and x.size:
                assert not x.shares_memory(result)


def test_clip_without_bounds_is_a_copy_that_backward_does_not_mistake_for_its_operand():
    x, w = aq.tensor([1.0, 2.0]), aq.tensor([3.0, 4.0], requires_grad=True)
    clipped = x.clip()
    y = (w * x).sum()
    clipped += 10
    y.backward()
    assert w.grad.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("view", ["detach", "inhibit", "dequantize", "transpose", "flip", "squeeze"])
def test_a_change_through_a_view_is_seen_by_backward(view):
    x, w = aq.tensor([[1.0, 2.0], [3.0, 4.0]]), aq.tensor([[3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    other = getattr(x, view)()
    before = x.numpy().copy()
    y = (w * x).sum()
    other += 10
    if np.array_equal(x.numpy(), before):
        y.backward()
        np.testing.assert_array_equal(w.grad.numpy(), before)
    else:
        with pytest.raises(GradientError, match="changed in place"):
            y.backward()


def test_a_gradient_set_by_hand_has_to_fit():
    x = aq.tensor([1.0, 2.0], requires_grad=True)
    for wrong in (aq.tensor([1.0]), 3.0, "a"):
        with pytest.raises(AutoqError):
            x.grad = wrong
    x.grad = np.array([1.0, 1.0])
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("gradient", ["a", [[1], [2, 3]], np.ones(3) * 1j, np.array([None] * 3), {1}])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_cotangent_is_made_of_real_numbers(gradient, create_graph):
    x = aq.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with pytest.raises(AutoqError):
        (x * 2).backward(gradient, create_graph=create_graph)
    assert x.grad is None
