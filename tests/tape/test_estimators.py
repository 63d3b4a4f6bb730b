"""Learned step size and learned clipping: the papers' formulas, finite differences, bytes, errors."""

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, DTypeError, SchemeError, ShapeError

RNG = np.random.default_rng(0)
WHOLE = aq.int4.replace(block=None)
# Scheme, shape of x, shape of the learned tensor.
CASES = [
    (WHOLE, (3, 7), ()),
    (aq.int8.replace(block=None), (3, 7), (1, 1)),
    (aq.int4.replace(block=(4,)), (3, 7), ()),
    (aq.int4.replace(block=(4,)), (3, 7), (3, 1)),
    (aq.int4.replace(block=(4,)), (3, 7), (2,)),
    (aq.int4.replace(block=(4,)), (3, 7), (3, 2)),
    (aq.int4_full.replace(block=(2, 3)), (3, 7), (2, 3)),
    (aq.int4_full.replace(block=(2, 3)), (2, 3, 7), (1, 2, 1)),
]
STEP_IDS = [f"{s.element}-{s.block}-{shape}" for s, _, shape in CASES]


def point(scheme, shape, learned_shape, dtype=np.float64):
    """Values of which some lie far outside, and learned values around 0.3."""
    x = RNG.standard_normal(shape).astype(np.float32) * 1.5
    learned = RNG.uniform(0.2, 0.4, learned_shape).astype(np.float32)
    return x.astype(dtype), learned.astype(dtype)


