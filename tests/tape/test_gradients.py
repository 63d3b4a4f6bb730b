"""What backward computes: straight-through casts, decoded operands, accumulation, tapes (S19-S30)."""

import gc
import weakref

import numpy as np
import pytest

import autoq as aq
from autoq.errors import DTypeError, GradientError, ShapeError

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def leaf(*shape, dtype=None):
    return aq.tensor(floats(*shape), dtype=dtype, requires_grad=True)


def test_the_signal_keeps_its_dtype_and_the_gradient_passes_through():
    a = floats(8, 32)
    w = aq.Parameter(floats(32, 64))
    x = aq.tensor(a, requires_grad=True)
    q = x.quantize(aq.mxfp8)
    y = (q @ w).relu()
    assert y.dtype == aq.mxfp8
    assert type(q) is aq.AutodiffQTensor
    y.dequantize().sum().backward()
    decoded = q.numpy()
    product = (
        aq.tensor(decoded @ w.numpy()).quantize(aq.mxfp8).numpy()
    )  # relu differentiates at what it was given
    mask = (product > 0).astype(np.float32)
    assert x.grad.dtype == aq.float32
    np.testing.assert_allclose(x.grad.numpy(), mask @ w.numpy().T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), decoded.T @ mask, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [aq.float64, aq.float32, aq.float16, aq.bfloat16])
def test_a_cast_hands_the_gradient_back_in_the_inputs_precision(dtype):
    x = aq.tensor(floats(2, 32), dtype=dtype, requires_grad=True)
    x.quantize(aq.mxfp4).dequantize().sum().backward()
    assert x.grad.dtype == dtype
    assert (x.grad.numpy() == 1).all()


def test_the_identity_estimator_passes_saturated_values_and_clip_does_not():
    a = np.full((1, 32), 0.5, np.float32)
    a[0, :3] = 15.0, -15.1, 14.9
    for ste, expected in (("identity", [1, 1, 1, 1]), ("clip", [0, 0, 1, 1])):
        x = aq.tensor(a, requires_grad=True)
        x.quantize(aq.int4, scales=np.full((1, 1), 2.0, np.float32), ste=ste).dequantize().sum().backward()
        assert x.grad.numpy()[0, :4].tolist() == expected


def test_the_clip_mask_is_one_bit_a_value():
    x = leaf(4, 64)
    y = x.quantize(aq.mxfp4.replace(scale_rule="floor"), ste="clip").dequantize().sum()
    assert aq.Tape.of(y).saved_bytes == 4 * 64 // 8


@pytest.mark.parametrize(
    "name", ["tanh", "sigmoid", "exp", "softmax", "relu", "sqrt", "gelu", "silu", "square"]
)
def test_rules_differentiate_at_the_decoded_operand_not_at_the_encoded_output(name, device):
    a = np.abs(floats(4, 32)) + 0.1
    x = aq.tensor(a, dtype=aq.mxfp4, requires_grad=True)
    cotangent = floats(4, 32)
    getattr(x, name)().backward(cotangent)
    d = aq.tensor(x.numpy(), requires_grad=True)
    y = getattr(d, name)()
    y.backward(cotangent)
    if name == "softmax" and device != "cpu":
        # A thread takes more values of a packed row than of a float32 one: sums in another order (S38).
        weights = y.numpy()
        terms = weights * (np.abs(cotangent) + (weights * np.abs(cotangent)).sum(axis=-1, keepdims=True))
        assert (np.abs(x.grad.numpy() - d.grad.numpy()) <= 4 * np.finfo(np.float32).eps * terms).all()
    else:
        np.testing.assert_array_equal(x.grad.numpy(), d.grad.numpy())
    if name in ("tanh", "sigmoid", "exp", "softmax", "sqrt"):
        wrong = _from_encoded_output(name, y.quantize(aq.mxfp4).numpy(), cotangent)
        assert np.abs(wrong - d.grad.numpy()).max() > 1e-2


