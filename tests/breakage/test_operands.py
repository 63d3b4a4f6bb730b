"""What ops say to operands and arguments they can't use: an error in three parts, never NumPy's own."""

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, AutoqError, DTypeError, IndexingError, ShapeError

X = aq.tensor(np.random.default_rng(0).standard_normal((4, 64)), dtype=aq.float32)
Q = X.quantize(aq.mxfp8)
BOOLS = aq.tensor([True, False])
INTEGERS = aq.tensor([1, 2])

REFUSED = {
    "None in a sum": (DTypeError, lambda: X + None),
    "None before a sum": (DTypeError, lambda: None + X),
    "None compared": (DTypeError, lambda: X < None),
    "None equal": (DTypeError, lambda: aq.equal(X, None)),
    "None as a condition": (DTypeError, lambda: aq.where(None, X, X)),
    "numbers as a condition": (DTypeError, lambda: aq.where(X, X, X)),
    "integers as a condition": (DTypeError, lambda: aq.where(INTEGERS, INTEGERS, 0)),
    "None as a weight": (DTypeError, lambda: aq.linear(X, None)),
    "None in a list": (DTypeError, lambda: aq.concat([X, None])),
    "None as a list": (DTypeError, lambda: aq.concat(None)),
    "no tensors": (ShapeError, lambda: aq.stack([])),
    "an integer beyond float64": (ArgumentError, lambda: X + 10**400),
    "an integer beyond int64": (ArgumentError, lambda: INTEGERS + 2**70),
    "an integer beyond uint8": (ArgumentError, lambda: aq.tensor([1], dtype=aq.uint8) + 300),
    "a negative power of integers": (ArgumentError, lambda: INTEGERS**-1),
    "minus bools": (DTypeError, lambda: -BOOLS),
    "the sign of bools": (DTypeError, lambda: aq.sign(BOOLS)),
    "a date": (DTypeError, lambda: X + np.datetime64("2020-01-01")),
    "axis 2**70": (ShapeError, lambda: X.sum(axis=2**70)),
    "axis True": (ShapeError, lambda: aq.layer_norm(X, axis=True)),
    "axis of strings": (ShapeError, lambda: aq.flip(Q, axis="a")),
    "axis of floats": (ShapeError, lambda: aq.squeeze(Q, axis=1.0)),
    "no axis to expand": (ShapeError, lambda: aq.expand_dims(Q, axis=None)),
    "no axis to expand, dense": (ShapeError, lambda: aq.expand_dims(X, axis=None)),
    "no axis to take along": (ShapeError, lambda: aq.take(X, [0], axis=None)),
    "no order of axes": (ShapeError, lambda: aq.permute_dims(X, None)),
    "keepdims of strings": (ArgumentError, lambda: aq.sum(X, keepdims="yes")),
    "keepdims of None": (ArgumentError, lambda: aq.argmax(X, keepdims=None)),
    "axes for one position": (ShapeError, lambda: aq.argmin(X, axis=(0, 1))),
    "an axis that is a truth value": (ShapeError, lambda: aq.mean(X, axis=True)),
    "axes twice": (ShapeError, lambda: aq.max(X, axis=(0, -2))),
    "a scheme for indices": (DTypeError, lambda: aq.argmax(X, out_dtype=aq.mxfp8)),
    "a weight that enlarges": (ShapeError, lambda: aq.layer_norm(X[:, :1], np.ones(64))),
    "a weight of another length": (ShapeError, lambda: aq.rms_norm(X, np.ones(3))),
    "a negative eps": (ArgumentError, lambda: aq.layer_norm(X, eps=-1)),
    "eps of strings": (ArgumentError, lambda: aq.rms_norm(X, eps="a")),
    "bounds of strings": (DTypeError, lambda: aq.clip(X, "a")),
    "a slope of arrays": (ArgumentError, lambda: aq.leaky_relu(X, X)),
    "a correction of strings": (ArgumentError, lambda: aq.var(X, correction="a")),
    "a rate of strings": (ArgumentError, lambda: aq.dropout(X, "a", rng=aq.Generator(0))),
    "NumPy's generator": (ArgumentError, lambda: aq.dropout(X, 0.5, rng=np.random.default_rng(0))),
    "a seed for a generator": (ArgumentError, lambda: aq.quantize(X, "int4", rounding="stochastic", rng=3)),
    "padding by a number": (ShapeError, lambda: aq.pad(X, 1)),
    "a split by strings": (ArgumentError, lambda: aq.split(X, "a")),
    "a shape of None": (ShapeError, lambda: aq.reshape(X, None)),
    "a shape with -2": (ShapeError, lambda: aq.reshape(X, (-2, 128))),
    "a broadcast to None": (AutoqError, lambda: aq.broadcast_to(Q, None)),
    "a step of 0": (AutoqError, lambda: Q[::0]),
    "72 axes": (AutoqError, lambda: Q[(None,) * 70]),
    "float positions": (IndexingError, lambda: aq.take(X, [0.5])),
    "bool positions": (IndexingError, lambda: aq.take(X, BOOLS)),
    "a position in an empty tensor": (IndexingError, lambda: aq.take(X[:0], [64], axis=1)),
    "ragged scales": (AutoqError, lambda: aq.quantize(X, "mxfp8", scales=[[1.0], [1.0, 2.0]])),
    "no dtype": (DTypeError, lambda: X.astype(None)),
    "a flag that is none": (ArgumentError, lambda: aq.TensorType(aq.float32, 3)),
    "types of numbers": (DTypeError, lambda: aq.combine(3)),
    "a tape of a number": (DTypeError, lambda: aq.Tape.of(3)),
    "inverted floats": (DTypeError, lambda: ~X),
    "masks of floats": (DTypeError, lambda: X & X),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_an_error_of_ours_in_three_parts(case):
    error, call = REFUSED[case]
    with pytest.raises(error) as caught:
        call()
    given, allowed, remedy = caught.value.given, caught.value.allowed, caught.value.remedy
    assert given
    assert allowed
    assert remedy


def test_what_an_op_refused_names_the_op_its_operands_and_the_cause():
    with pytest.raises(ArgumentError, match=r"sub: .*a=int64 \(2,\), b=1180591620717411303424") as caught:
        aq.sub(INTEGERS, 2**70)
    assert isinstance(caught.value.__cause__, OverflowError)


def test_a_fault_inside_an_op_stays_what_it_is():
    from autoq.tape.op import REGISTRY, Op, register

    def broken(x):
        raise KeyError("a fault of ours")

    register(Op("breakage_broken", broken, "no gradient", sample=lambda rng: [((1.0,), {})]))
    try:
        with pytest.raises(KeyError):
            aq.tape.apply.apply("breakage_broken", X)
    finally:
        del REGISTRY["breakage_broken"]


def test_masks_combine_with_the_logical_operators():
    a, b = aq.tensor([True, True, False]), np.array([True, False, False])
    assert (a & b).tolist() == [True, False, False]
    assert (b | a).tolist() == [True, True, False]
    assert (a ^ True).tolist() == [False, False, True]
    assert (~a).tolist() == [False, False, True]


def test_a_tensor_of_one_value_formats_like_its_number():
    assert f"{aq.tensor([0.12345]):.3f}" == "0.123"
    assert f"{aq.tensor(1.5, device='cpu')}" == "tensor(1.5, float32)"
    with pytest.raises(ShapeError):
        format(X, ".2f")


def test_numbers_stack_and_join_like_tensors():
    assert aq.stack([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert aq.concat([X, np.ones((1, 64), np.float32)]).shape == (5, 64)


def test_keepdims_may_be_a_numpy_bool():
    assert X.sum(axis=0, keepdims=np.True_).shape == (1, 64)
    assert Q.mean(axis=-1, keepdims=np.True_).dtype == aq.float32


def test_arrays_of_the_other_byte_order_are_taken_in():
    big = aq.tensor(np.array([1.0, 2.0], ">f4"))
    assert big.dtype == aq.float32
    assert (big + 1).tolist() == [2.0, 3.0]
    assert X.astype(np.dtype(">f8")).dtype == aq.float64