def spread(learned, shape, scheme):
    """One learned value a value of x, by looping over the blocks."""
    extents = [e or n for e, n in zip(scheme.extents(len(shape)), shape, strict=True)]
    grid = np.broadcast_to(learned, [-(-n // e) for n, e in zip(shape, extents, strict=True)])
    out = np.empty(shape)
    for index in np.ndindex(*shape):
        out[index] = grid[tuple(i // e for i, e in zip(index, extents, strict=True))]
    return out


def collected(contributions, learned_shape, shape, scheme):
    """The sum over the values that share a learned value, by differentiating `spread`, which is linear."""
    out = np.zeros(learned_shape)
    for index in np.ndindex(*learned_shape):
        unit = np.zeros(learned_shape)
        unit[index] = 1
        out[index] = (spread(unit, shape, scheme) * contributions).sum()
    return out


def run(x, learned, scheme, estimator, cotangent):
    x, learned = aq.tensor(x, requires_grad=True), aq.tensor(learned, requires_grad=True)
    q = aq.quantize(x, scheme, ste=estimator(learned))
    q.dequantize().backward(aq.tensor(cotangent.astype(np.float32)))
    return q, x.grad.numpy(), learned.grad.numpy()


@pytest.mark.parametrize(("scheme", "shape", "learned_shape"), CASES, ids=STEP_IDS)
def test_learned_step_is_the_papers_gradient(scheme, shape, learned_shape):
    x, step = point(scheme, shape, learned_shape)
    cotangent = RNG.standard_normal(shape)
    q, by_x, by_step = run(x, step, scheme, aq.learned_step, cotangent)
    v = x / spread(step, shape, scheme)
    low, high = scheme.element_format.minimum, scheme.element_format.maximum
    passes = (low < v) & (v < high)
    slopes = np.where(passes, np.rint(v) - v, np.where(v <= low, low, high))  # eq. 3
    n = collected(np.ones(shape), learned_shape, shape, scheme)
    expected = collected(cotangent * slopes, learned_shape, shape, scheme) / np.sqrt(n * high)
    assert 0 < passes.sum() < x.size or high > 7
    np.testing.assert_allclose(by_x, cotangent * passes, rtol=1e-6)
    np.testing.assert_allclose(by_step, expected, rtol=1e-5, atol=1e-6)
    assert by_step.shape == learned_shape
    assert q.dtype == scheme


@pytest.mark.parametrize(("scheme", "shape", "learned_shape"), CASES, ids=STEP_IDS)
def test_learned_clip_is_the_papers_gradient_with_both_signs(scheme, shape, learned_shape):
    x, level = point(scheme, shape, learned_shape)
    level = level * 4
    cotangent = RNG.standard_normal(shape)
    _, by_x, by_level = run(x, level, scheme, aq.learned_clip, cotangent)
    each = spread(level, shape, scheme)
    ratio = scheme.element_format.minimum / scheme.element_format.maximum
    above, below = x >= each, x <= ratio * each
    assert above.any()
    expected = collected(cotangent * (above + ratio * below), learned_shape, shape, scheme)
    np.testing.assert_allclose(by_x, cotangent * ~(above | below), rtol=1e-6)
    np.testing.assert_allclose(by_level, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("scheme", "shape", "learned_shape"), CASES, ids=STEP_IDS)
def test_bytes_are_those_of_the_given_scales(scheme, shape, learned_shape):
    x, learned = point(scheme, shape, learned_shape, np.float32)
    grid = aq.QTensor.quantize(x, scheme).scales.shape
    given = np.broadcast_to(learned, grid)
    by_step = aq.quantize(x, scheme, ste=aq.learned_step(aq.tensor(learned))).qtensor
    assert by_step.same_bits(aq.QTensor.quantize(x, scheme, scales=given))
    by_clip = aq.quantize(x, scheme, ste=aq.learned_clip(aq.tensor(learned))).qtensor
    scales = given / np.float32(scheme.element_format.maximum)
    assert by_clip.same_bits(aq.QTensor.quantize(x, scheme, scales=scales))


def step_surrogate(x0, s0, low, high):
    """q with its rounding error frozen: s * (clip(x / s) + r)."""
    r = np.rint(np.clip(x0 / s0, low, high)) - np.clip(x0 / s0, low, high)
    return lambda x, s: s * (np.clip(x / s, low, high) + r)


def clip_surrogate(x0, level0, low, high):
    """PACT's estimator: the clipped value plus a constant rounding error."""
    return lambda x, level: np.clip(x, level * (low / high), level)


@pytest.mark.parametrize(
    ("surrogate", "estimator"),
    [(step_surrogate, lambda t: aq.learned_step(t, factor=1.0)), (clip_surrogate, aq.learned_clip)],
)
def test_gradients_are_the_differences_of_the_surrogate(surrogate, estimator):
    x, learned = point(WHOLE, (5, 9), ())
    learned = learned * (1 if surrogate is step_surrogate else 7)
    cotangent = RNG.standard_normal(x.shape)
    _, by_x, by_learned = run(x, learned, WHOLE, estimator, cotangent)
    f = surrogate(x, learned, -7.0, 7.0)
    h = 1e-6
    expected = (cotangent * (f(x, learned + h) - f(x, learned - h))).sum() / (2 * h)
    np.testing.assert_allclose(by_learned, expected, rtol=1e-5)
    np.testing.assert_allclose(by_x, cotangent * (f(x + h, learned) - f(x - h, learned)) / (2 * h), atol=1e-5)


def test_second_gradients_of_the_estimators_are_those_of_their_surrogates():
    x, step = (aq.tensor(v) for v in point(WHOLE, (6,), ()))

    def f(x, step):
        return (
            aq.quantize(x, WHOLE, ste=aq.learned_step(step, factor=1.0)).dequantize(aq.float64) ** 2
        ).sum()

    passes, slopes = (np.asarray(v) for v in aq.ops.estimators.step_slopes(x.numpy(), step.numpy(), WHOLE))
    h = aq.hessian(f, argnums=(0, 1))(x, step)
    np.testing.assert_allclose(h[0][0].numpy(), 2 * np.diag(passes), rtol=1e-6)
    np.testing.assert_allclose(h[0][1].numpy(), 2 * passes * slopes, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(h[1][1].numpy(), 2 * (slopes**2).sum(), rtol=1e-6)


def test_gradients_reach_a_step_behind_other_operations_and_a_quantized_input():
    log_step = aq.Parameter(np.float32(-1.0))
    x = aq.tensor(RNG.standard_normal((2, 32)).astype(np.float32), dtype=aq.mxfp8, requires_grad=True)
    q = aq.quantize(x, aq.int4.replace(block=None), ste=aq.learned_step(log_step.exp()))
    q.dequantize().sum().backward()
    assert x.grad.shape == (2, 32)
    assert log_step.grad.item() != 0
    step = aq.Parameter(np.exp(np.float32(-1.0)))
    aq.quantize(
        x.dequantize(), aq.int4.replace(block=None), ste=aq.learned_step(step)
    ).dequantize().sum().backward()
    np.testing.assert_allclose(log_step.grad.item(), step.grad.item() * step.item(), rtol=1e-5)


def test_what_backward_needs_is_the_input_and_the_step():
    x = aq.tensor(np.ones((4, 32), np.float32), requires_grad=True)
    step = aq.Parameter(0.1)
    q = aq.quantize(x, aq.int8, ste=aq.learned_step(step))
    assert aq.Tape.of(q).saved_bytes == x.nbytes + step.nbytes


def test_a_frozen_step_and_a_frozen_input():
    x = aq.tensor([0.3, 9.0], requires_grad=True)
    aq.quantize(x, WHOLE, ste=aq.learned_step(aq.tensor(0.5))).dequantize().sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]
    step = aq.Parameter(0.5)
    aq.quantize([0.3, 9.0], WHOLE, ste=aq.learned_step(step, factor=1.0)).dequantize().sum().backward()
    np.testing.assert_allclose(step.grad.item(), 1 - 0.6 + 7, rtol=1e-6)


@pytest.mark.parametrize("dtype", [aq.float16, aq.bfloat16, aq.float64])
def test_gradients_come_in_the_dtypes_of_input_and_step(dtype):
    x = aq.tensor(np.linspace(-1, 1, 8), dtype=dtype, requires_grad=True)
    step = aq.tensor(0.125, dtype=aq.float16, requires_grad=True)
    aq.quantize(x, WHOLE, ste=aq.learned_step(step)).dequantize().sum().backward()
    assert x.grad.dtype == dtype
    assert step.grad.dtype == aq.float16


def test_learned_clip_takes_stochastic_rounding_and_minifloats():
    x = aq.tensor(RNG.standard_normal((2, 32)).astype(np.float32), requires_grad=True)
    level = aq.Parameter(1.0)
    scheme = aq.QuantScheme("e2m1", block=(16,), scale="f32")
    q = aq.quantize(x, scheme, ste=aq.learned_clip(level), rounding="stochastic", rng=aq.Generator(0))
    assert abs(q.numpy()).max() == 1.0
    q.dequantize().sum().backward()
    np.testing.assert_allclose(level.grad.item(), (x.numpy() >= 1).sum() - (x.numpy() <= -1).sum())


def test_learning_the_step_lowers_the_error():
    x = RNG.standard_normal(512).astype(np.float32)
    step = aq.Parameter(0.05)
    errors = []
    for _ in range(60):
        step.grad = None
        error = ((aq.quantize(x, WHOLE, ste=aq.learned_step(step)).dequantize() - x) ** 2).mean()
        error.backward()
        errors.append(error.item())
        with aq.no_grad():
            step -= 20 * step.grad
    assert errors[-1] < 0.1 * errors[0]
    assert 0.2 < step.item() < 0.5


def test_training_state_of_a_checkpoint_with_a_learned_step():
    x = aq.tensor(RNG.standard_normal(64).astype(np.float32), requires_grad=True)
    found = []
    for wrap in (lambda f: f, aq.checkpoint):
        step = aq.Parameter(0.3)
        x.grad = None
        f = wrap(
            lambda x, step=step: (aq.quantize(x, WHOLE, ste=aq.learned_step(step)).dequantize() ** 2).sum()
        )
        f(x).backward()
        found.append((x.grad.numpy(), step.grad.numpy()))
    assert (found[0][0] == found[1][0]).all()
    assert found[0][1] == found[1][1]


def test_misuse_is_named():
    x = aq.tensor([[0.1] * 32])
    step = aq.Parameter(0.1)
    for make in (aq.learned_step, aq.learned_clip):
        with pytest.raises(DTypeError, match="a dense float tensor"):
            make(0.1)
        with pytest.raises(DTypeError, match="of a int64 tensor"):
            make(aq.tensor(3))
        with pytest.raises(SchemeError, match="in mxint8|in mxfp8"):
            x.quantize(aq.mxint8, ste=make(step))
        with pytest.raises(ShapeError, match=r"shape \(3,\) for the blocks"):
            x.quantize(aq.int8, ste=make(aq.Parameter([0.1, 0.1, 0.1])))
        with pytest.raises(ArgumentError, match=r"a value of -0\.1"), aq.default_device("cpu"):
            aq.tensor([[0.1] * 32]).quantize(aq.int8, ste=make(aq.Parameter(-0.1)))
        with pytest.raises(ArgumentError, match="scales= beside ste="):
            x.quantize(aq.int8, scales=np.ones((1, 1), np.float32), ste=make(step))
    with pytest.raises(SchemeError, match="not equally far apart"):
        x.quantize(aq.mxfp8, ste=aq.learned_step(step))
    with pytest.raises(ArgumentError, match="rounding='stochastic'"):
        x.quantize(aq.int8, ste=aq.learned_step(step), rounding="stochastic", rng=aq.Generator(0))
    with pytest.raises(ArgumentError, match="ste='step'"):
        x.quantize(aq.int8, ste="step")


@pytest.mark.parametrize("value", [-0.1, 0.0, np.inf, np.nan])
@pytest.mark.parametrize("make", [aq.learned_step, aq.learned_clip])
def test_learned_values_of_no_use_are_refused_or_on_a_gpu_give_nan(make, value, device):
    learned = aq.Parameter(value)
    x = aq.tensor([[0.1] * 32])
    if device == "cpu":
        with pytest.raises(ArgumentError, match="a value of"):
            x.quantize(aq.int8, ste=make(learned))
    else:  # a look at the value would wait for it
        assert np.isnan(x.quantize(aq.int8, ste=make(learned)).numpy()).all()


@pytest.mark.parametrize("make", [aq.learned_step, aq.learned_clip])
@pytest.mark.parametrize("scheme", [WHOLE, aq.int8.replace(block=(4,))], ids=["int4", "int8"])
def test_the_frozen_rounding_check_holds_for_learned_scales(make, scheme):
    x, learned = point(scheme, (3, 8), ())

    def f(x, learned):
        return (aq.quantize(x, scheme, ste=make(learned)).dequantize().tanh() * x).sum()

    aq.testing.check_grads(f, x, np.asarray(learned * 2), through_rounding=True)