def _from_encoded_output(name, y, g):
    """What a rule that read the encoded output would give."""
    with np.errstate(divide="ignore"):
        return {
            "tanh": lambda: g * (1 - y * y),
            "sigmoid": lambda: g * y * (1 - y),
            "exp": lambda: g * y,
            "softmax": lambda: y * (g - (g * y).sum(-1, keepdims=True)),
            "sqrt": lambda: np.where(y > 0, g / (2 * y), 0),
        }[name]()


def test_tanh_from_an_encoded_output_would_be_wrong_by_these_numbers():
    x = aq.tensor(
        np.linspace(-4, 4, 256, dtype=np.float32).reshape(8, 32), dtype=aq.mxfp8, requires_grad=True
    )
    y = x.tanh()
    y.dequantize().sum().backward()
    right = 1 - np.tanh(x.numpy()) ** 2
    wrong = 1 - y.numpy() ** 2
    np.testing.assert_allclose(x.grad.numpy(), right, rtol=1e-5, atol=1e-6)
    assert np.mean(wrong == 0) > 0.25
    assert np.mean(x.grad.numpy() == 0) == 0


def test_packed_operands_are_saved_packed():
    x = leaf(64, 128).quantize(aq.mxfp8)
    y = x.relu()
    tape = aq.Tape.of(y)
    assert tape.saved_bytes == x.nbytes
    assert tape.buffers()[0].scheme == aq.mxfp8


def test_an_operand_saved_twice_counts_once():
    x = leaf(4, 32).quantize(aq.mxfp8)
    assert aq.Tape.of(x * x).saved_bytes == x.nbytes


def test_add_saves_nothing():
    assert aq.Tape.of(leaf(4, 4) + leaf(4, 4)).saved_bytes == 0


def test_broadcast_operands_get_summed_gradients():
    a, b, c = leaf(3, 1, 4), leaf(2, 1), leaf()
    (a * b + c).sum().backward()
    assert (a.grad.shape, b.grad.shape, c.grad.shape) == ((3, 1, 4), (2, 1), ())
    assert c.grad.item() == 24
    np.testing.assert_allclose(b.grad.numpy(), np.full((2, 1), a.numpy().sum()), rtol=1e-5)


def test_a_leaf_read_several_times_accumulates():
    x = leaf(3)
    (x + x + x * 2).sum().backward()
    assert x.grad.numpy().tolist() == [4, 4, 4]
    (x * 1).sum().backward()
    assert x.grad.numpy().tolist() == [5, 5, 5]


def test_gradients_of_two_leaves_do_not_share_memory():
    x, y = leaf(3), leaf(3)
    (x + y).sum().backward()
    assert not x.grad.shares_memory(y.grad)
    x, y = leaf(3), leaf(3)
    ((x + y) * leaf(3)).sum().backward()
    assert not x.grad.shares_memory(y.grad)
    x, y = leaf(3), leaf(3)
    g = aq.ones(3)
    (x + y).backward(g.value)
    assert not x.grad.shares_memory(g)


def test_float16_contributions_accumulate_in_float32():
    x = aq.tensor(np.float16([1.0]), requires_grad=True)
    total = sum((x * 1.0 for _ in range(3)), x * 2048.0)
    total.sum().backward()
    assert x.grad.item() == np.float16(2051.0)


def test_an_untracked_quantized_tensor_asks_for_no_gradient():
    x, q = leaf(2, 32), aq.tensor(floats(2, 32), dtype=aq.mxfp8)
    (x * q).sum().backward()
    assert q.grad is None
    assert x.grad is not None


def test_a_quantized_leaf_gets_a_float_gradient():
    q = leaf(2, 32, dtype=aq.nvfp4)
    (q * 3.0).dequantize().sum().backward()
    assert q.grad.dtype == aq.float32
    assert (q.grad.numpy() == 3).all()


def test_quantize_grad_encodes_the_gradient_only():
    x = leaf(2, 32)
    g = floats(2, 32)
    y = aq.quantize_grad(x, aq.mxfp4)
    assert y.dtype == aq.float32
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    y.backward(g)
    np.testing.assert_array_equal(x.grad.numpy(), aq.tensor(g, dtype=aq.mxfp4).numpy())


