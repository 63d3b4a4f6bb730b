"""Which type comes out: TensorType, combine and the rules S1-S16 through real ops."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autoq as aq
from autoq import Propagation, TensorType, combine
from autoq.errors import ArgumentError, DTypeError, ResolutionError

PROPAGATE, INHIBIT = Propagation.PROPAGATE, Propagation.INHIBIT
DTYPES = [
    aq.float64,
    aq.float32,
    aq.float16,
    aq.bfloat16,
    aq.mxfp8,
    aq.mxfp8_e5m2,
    aq.mxfp4,
    aq.nvfp4,
    aq.int8,
    aq.int4,
]
types = st.builds(TensorType, st.sampled_from(DTYPES), st.sampled_from(Propagation))


def packed(scheme=None, shape=(4, 64), seed=0):
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return aq.tensor(x, dtype=scheme or aq.mxfp8)


def test_equal_types_are_one_object():
    assert TensorType("float32") is TensorType(np.float32)
    assert TensorType(aq.mxfp8) is TensorType("mxfp8")
    assert pickle.loads(pickle.dumps(TensorType(aq.nvfp4, INHIBIT))) is TensorType(aq.nvfp4, INHIBIT)


@pytest.mark.parametrize("dtype", [np.complex64, object, "U3", "V4"])
def test_dtypes_that_tensors_do_not_have_are_refused(dtype):
    with pytest.raises(DTypeError, match="is not one that tensors have"):
        TensorType(dtype)


@given(st.lists(types, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_combine_is_a_rule_over_the_set(inputs, random):
    expected = combine(*inputs)
    shuffled = inputs + [random.choice(inputs)]
    random.shuffle(shuffled)
    assert combine(*shuffled) is expected


@given(st.lists(types, min_size=1, max_size=4))
def test_inhibiting_inputs_never_vote_beside_propagating_ones(inputs):
    voters = [t for t in inputs if t.propagates]
    result = combine(*inputs)
    assert result.propagates == bool(voters)
    assert result.dtype == combine(*(voters or inputs)).dtype


def test_the_widest_of_several_wins_and_equally_wide_ones_give_float32():
    assert combine(TensorType(aq.mxfp8), TensorType(aq.mxfp4)).dtype == aq.mxfp8
    assert combine(TensorType(aq.mxfp8), TensorType(aq.float16)).dtype == aq.float16
    assert combine(TensorType(aq.mxfp8), TensorType(aq.int8)).dtype == aq.float32
    assert combine(TensorType(aq.float16), TensorType(aq.bfloat16)).dtype == aq.float32
    assert (
        combine(TensorType(aq.float16), TensorType(aq.bfloat16), TensorType(aq.float64)).dtype == aq.float64
    )


def test_no_pairwise_fold_gives_this_set_rule():
    three = [TensorType(d) for d in (aq.mxfp8, aq.int8, aq.float16)]
    assert {combine(*p).dtype for p in itertools.permutations(three)} == {aq.float16}


def test_schemes_that_differ_in_encode_choices_take_the_default_choices():
    floor = aq.mxfp8.replace(scale_rule="floor")
    assert combine(TensorType(floor), TensorType(aq.mxfp8)).dtype == aq.mxfp8
    assert combine(TensorType(floor), TensorType(floor)).dtype == floor
    a, b = packed(floor), packed(seed=1)
    assert (a + b).qtensor.same_bits((b + a).qtensor)


def test_blocks_along_another_axis_are_the_same_dtype():
    q, k = packed(shape=(32, 64)), packed(shape=(32, 64), seed=1)
    assert (q @ k.mT).dtype == aq.mxfp8
    across = aq.mxfp8.replace(block=(32, 1))
    assert combine(TensorType(across), TensorType(aq.mxfp8)).dtype == aq.mxfp8
    with aq.dtype_resolution("strict"):
        assert combine(TensorType(across), TensorType(aq.mxfp8)).dtype == aq.mxfp8


def test_parameters_do_not_vote():
    w4 = aq.Parameter(packed(aq.nvfp4, (64, 64)))
    w32 = aq.Parameter(np.ones((64, 64), np.float32))
    assert (packed() @ w4).dtype == aq.mxfp8
    assert (packed() @ w32).dtype == aq.mxfp8
    assert (aq.tensor(np.ones((4, 64), np.float16)) @ w32).dtype == aq.float16
    assert (aq.tensor(np.ones((4, 64), np.float32)) @ w4).dtype == aq.float32


def test_scalars_and_0d_tensors_do_not_vote():
    x = packed()
    for y in (
        x * 2,
        2.0 - x,
        x * np.float64(2),
        x / x.sum(),
        x + aq.tensor(np.float64(1)),
        x * aq.Parameter(2.0),
    ):
        assert y.dtype == aq.mxfp8
    assert (x.sum() + aq.tensor(np.float64(1))).dtype == aq.float64


def test_a_mean_with_keepdims_keeps_the_signal_in_its_dtype():
    x = packed()
    mean = x.mean(-1, keepdims=True)
    assert mean.tensor_type is TensorType(aq.float32, INHIBIT)
    assert (x - mean).dtype == aq.mxfp8
    assert x.sum().dtype == aq.float32
    assert x.sum(0, keepdims=True).dtype == aq.mxfp8
    assert x.sum(0).dtype == aq.mxfp8


def test_bool_and_integer_tensors_do_not_vote():
    x = aq.tensor(np.ones((2, 2), np.float16))
    assert (x * aq.tensor([[1, 2], [3, 4]])).dtype == aq.float16
    assert (aq.tensor([1, 2]) + aq.tensor([1, 2])).dtype.kind == "i"
    assert aq.exp(aq.tensor([1, 2])).dtype == aq.float32
    assert (x > 0).dtype == aq.bool_
    assert not (x > 0).requires_grad


def test_an_expression_of_packed_parameters_is_float32_and_inhibits():
    w = aq.Parameter(packed(aq.nvfp4, (64, 64)))
    assert (w * 2).tensor_type is TensorType(aq.float32, INHIBIT)
    assert w.T.tensor_type is TensorType(aq.nvfp4, INHIBIT)


def test_looking_a_parameter_up_by_data_makes_an_activation():
    w = aq.Parameter(packed(aq.nvfp4, (64, 64)))
    assert w.take(np.array([1, 2])).tensor_type is TensorType(aq.nvfp4, PROPAGATE)
    assert w[aq.tensor([1, 2])].tensor_type is TensorType(aq.nvfp4, PROPAGATE)
    assert w[3].tensor_type is TensorType(aq.nvfp4, INHIBIT)
    assert w[2:4].tensor_type is TensorType(aq.nvfp4, INHIBIT)


def test_casts_keep_the_flag_and_it_can_be_overridden():
    w = aq.Parameter(np.ones((4, 64), np.float32))
    assert w.quantize(aq.nvfp4).tensor_type is TensorType(aq.nvfp4, INHIBIT)
    assert w.astype(aq.float16).tensor_type is TensorType(aq.float16, INHIBIT)
    assert w.propagate().tensor_type is TensorType(aq.float32, PROPAGATE)
    assert packed().inhibit().detach().T.tensor_type.propagation is INHIBIT


def test_strict_resolution_names_the_op_and_both_dtypes():
    x, y = packed(), packed(aq.mxfp4)
    with aq.dtype_resolution("strict"):
        with pytest.raises(ResolutionError, match=r"add: .*mxfp8 and mxfp4") as caught:
            x + y
        assert "Allowed" in str(caught.value)
        with pytest.raises(ResolutionError, match="scale_rule='floor'"):
            x + packed(aq.mxfp8.replace(scale_rule="floor"))
        assert (x + y.inhibit()).dtype == aq.mxfp8
    assert (x + y).dtype == aq.mxfp8
    with pytest.raises(ArgumentError, match="loose"):
        aq.dtype_resolution("loose")


def test_out_dtype_overrides_the_rule():
    x = packed()
    assert aq.add(x, x, out_dtype=aq.float16).dtype == aq.float16
    assert aq.relu(x, out_dtype=aq.mxfp4).dtype == aq.mxfp4
    assert aq.sum(x, -1, True, out_dtype=aq.mxfp4).dtype == aq.mxfp4
    assert x.T.reshape(-1).dtype == aq.mxfp8


def test_losses_are_float32_and_sums_of_float64_stay_float64():
    x = packed()
    labels = np.arange(4)
    assert aq.cross_entropy(x, labels).tensor_type is TensorType(aq.float32)
    wide = aq.tensor(np.ones((4, 64)))
    assert wide.dtype == aq.float64
    for y in (
        aq.cross_entropy(wide, labels),
        aq.mse_loss(wide, x),
        wide.sum(),
        wide.mean(),
        wide.var(),
        x.sum() + wide,
    ):
        assert y.dtype == aq.float64


def test_half_floats_compute_in_float32_and_round_once():
    a = aq.tensor(np.float16([[2048.0, 1.0, 1.0]]))
    assert a.sum(-1).item() == 2050.0
    b = aq.tensor(np.array([256.0, 1.0, 1.0], dtype=aq.bfloat16))
    assert b.dtype == aq.bfloat16
    assert b.sum().item() == 258.0


def test_exact_precision_accumulates_in_float64():
    x = aq.tensor(np.float32([2.0**24, 1, 1, -(2.0**24)]))
    with aq.precision("exact"):
        assert x.sum().item() == 2.0
        assert (x @ aq.tensor(np.ones(4, np.float32))).item() == 2.0
    with pytest.raises(ArgumentError, match="precise"):
        aq.precision("precise")


def test_out_of_range_dtype_names_suggest_the_nearest_scheme():
    with pytest.raises(aq.errors.SchemeError, match="mxfp8"):
        aq.tensor([1.0] * 32, dtype="mxfp9")


def test_a_scheme_by_name_is_the_scheme_also_where_numpy_has_that_name():
    assert aq.quantize(aq.tensor([1.0]), "int8").dtype == aq.int8
    assert aq.tensor([1.0]).quantize("int8").dtype == aq.int8
    assert aq.tensor([1.0]).astype("int8").dtype == np.int8


def test_creators_make_tensors_of_any_dtype():
    assert aq.zeros((2, 32), aq.mxfp8).dtype == aq.mxfp8
    assert aq.full((2,), 0.1, aq.float64).numpy()[0] == 0.1
    assert aq.arange(4).dtype == aq.int64
    assert aq.ones_like(aq.zeros((2, 32), aq.int4)).dtype == aq.int4
    with pytest.raises(aq.errors.ShapeError, match="lengths of at least 0"):
        aq.zeros((-1,))
    with pytest.raises(ArgumentError, match="step 0"):
        aq.arange(0, 3, 0)


def test_results_of_ops_round_to_nearest_also_in_a_stochastic_scheme():
    scheme = aq.mxfp8.replace(rounding="stochastic")
    x = packed().numpy()
    q = aq.quantize(x, scheme, rng=aq.Generator(0))
    y = q + q
    assert y.dtype == scheme
    np.testing.assert_array_equal(y.numpy(), aq.quantize(q.numpy() * 2, aq.mxfp8).numpy())
    with pytest.raises(ArgumentError, match="without a generator"):
        aq.quantize(x, scheme)


def test_printing_a_packed_tensor_shows_its_type_and_decoded_values():
    q = aq.tensor([[1.0, -0.3, 0.0]], dtype=aq.mxfp4)
    assert str(q).splitlines() == [repr(q), "[[ 1.   -0.25  0.  ]]"]
    assert f"{q}" == str(q)
    assert "\n" not in repr(q)
    dense = aq.tensor([1.0, 2.0])
    assert str(dense) == repr(dense)
