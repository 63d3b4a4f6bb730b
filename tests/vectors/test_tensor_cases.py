"""Burn's cases of layout, matrix products, gradients and layers on block-quantized tensors."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import autoq as aq

CASES = json.loads((Path(__file__).parent.parent / "data/cases/block_quantization_cases.json").read_text())
CASES = {case["name"]: case for case in CASES if not case["name"].startswith("ops/")}
ELEMENT_NAMES = {"Q8S": "int8", "Q4S": "int4", "Q8F": "int8_full", "Q2S": "int2"}
# Cases of Burn's modules that autoq.nn doesn't have yet: the module's name.
LATER = {"nn/transformer_block32": "TransformerEncoder"}


def scheme_of(case):
    spec = case["scheme"]
    element, block, tensor = ELEMENT_NAMES[spec["value"]], spec.get("block"), spec.get("tensor_scale_dtype")
    if block is None:
        return aq.QuantScheme(element, None)
    return aq.QuantScheme(
        element, tuple(block), spec["block_scale_dtype"].lower(), tensor_scale=tensor is not None
    )


def array(spec):
    if isinstance(spec, list):
        return np.array(spec, np.float32)
    return (np.arange(spec["arange"], dtype=np.float32) / spec["divide_by"]).reshape(spec["shape"])


def quantized(name, key="x"):
    case = CASES[name]
    x = array(case["inputs"][key])
    return x, aq.quantize(x, scheme_of(case)), case["tolerance"]


def assert_close(actual, expected, tolerance):
    bound = np.maximum(tolerance["abs"], tolerance["rel"] * np.maximum(np.abs(actual), np.abs(expected)))
    assert ((actual == expected) | (np.abs(actual - expected) < bound)).all()


def named(pattern):
    return [name for name, case in CASES.items() if re.fullmatch(pattern, case["op"])]


@pytest.mark.parametrize("name", named(r"quantize_dynamic\|to_bytes.*"))
def test_bytes_come_back(name):
    x, q, _ = quantized(name)
    again = pickle.loads(pickle.dumps(q.qtensor))
    assert again.same_bits(q.qtensor)
    np.testing.assert_array_equal(again.dequantize(), q.numpy())
    # A ue4m3 scale is rounded up by an eighth at most, and the step with it.
    spacing = 0.01 if q.dtype.scale == "f16" else 0.01 * 1.125
    assert_close(q.numpy(), x, {"rel": 0.01, "abs": spacing})


LAYOUTS = {
    r"quantize_dynamic\|transpose\|dequantize\|transpose": lambda t: t.mT,
    r"quantize_dynamic\|permute\(\[1,2,0\]\)\|dequantize": lambda t: aq.permute_dims(t, (1, 2, 0)),
    r"quantize_dynamic\|swap_dims\(0,1\)\|dequantize": lambda t: t.mT,
    r"quantize_dynamic\|select\(0,\[1\]\)\|dequantize": lambda t: aq.take(t, np.array([1]), axis=0),
    r"quantize_dynamic\|flip\(\[0\]\)\|dequantize": lambda t: aq.flip(t, axis=0),
}  # fmt: skip


@pytest.mark.parametrize(("pattern", "name"), [(p, name) for p in LAYOUTS for name in named(p)])
def test_layout_operations_move_packed_values(pattern, name):
    move, (x, q, tolerance) = LAYOUTS[pattern], quantized(name)
    moved = move(q)
    assert moved.dtype == q.dtype
    np.testing.assert_array_equal(moved.numpy(), move(aq.tensor(q.numpy())).numpy())
    assert_close(moved.numpy(), move(aq.tensor(x)).numpy(), tolerance)
    expected = CASES[name]["expected"]
    assert isinstance(expected, str) or np.allclose(moved.numpy(), expected, rtol=0, atol=tolerance["abs"])


@pytest.mark.parametrize("name", named(r"(transpose|permute\(\[1,2,0,3\]\))\|quantize_dynamic.*"))
def test_strided_arrays_quantize_as_their_copies(name):
    case = CASES[name]
    x = array(case["inputs"]["x"])
    axes = (1, 2, 0, 3) if "permute" in case["op"] else (1, 0)
    strided = x.transpose(axes)
    q = aq.quantize(strided, scheme_of(case))
    assert q.qtensor.same_bits(aq.quantize(np.ascontiguousarray(strided), scheme_of(case)).qtensor)
    back = aq.permute_dims(q, tuple(int(i) for i in np.argsort(axes)))
    assert_close(back.numpy(), x, case["tolerance"])


@pytest.mark.parametrize("name", named(r"quantize_dynamic\|reshape\|dequantize|reshape"))
def test_reshape(name):
    x, q, tolerance = quantized(name)
    shape = tuple(CASES[name]["inputs"]["new_shape"])
    moved = aq.reshape(q, shape)
    if "metadata_only" in name:
        np.testing.assert_array_equal(moved.numpy(), q.numpy().reshape(shape))
        assert moved.qtensor.shares_memory(q.qtensor)
    else:
        assert_close(moved.numpy(), x.reshape(shape), tolerance)
    # Blocks of two axes can't follow: decoded and encoded again with blocks along the last axis (S36).
    assert moved.dtype.block == ((8,) if "2x4" in name else q.dtype.block)


@pytest.mark.parametrize("name", named(r"quantize_dynamic\|slice\|dequantize"))
def test_slices_of_per_tensor_schemes_are_exact(name):
    x, q, _ = quantized(name)
    index = tuple(
        parsed(part) for part in re.search(r"\[(.*?)\]", CASES[name]["inputs"]["slices"])[1].split(", ")
    )
    np.testing.assert_array_equal(q[index].numpy(), q.numpy()[index])
    assert q[index].dtype == q.dtype
    assert x[index].shape == q[index].shape


def parsed(text):
    """``a..b;s`` as a slice; a single index keeps its axis."""
    if ".." not in text:
        return slice(int(text), int(text) + 1)
    span, _, step = text.partition(";")
    start, stop = span.split("..")
    return slice(int(start) if start else None, int(stop) if stop else None, int(step) if step else None)


def test_a_ternary_weight_of_zeros_gives_zero():
    case = CASES["ternary/zero_weight"]
    w = aq.quantize(array(case["inputs"]["w"]), scheme_of(case).replace(calibration="abs_mean"))
    product = aq.matmul(aq.tensor(array(case["inputs"]["a"])), w)
    assert product.numpy().tolist() == case["expected"]


def test_a_float_times_a_two_level_tensor_is_the_product_of_its_values():
    rhs, q, tolerance = quantized("matmul/two_level_rhs", "rhs")
    product = aq.matmul(aq.tensor(rhs), q)
    assert product.dtype == np.float32
    assert_close(product.numpy(), rhs @ q.numpy(), tolerance)


def test_adding_a_number_keeps_the_scheme_of_a_signal():
    # Burn's head gives floats here. In autoq an input propagates (S3, S5), a parameter doesn't (S10).
    _, q, _ = quantized("propagation/head_default_inhibits")
    assert (q + 1.0).dtype == q.dtype
    assert (aq.Parameter(q) + 1.0).dtype == np.float32


def test_a_frozen_base_passes_gradients_to_low_rank_factors():
    case = CASES["autodiff/frozen_base_plus_lora"]
    w, x, a, b = (array(case["inputs"][key]) for key in "wxab")
    frozen = aq.quantize(w, scheme_of(case))

    def gradients(base):
        tracked = [aq.tensor(value, requires_grad=True) for value in (x, a, b)]
        aq.sum(aq.matmul(tracked[0], base + aq.matmul(tracked[1], tracked[2]))).backward()
        return [t.grad.numpy() for t in tracked]

    for ours, expected in zip(
        gradients(frozen.dequantize()), gradients(aq.tensor(frozen.numpy())), strict=True
    ):
        assert_close(ours, expected, case["tolerance"])
    assert frozen.grad is None


def test_a_product_with_a_quantized_tensor_differentiates_at_its_values():
    case = CASES["autodiff/matmul_quantized_rhs"]
    w, x = array(case["inputs"]["w"]), array(case["inputs"]["x"])
    q = aq.quantize(w, scheme_of(case))
    results = []
    for right in (q, q.dequantize()):
        t = aq.tensor(x, requires_grad=True)
        aq.sum(aq.matmul(t, right)).backward()
        results.append(t.grad.numpy())
    assert_close(results[0], results[1], case["tolerance"])
    assert_close(results[0], np.ones((len(x), w.shape[1])) @ q.numpy().T, case["tolerance"])


def test_quantize_passes_the_gradient_straight_through():
    case = CASES["autodiff/roundtrip_on_tracked"]
    x = aq.tensor(array(case["inputs"]["x"]), requires_grad=True)
    y = aq.quantize(x, scheme_of(case)).dequantize()
    assert_close(y.numpy(), x.numpy(), case["tolerance"])
    aq.sum(y).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones(x.shape))


def test_a_linear_layer_with_a_quantized_weight_is_near_the_float_one():
    case = CASES["nn/linear_128_256"]
    x = aq.Generator(1).normal((1, 128))
    dense = aq.nn.Linear(128, 256, bias=False, rng=aq.Generator(0))
    packed = aq.nn.Linear(128, 256, bias=False, rng=aq.Generator(0), weight_scheme=scheme_of(case))
    difference = packed(aq.tensor(x)).numpy() - dense(aq.tensor(x)).numpy()
    assert 0 < np.abs(difference).max() < case["tolerance"]["abs"]


@pytest.mark.parametrize("module", LATER.values())
def test_what_cases_wait_for_is_not_offered_yet(module):
    assert not hasattr(aq.nn, module), f"aq.nn.{module} is there: write its case"