def test_second_derivatives_of_a_program_through_a_quantizer():
    x = aq.tensor([[0.5] * 32], requires_grad=True)
    q = x.quantize(aq.mxfp8)
    loss = (q.dequantize() ** 3).sum()
    loss.backward(create_graph=True)
    first = x.grad
    assert first.requires_grad
    x.grad = None
    first.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * q.numpy(), rtol=1e-6)


def test_grad_of_grad_to_the_fourth_order():
    f = aq.grad(aq.grad(aq.grad(aq.grad(lambda x: x**5))))
    assert f(aq.tensor(np.float64(2.0))).item() == pytest.approx(240.0)


def test_grad_by_several_arguments_and_structures():
    def loss(params, x):
        return ((x @ params["w"] + params["b"]) ** 2).sum()

    params = {"w": aq.tensor(floats(3, 2)), "b": aq.tensor(floats(2))}
    value, (by_params, by_x) = aq.value_and_grad(loss, argnums=(0, 1))(params, aq.tensor(floats(4, 3)))
    assert value.shape == ()
    assert by_params["w"].shape == (3, 2)
    assert by_params["b"].shape == (2,)
    assert by_x.shape == (4, 3)


def test_grad_inside_a_tracked_program_is_differentiated_too():
    w = aq.tensor([2.0], requires_grad=True)
    slope = aq.grad(lambda x: (w * x * x).sum())(aq.tensor([3.0]))
    slope.sum().backward()
    assert w.grad.item() == 6.0


def test_vjp_can_be_pulled_back_twice():
    value, pullback = aq.vjp(lambda a, b: a * b, aq.tensor([2.0]), aq.tensor([5.0]))
    assert value.item() == 10.0
    assert [g.item() for g in pullback(aq.tensor([1.0]))] == [5.0, 2.0]
    assert [g.item() for g in pullback(np.float32([2.0]))] == [10.0, 4.0]


def test_an_argument_that_does_not_matter_has_a_zero_gradient():
    by_a, by_b = aq.grad(lambda a, b: a.sum(), argnums=(0, 1))(aq.tensor([1.0]), aq.tensor([1.0]))
    assert (by_a.item(), by_b.item()) == (1.0, 0.0)


def test_no_grad_records_nothing():
    x = leaf(3)
    with aq.no_grad():
        y = x * 2
    assert not y.requires_grad
    assert (x * 2).requires_grad

    @aq.no_grad()
    def frozen():
        return x * 2

    assert not frozen().requires_grad


def test_backward_of_a_vector_needs_a_gradient():
    with pytest.raises(GradientError, match=r"shape \(3,\) without a gradient") as caught:
        leaf(3).exp().backward()
    assert "Allowed" in str(caught.value)
    with pytest.raises(ShapeError, match="gradient of shape"):
        leaf(3).exp().backward(np.ones(2, np.float32))


def test_a_second_backward_is_an_error_unless_retained():
    x = leaf(3)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(GradientError, match="second backward") as caught:
        y.backward()
    assert "retain_graph=True" in str(caught.value)
    z = (x * x).sum()
    z.backward(retain_graph=True)
    z.backward()


def test_a_gradient_of_an_untracked_or_integer_tensor_is_refused():
    with pytest.raises(GradientError, match="untracked"):
        aq.tensor([1.0]).sum().backward()
    with pytest.raises(GradientError, match="requires_grad=True on a int64 tensor"):
        aq.tensor([1, 2], requires_grad=True)
    with pytest.raises(DTypeError, match="a gradient by an argument of dtype int64"):
        aq.grad(lambda x: x.sum())(aq.tensor([1, 2]))
    with pytest.raises(GradientError, match="requires_grad set on the result"):
        (leaf(2) * 2).requires_grad = True


