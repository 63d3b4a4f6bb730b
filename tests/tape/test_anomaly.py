"""detect_anomaly: the op that made the first NaN or infinity, forward and backward."""

import threading

import numpy as np
import pytest

import autoq as aq
from autoq.context import OBSERVERS, current
from autoq.errors import NonFiniteError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def leaf(*values):
    return aq.tensor(list(values), requires_grad=True)


def test_the_first_op_forward_is_named_with_place_and_shapes():
    x = leaf(4.0, 0.0, -1.0)
    with aq.detect_anomaly(), pytest.raises(NonFiniteError) as caught:
        (x * 2).log().exp().sum()
    assert str(caught.value).startswith("log made nan at index (2,) of its result from x float32 (3,).")


def test_native_arithmetic_is_watched_too():
    x = leaf(1.0, 0.0)
    with aq.detect_anomaly(), pytest.raises(NonFiniteError, match=r"div made inf at index \(1,\)"):
        1.0 / x


def test_the_op_backward_is_named_with_operand_node_and_line():
    x = leaf(4.0, 0.0)
    with aq.detect_anomaly():
        y = (x * 1).sqrt()
        loss = y.sum()
        place = r" \(node \d+, recorded at test_anomaly.py:\d+\) made inf at index \(1,\)"
        pattern = r"backward through sqrt \(2,\)" + place
        with pytest.raises(NonFiniteError, match=pattern + " of the gradient by x float32"):
            loss.backward()


def test_an_infinite_cotangent_is_not_blamed_on_an_op():
    x = leaf(1.0)
    with aq.detect_anomaly():
        (x * 2).backward(np.array([np.inf], np.float32))
    assert x.grad.tolist() == [np.inf]


def test_a_tape_recorded_before_is_watched_in_backward():
    x = leaf(0.0)
    loss = x.sqrt().sum()
    with (
        aq.detect_anomaly(),
        pytest.raises(NonFiniteError, match=r"backward through sqrt \(1,\) \(node \d+\)"),
    ):
        loss.backward()


def test_second_order_walks_are_watched():
    with aq.detect_anomaly(), pytest.raises(NonFiniteError):
        aq.grad(aq.grad(lambda x: (x**1.5).sum()))(aq.tensor(0.0))


def test_a_nan_that_came_in_is_blamed_on_the_operand():
    x = leaf(1.0, 2.0)
    with (
        aq.detect_anomaly(),
        pytest.raises(NonFiniteError, match=r"operand b of mul, float32 \(2,\), came in"),
    ):
        x * aq.tensor([1.0, np.nan])


def test_infinite_masks_and_padding_pass_but_what_they_break_does_not():
    x = leaf(1.0, 2.0)
    mask = aq.tensor([0.0, -np.inf])
    with aq.detect_anomaly():
        (x + mask).exp().sum().backward()
        with pytest.raises(NonFiniteError, match="sub made nan"):
            (x + mask) - mask
    assert x.grad.numpy()[1] == 0


def test_overflow_of_a_cast_and_of_an_encoded_result():
    x = leaf(*[60000.0] * 32)
    with aq.detect_anomaly():
        with pytest.raises(NonFiniteError, match="astype made inf"):
            (x * 2).astype(aq.float16)
        with pytest.raises(NonFiniteError, match="square made nan"):
            (x.quantize(aq.mxfp8) * 1e17).square()


def test_healthy_programs_give_the_same_with_it():
    x = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)

    def f(x):
        return (x.quantize(aq.mxfp4) @ np.eye(32, dtype=np.float32)).tanh().dequantize().sum()

    plain = aq.grad(f)(aq.tensor(x)).numpy()
    with aq.detect_anomaly():
        watched = aq.grad(f)(aq.tensor(x)).numpy()
    assert (plain == watched).all()


def test_inside_a_checkpoint_the_op_itself_is_named():
    x = leaf(0.0)
    with aq.detect_anomaly():
        loss = aq.checkpoint(lambda x: x.sqrt().sum())(x)
        with pytest.raises(NonFiniteError, match="backward through sqrt"):
            loss.backward()


def test_it_is_local_to_its_thread_and_gone_afterwards():
    found = []

    def work():
        found.append(current().observer)
        found.append(aq.tensor([0.0]).log().item())

    with aq.detect_anomaly():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [None, -np.inf]
    assert not OBSERVERS
    assert aq.tensor([0.0]).log().item() == -np.inf
