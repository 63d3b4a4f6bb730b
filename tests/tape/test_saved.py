"""What nodes keep for backward: relu keeps its output wherever that shows the operand's sign (S22, S24)."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.schemes import ELEMENTS, ElementFormat
from autoq.storage.packing import pack
from autoq.tape.node import sign_shows

MX = [aq.mxfp8, aq.mxfp8_e5m2, aq.mxfp6_e2m3, aq.mxfp6_e3m2, aq.mxfp4]
RULES = ("round_up", "floor", "even")


def any_codes(scheme: aq.QuantScheme, rng: np.random.Generator, finite: bool = False) -> aq.QTensor:
    """Blocks of codes that no quantize need have written, with scales from the smallest to the largest.

    ``finite`` leaves out the largest ones, with which codes are beyond float32.
    """
    q = aq.QTensor.quantize(np.zeros((512, 64), np.float32), scheme)
    words = rng.integers(0, 256, q.words.view(np.uint8).shape, np.uint8).view(q.words.dtype)
    chosen = np.r_[0:12, 100:140] if finite else np.r_[0:12, 100:140, 243:255]
    scales = rng.choice(chosen.astype(np.uint8), q.scales.shape)
    return aq.QTensor(words, scales, None, q.scheme, q.shape)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scheme", MX, ids=lambda s: s.name)
def test_the_output_of_relu_is_above_zero_where_the_operand_is(scheme, rule):
    x = any_codes(scheme.replace(scale_rule=rule), np.random.default_rng(0))
    before = x.dequantize()
    after = aq.QTensor.quantize(np.maximum(before, 0), x.scheme)
    assert sign_shows(x, after)
    blocks = np.isfinite(before).reshape(512, -1, 32).all(axis=-1).repeat(32, axis=-1)
    assert blocks.any()
    np.testing.assert_array_equal((after.dequantize() > 0)[blocks], (before > 0)[blocks])


def test_a_rule_that_may_choose_a_larger_scale_loses_small_codes():
    scheme = aq.mxfp8.replace(scale_rule="ceil")
    x = any_codes(scheme, np.random.default_rng(0))
    after = aq.QTensor.quantize(np.maximum(x.dequantize(), 0), scheme)
    assert ((x.dequantize() > 0) & (after.dequantize() == 0)).any()
    assert not sign_shows(x, after)


TABLES = {
    "without 0": ((-1.0, 0.5), ("round_up", "floor")),
    "more room above 0": ((0.0, 1.0, 3.0, -1.0), ("round_up", "even")),
}


@pytest.mark.parametrize("what", TABLES)
def test_a_table_may_not_show_the_sign(what, monkeypatch):
    values, rules = TABLES[what]
    bits = len(values).bit_length() - 1
    record = ElementFormat(what, bits, "table", max(values), min(values), table=values)
    monkeypatch.setitem(ELEMENTS, what, record)
    for rule in rules:
        scheme = aq.QuantScheme(what, 32, "ue8m0", scale_rule=rule)
        x = any_codes(scheme, np.random.default_rng(0), finite=True)
        after = aq.QTensor.quantize(np.maximum(x.dequantize(), 0), scheme)
        assert ((x.dequantize() > 0) != (after.dequantize() > 0)).any()
        assert not sign_shows(x, after)


@pytest.mark.parametrize("element", ["int2", "mxint8"])
def test_even_rounds_up_to_the_smallest_normal_number(element):
    scheme = aq.QuantScheme(element, 32, "ue8m0", scale_rule="even")
    x = aq.QTensor.quantize(np.zeros((1, 32), np.float32), scheme)
    codes = np.r_[1, ELEMENTS[element].values.argmax(), np.zeros(30)].astype(np.uint8)
    words = pack(codes[None], scheme.element_bits)
    x = aq.QTensor(words, np.zeros_like(x.scales), None, scheme, x.shape)
    after = aq.QTensor.quantize(x.dequantize(), scheme)
    assert x.dequantize()[0, 0] > 0 == after.dequantize()[0, 0]
    assert not sign_shows(x, after)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("element", ["int8_full", "int4"])
def test_integers_with_scales_that_are_powers_of_two_show_the_sign(element, rule):
    scheme = aq.QuantScheme(element, 32, "ue8m0", scale_rule=rule)
    x = any_codes(scheme, np.random.default_rng(0), finite=True)
    after = aq.QTensor.quantize(np.maximum(x.dequantize(), 0), scheme)
    assert sign_shows(x, after)
    np.testing.assert_array_equal(after.dequantize() > 0, x.dequantize() > 0)


def signal(scheme: aq.QuantScheme | None, shape: tuple[int, ...] = (4, 64)) -> aq.Tensor:
    x = aq.tensor(np.random.default_rng(1).standard_normal(shape, dtype=np.float32), requires_grad=True)
    return x * 1.0 if scheme is None else x.quantize(scheme)


@pytest.mark.parametrize("scheme", [None, aq.mxfp8, aq.mxfp4], ids=str)
def test_relu_keeps_its_output(scheme):
    x = signal(scheme)
    y = aq.relu(x)
    (saved,) = y._node.saved
    assert saved._value is y._value
    y.backward(np.ones(y.shape, np.float32))


@pytest.mark.parametrize("scheme", [aq.nvfp4, aq.int8, aq.mxfp8.replace(scale_rule="ceil")], ids=str)
def test_relu_keeps_its_operand_where_the_output_may_not_show_its_sign(scheme):
    x = signal(scheme)
    assert aq.relu(x)._node.saved[0]._value is x._value


def test_relu_of_other_blocks_than_its_output_has_keeps_its_operand():
    x = signal(aq.mxfp8, (64, 64)).T
    assert aq.relu(x)._node.saved[0]._value is x._value


@pytest.mark.parametrize("out", [aq.float16, aq.mxfp4], ids=str)
def test_relu_to_another_dtype_keeps_its_operand(out):
    x = signal(None)
    assert aq.relu(x, out_dtype=out)._node.saved[0]._value is x._value


def test_gradients_are_those_of_the_operand():
    leaf = aq.tensor(np.random.default_rng(1).standard_normal((4, 64)), aq.float32, requires_grad=True)
    x = leaf.quantize(aq.mxfp8)
    (aq.relu(x).dequantize() * 3.0).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), np.where(x.numpy() > 0, 3.0, 0.0))


def test_an_output_that_was_changed_is_refused_and_a_changed_operand_is_not():
    leaf = aq.tensor([[-1.0, 2.0, 3.0]], requires_grad=True)
    x = leaf * 1.0
    y = aq.relu(x)
    with aq.no_grad():
        y[0] = 1.0
    with pytest.raises(aq.errors.GradientError, match="changed in place"):
        y.sum().backward()
    x = leaf * 1.0
    y = aq.relu(x)
    with aq.no_grad():
        x[0] = -1.0
    y.sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), [[0.0, 1.0, 1.0]])
