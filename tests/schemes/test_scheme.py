"""QuantScheme as a dtype: equality, canonical forms, names, blocks and refusals."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from autoq.errors import SchemeError, ShapeError
from autoq.schemes import CATALOG, ELEMENTS, SCALES, QuantScheme, register_scheme, scheme

# Name, element, block, scale, tensor scale, rule, bits a value.
NAMED = [
    ("mxfp8", "e4m3", (32,), "ue8m0", False, "round_up", 8.25),
    ("mxfp8_e4m3", "e4m3", (32,), "ue8m0", False, "round_up", 8.25),
    ("mxfp8_e5m2", "e5m2", (32,), "ue8m0", False, "round_up", 8.25),
    ("mxfp6_e3m2", "e3m2", (32,), "ue8m0", False, "round_up", 6.25),
    ("mxfp6_e2m3", "e2m3", (32,), "ue8m0", False, "round_up", 6.25),
    ("mxfp4", "e2m1", (32,), "ue8m0", False, "round_up", 4.25),
    ("mxint8", "mxint8", (32,), "ue8m0", False, "round_up", 8.25),
    ("mxfp8_2d", "e4m3", (32, 32), "ue8m0", False, "round_up", 8 + 8 / 1024),
    ("nvfp4", "e2m1", (16,), "ue4m3", True, "te", 4.5),
    ("nvfp4_2d", "e2m1", (16, 16), "ue4m3", True, "te", 4 + 8 / 256),
    ("nvfp4_single", "e2m1", (16,), "ue4m3", False, "nearest", 4.5),
    ("int8", "int8", (32,), "f32", False, "round_up", 9),
    ("int4", "int4", (32,), "f32", False, "round_up", 5),
    ("int2", "int2", (32,), "f32", False, "round_up", 3),
    ("int8_full", "int8_full", (32,), "f32", False, "round_up", 9),
    ("int4_full", "int4_full", (32,), "f32", False, "round_up", 5),
    ("int2_full", "int2_full", (32,), "f32", False, "round_up", 3),
    ("fp8_e4m3", "e4m3", None, "f32", False, "round_up", 8),
    ("fp8_e5m2", "e5m2", None, "f32", False, "round_up", 8),
    ("fp8_block", "e4m3", (128,), "f32", False, "round_up", 8.25),
    ("fp8_block_2d", "e4m3", (128, 128), "f32", False, "round_up", 8 + 32 / 128**2),
]
SIMPLE = QuantScheme("int8")
CHANGES = [
    {"element": "int4"},
    {"block": (64,)},
    {"block": None},
    {"scale": "f16"},
    {"scale_rule": "nearest"},
    {"rounding": "stochastic"},
    {"rounding": "stochastic8"},
    {"nonfinite": "saturate"},
    {"nonfinite": "raise"},
    {"calibration": "abs_mean"},
    {"scale": "f16", "tensor_scale": True},
]


@pytest.mark.parametrize(("name", "element", "block", "scale", "two_level", "rule", "bits"), NAMED)
def test_named_schemes(name, element, block, scale, two_level, rule, bits):
    form = scheme(name)
    assert (form.element, form.block, form.scale, form.tensor_scale, form.scale_rule) == (
        element,
        block,
        scale,
        two_level,
        rule,
    )
    assert (form.rounding, form.nonfinite, form.calibration) == ("nearest", "propagate", "abs_max")
    assert form.bits_per_value == bits
    assert form.element_bits == ELEMENTS[element].bits
    assert scheme(form.name) == form
    assert form.default_choices() is form


def test_no_named_scheme_is_missing_from_the_table():
    assert [name for name, *_ in NAMED] == list(CATALOG)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_field_takes_part_in_equality_and_hash(change):
    other = SIMPLE.replace(**change)
    assert other != SIMPLE
    assert hash(other) != hash(SIMPLE)
    assert other == SIMPLE.replace(**change)
    assert hash(other) == hash(SIMPLE.replace(**change))
    assert len({SIMPLE, other, SIMPLE.replace(**change)}) == 2


def test_leading_ones_of_a_block_are_dropped():
    assert QuantScheme("int8", (1, 1, 32)) == QuantScheme("int8", (32,)) == QuantScheme("int8", 32)
    assert QuantScheme("int8", (1, 1)).block == (1,)
    assert QuantScheme("int8", (32, 1)) != QuantScheme("int8", (32,))
    assert QuantScheme("int8", np.array([16, 16])).block == (16, 16)


def test_records_stand_for_their_names():
    assert QuantScheme(ELEMENTS["int8"], scale=SCALES["f16"]) == QuantScheme("int8", scale="f16")


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype("float32"),
        np.dtype("int8"),
        np.dtype(ml_dtypes.bfloat16),
        np.float32,
        "int8",
        "mxfp8",
        None,
        8,
    ],
)
@pytest.mark.parametrize("name", ["int8", "mxfp8"])
def test_a_scheme_never_equals_another_kind_of_dtype(name, dtype):
    assert (scheme(name) == dtype) is False
    assert (dtype == scheme(name)) is False
    assert (scheme(name) != dtype) is True
    assert (dtype != scheme(name)) is True
    assert {scheme(name): 1}.get(dtype) is None


def test_schemes_survive_pickling_copying_and_other_processes():
    for form in [*CATALOG.values(), *(SIMPLE.replace(**change) for change in CHANGES)]:
        assert pickle.loads(pickle.dumps(form)) == form
        assert hash(pickle.loads(pickle.dumps(form))) == hash(form)
        assert copy.deepcopy(form) == copy.copy(form) == form
        assert eval(repr(form)) == form
    code = (
        "import pickle, sys; from autoq.schemes import scheme;"
        "print({scheme('nvfp4'): 'found'}[pickle.loads(bytes.fromhex(sys.argv[1]))])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code, pickle.dumps(scheme("nvfp4")).hex()],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "found"


def test_a_scheme_is_immutable():
    with pytest.raises(SchemeError, match="replace"):
        SIMPLE.block = (64,)
    with pytest.raises(SchemeError):
        del SIMPLE.block
    with pytest.raises((SchemeError, AttributeError)):
        SIMPLE.something = 1
    assert SIMPLE.block == (32,)


def test_canonical_drops_the_axis_and_the_choices_only():
    q = scheme("mxfp8")
    for same in (
        q.replace(block=(32, 1)),
        q.replace(block=(32, 1, 1)),
        q.replace(scale_rule="floor"),
        q.replace(rounding="stochastic"),
        q.replace(nonfinite="raise"),
        q.replace(calibration="abs_mean"),
    ):
        assert same.canonical() == q.canonical() == q
    for other in (
        q.replace(block=(16,)),
        q.replace(element="e5m2"),
        q.replace(block=(32, 32)),
        QuantScheme("e4m3", scale="f32"),
        q.replace(block=None),
    ):
        assert other.canonical() != q.canonical()
    assert scheme("nvfp4").replace(scale_rule="torchao", block=(16, 1)).canonical() == scheme("nvfp4")
    assert scheme("nvfp4_single").replace(scale_rule="round_up").canonical() == scheme("nvfp4_single")


@pytest.mark.parametrize(
    ("block", "rank", "expected"),
    [
        ((32,), None, (32,)),
        ((32, 1), None, (32,)),
        ((32, 1, 1), None, (32,)),
        ((1,), None, (1,)),
        (None, None, None),
        ((16, 16), None, (16, 16)),
        ((16, 1, 16), None, (16, 1, 16)),
        ((16, 16), 2, (16, 16)),
        ((16, 16), 1, (256,)),
        ((2, 4, 8), 2, (64,)),
        ((8, 1), 1, (8,)),
    ],
)
def test_innermost_runs_along_the_last_axis(block, rank, expected):
    form = QuantScheme("int8", block, rounding="stochastic", scale_rule="nearest")
    assert form.innermost(rank) == form.replace(block=expected)


@pytest.mark.parametrize(
    ("block", "rank", "expected"),
    [
        ((32,), 1, (32,)),
        ((32,), 3, (1, 1, 32)),
        ((16, 16), 2, (16, 16)),
        ((16, 16), 4, (1, 1, 16, 16)),
        ((32, 1), 3, (1, 32, 1)),
        (None, 3, (0, 0, 0)),
        (None, 0, ()),
    ],
)
def test_extents_align_with_the_trailing_axes(block, rank, expected):
    assert QuantScheme("int8", block).extents(rank) == expected


@pytest.mark.parametrize(("block", "rank"), [((32,), 0), ((16, 16), 1), ((32, 1), 1)])
def test_a_block_of_more_axes_than_the_tensor_is_an_error(block, rank):
    with pytest.raises(ShapeError) as error:
        QuantScheme("int8", block).extents(rank)
    assert all([error.value.given, error.value.allowed, error.value.remedy])


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (QuantScheme("e4m3", scale="ue8m0"), "mxfp8"),
        (QuantScheme("e4m3", scale="ue8m0", scale_rule="floor"), "mxfp8(scale_rule='floor')"),
        (QuantScheme("int8", (64,), "f16"), "int8[64, f16]"),
        (
            QuantScheme("int8", (16, 16), "bf16", rounding="stochastic"),
            "int8[16x16, bf16](rounding='stochastic')",
        ),
        (QuantScheme("e2m3", None), "e2m3[tensor, f32]"),
        (QuantScheme("e4m3", (16,), "ue4m3", tensor_scale=True), "e4m3[16, ue4m3, f32]"),
        (QuantScheme("e2m1", (16,), "ue4m3", tensor_scale=True), "nvfp4(scale_rule='round_up')"),
    ],
)
def test_names_say_what_differs_from_the_catalog(form, name):
    assert form.name == name


REFUSED = [
    ({"element": "e4m4"}, "e4m3"),
    ({"scale": "ue8"}, "ue8m0"),
    ({"block": (0,)}, "at least 1"),
    ({"block": ()}, "at least 1"),
    ({"block": (2.5,)}, "at least 1"),
    ({"block": "32"}, "at least 1"),
    ({"scale_rule": "floor"}, "round_up | nearest"),
    ({"scale": "ue8m0", "scale_rule": "nearest"}, "even"),
    ({"tensor_scale": True}, "ue4m3 or f16"),
    ({"scale": "f16", "tensor_scale": True, "block": None}, "a block"),
    ({"scale": "f16", "tensor_scale": True, "calibration": "abs_mean"}, "abs_max"),
    ({"scale": "ue4m3", "tensor_scale": True, "scale_rule": "te"}, "round_up"),
    ({"scale": "ue4m3", "scale_rule": "te", "element": "e2m1"}, "nearest"),
    ({"scale": "f16", "tensor_scale": "f32"}, "True"),
    ({"rounding": "up"}, "stochastic8"),
    ({"nonfinite": "ignore"}, "saturate"),
    ({"calibration": "mse"}, "abs_mean"),
]


@pytest.mark.parametrize(("fields", "allowed"), REFUSED, ids=str)
def test_fields_that_do_not_go_together_are_refused_in_three_parts(fields, allowed):
    with pytest.raises(SchemeError) as error:
        QuantScheme(**{"element": "int8", **fields})
    assert all([error.value.given, error.value.remedy])
    assert allowed in error.value.allowed


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(SchemeError, match="Did you mean 'mxfp8'"):
        scheme("mxpf8")
    with pytest.raises(SchemeError, match="no field 'blocks'"):
        SIMPLE.replace(blocks=(32,))


def test_a_registered_scheme_is_found_and_prints_its_name(monkeypatch):
    monkeypatch.setattr("autoq.schemes.catalog.CATALOG", {})
    monkeypatch.setattr("autoq.schemes.catalog._NAMES", {})
    mine = register_scheme("mine", QuantScheme("int4", (128,), "bf16"))
    assert scheme("mine") is mine
    assert mine.name == "mine"
    assert scheme(mine) is mine
    with pytest.raises(SchemeError, match="already exists"):
        register_scheme("mine", QuantScheme("int4"))


def test_a_scheme_is_found_in_a_dict_in_constant_time_without_hashing_its_fields():
    class Counted(str):
        hashes = 0
        __slots__ = ()

        def __hash__(self):
            Counted.hashes += 1
            return str.__hash__(self)

    form = QuantScheme(Counted("int8"))
    before = Counted.hashes
    for _ in range(5):
        hash(form)
    assert Counted.hashes == before