def test_changing_a_saved_value_in_place_is_an_error():
    x, c = leaf(3), aq.tensor([1.0, 2.0, 3.0])
    y = (x * c).sum()
    c += 1.0
    with pytest.raises(GradientError, match="operand 'b' of mul was changed in place"):
        y.backward()
    view_of = aq.tensor([1.0, 2.0, 3.0])
    y = (x * view_of[:]).sum()
    view_of[0] = 9.0
    with pytest.raises(GradientError, match="changed in place"):
        y.backward()


def test_changing_a_value_that_backward_does_not_need_is_fine():
    x, c = leaf(3), aq.tensor([1.0, 2.0, 3.0])
    y = (x + c).sum()
    c += 1.0
    y.backward()
    assert x.grad.numpy().tolist() == [1, 1, 1]


def test_in_place_changes_of_tracked_tensors_are_refused():
    x = leaf(3)
    with pytest.raises(GradientError, match="tracked"):
        x += 1.0
    with pytest.raises(GradientError, match="tracked"):
        x[0] = 1.0
    with aq.no_grad():
        x += 1.0
        x[0] = 7.0
    assert x.numpy()[0] == 7.0


def test_in_place_updates_keep_the_dtype():
    q = aq.tensor(floats(2, 32), dtype=aq.mxfp8)
    before = q.numpy().copy()
    q += aq.tensor(np.ones((2, 32)))
    assert q.dtype == aq.mxfp8
    assert np.abs(q.numpy() - before - 1).max() < 0.2


def test_aq_tensor_copies_and_numpy_is_read_only():
    a = np.zeros(3, np.float32)
    x = aq.tensor(a)
    a[0] = 5
    assert x.numpy()[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1


def test_dropping_the_output_frees_the_graph():
    gc.collect()
    gc.disable()
    try:
        x = leaf(3)
        y = x * 2
        node = weakref.ref(y._node)
        z = y.exp().sum()
        del y
        assert node() is not None
        del z
        assert node() is None
    finally:
        gc.enable()


def test_a_chain_of_ten_thousand_ops():
    x = leaf(2)
    y = x
    for _ in range(10_000):
        y = y + 1.0
    y.sum().backward()
    assert x.grad.numpy().tolist() == [1, 1]
    del y


def test_complex_input_is_refused():
    with pytest.raises(DTypeError, match="complex"):
        aq.tensor(np.array([1j]))
    with pytest.raises(DTypeError, match="complex"):
        aq.tensor([1.0]) * np.complex64(1j)
    with pytest.raises(DTypeError):
        aq.tensor([1.0]) * 1j


def test_shapes_that_do_not_broadcast_name_the_op_and_shapes():
    with pytest.raises(ShapeError, match=r"add: shapes \(3,\) and \(2,\) don't broadcast"):
        leaf(3) + leaf(2)
    with pytest.raises(ShapeError, match=r"mul: shapes \(2, 32\) and \(2, 31\)"):
        leaf(2, 32, dtype=aq.mxfp8) * leaf(2, 31)


def test_matmul_names_the_axes_that_differ():
    with pytest.raises(ShapeError, match="inner axes differ") as caught:
        leaf(16, 48) @ leaf(64, 8)
    assert "Allowed" in str(caught.value)


def test_numpy_functions_refuse_tracked_tensors_and_take_others_as_arrays():
    x = leaf(2, 3)
    for call in (lambda: np.concatenate([x, x]), lambda: np.dot(x, x.T), lambda: np.reshape(x, -1)):
        with pytest.raises(GradientError, match="whose gradient would be lost"):
            call()
    packed, x = aq.tensor(floats(2, 32), dtype=aq.mxfp8, device="cpu"), x.to("cpu")
    np.testing.assert_array_equal(np.concatenate([packed, packed]), np.concatenate([packed.numpy()] * 2))
    assert np.asarray(x).shape == (2, 3)


def test_an_argument_that_a_method_does_not_have_is_named_with_the_op():
    with pytest.raises(DTypeError, match=r"sum\(\) got an unexpected keyword argument 'dim'"):
        leaf(2).sum(dim=1)
