"""What the strategies draw, how it shrinks, and how it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

import autoq as aq
from autoq.errors import ArgumentError
from autoq.tape.op import REGISTRY
from autoq.testing import strategies as sts
from tests.examples import scaled

calm = settings(
    max_examples=scaled(40), deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
search = settings(max_examples=2000, deadline=None, database=None)


@calm
@given(sts.shapes(min_dims=2, max_dims=st.integers(2, 3), min_side=0, max_side=4, last=st.just(32)))
def test_shapes_keep_their_bounds(shape):
    assert 2 <= len(shape) <= 3
    assert all(0 <= n <= 4 for n in shape[:-1])
    assert shape[-1] == 32


@calm
@given(sts.arrays((3, 4), magnitude=st.sampled_from([1.0, 100.0])))
def test_arrays_are_finite_and_bounded_by_default(x):
    assert x.dtype == np.float32
    assert np.abs(x).max() <= 100


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"nonfinite": True}, lambda x: np.isnan(x).any()),
        ({"nonfinite": True}, lambda x: np.isinf(x).any()),
        ({"outliers": True}, lambda x: np.abs(x).max() > 50),
        ({"subnormals": True}, lambda x: ((x != 0) & (np.abs(x) < 1e-38)).any()),
        ({"ties": True}, lambda x: np.unique(x[x != 0]).size < np.count_nonzero(x)),
    ],
)
def test_arrays_hold_what_was_asked_for(options, wanted):
    found = find(sts.arrays((4,), **options), wanted, settings=search)
    assert np.count_nonzero(found) <= 2


@calm
@given(sts.schemes(("mxfp8", "int4"), block=st.sampled_from([None, (16,)])))
def test_schemes_take_blocks(scheme):
    assert scheme.element in ("e4m3", "int4")
    assert scheme.block in ((16,), aq.mxfp8.block, aq.int4.block)


@calm
@given(sts.tensors((2, 32), st.one_of(st.just(aq.float16), sts.schemes("mxfp8")), requires_grad=st.booleans(),
                   inhibit=True))  # fmt: skip
def test_tensors_have_the_dtype_and_flag(x):
    assert x.dtype in (aq.float16, aq.mxfp8)
    assert x.propagation is aq.Propagation.INHIBIT


@pytest.mark.parametrize("layout", ["contiguous", "permuted", "sliced", "tail"])
def test_packed_tensors_come_in_every_layout(layout):
    @calm
    @given(sts.qtensors("int4", layout=layout))
    def check(q):
        assert q.scheme == aq.int4
        assert q.layout.is_identity == (layout != "permuted")
        if layout == "tail":
            assert q.shape[-1] % 32
        np.testing.assert_array_equal(q.copy().dequantize(), q.dequantize())

    check()


def test_calls_of_an_op_print_as_code():
    call = find(sts.op_calls("matmul"), lambda call: True, settings=search)
    assert repr(call).startswith("<matmul(x0, x1) where x0 = np.array(")
    assert isinstance(call(*call.inputs), aq.Tensor)


@calm
@given(sts.op_calls(st.sampled_from(["log", "clip", "concat", "layer_norm"])))
def test_calls_of_an_op_run_and_stay_in_its_domain(call):
    assert np.isfinite(call(*call.inputs).numpy()).all()
    assert len(call.inputs) == len(call.moving)


def test_an_op_without_samples_cannot_be_called():
    with pytest.raises(ArgumentError, match="no samples"):
        find(sts.op_calls("identity"), lambda call: True)


def test_an_op_with_nothing_to_differentiate_by_cannot_be_called():
    with pytest.raises(ArgumentError, match="no sample with a float array"):
        find(sts.op_calls(REGISTRY["isnan"]), lambda call: True)


@calm
@given(sts.programs())
def test_programs_run_as_they_print(program):
    inputs = [aq.tensor(x, dtype=aq.float32) for x in program.inputs]
    results = program(*inputs)
    scope = {"aq": aq}
    exec(str(program), scope)
    printed = scope["program"](*inputs)
    printed = printed if isinstance(printed, tuple) else (printed,)
    for a, b in zip(results, printed, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert np.isfinite(a.numpy()).all()


def test_programs_shrink_to_the_lines_that_matter():
    program = find(sts.programs(schemes="mxfp4"), lambda p: "softmax" in str(p), settings=search)
    assert len(program.steps) <= 4


def test_nothing_but_the_strategies_names_hypothesis():
    package = Path(aq.__file__).parent
    named = {
        p for p in package.rglob("*.py") if re.search(r"^\s*(import|from) hypothesis", p.read_text(), re.M)
    }
    assert {p.parent for p in named} == {package / "testing" / "strategies"}


def test_the_package_needs_no_hypothesis_until_strategies_are_named():
    code = (
        "import sys, autoq.testing; assert 'hypothesis' not in sys.modules; import autoq.testing.strategies"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
