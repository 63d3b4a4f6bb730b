"""Element-wise maps by tiles give the bits of decoding, computing and encoding whole tensors."""

from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest

from autoq.errors import NonFiniteError, ShapeError
from autoq.schemes import CATALOG
from autoq.storage import QTensor, map_tiles, tiles
from tests.storage.tensors import SCHEMES, check_invariants, same_floats, values


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 512 values, so that small tensors have many."""
    monkeypatch.setattr(tiles, "TILE", 512)


def unfused(function: Any, operands: list[Any], out: Any) -> Any:
    dense = [operand.dequantize() if isinstance(operand, QTensor) else operand for operand in operands]
    result = function(*dense)
    return QTensor.encode(np.ascontiguousarray(result), out.innermost(result.ndim))


def check(function: Any, operands: list[Any], out: Any, **options: Any) -> QTensor:
    result = map_tiles(function, operands, out, **options)
    check_invariants(result)
    assert result.same_bits(unfused(function, operands, out))
    return result


OUTPUTS = ["mxfp8", "mxfp6_e3m2", "nvfp4", "fp8_e4m3", "mxfp4_tensor", "int4_tile", "int2_block8", "nvfp4_2d",
           "mxfp8_across", "int4_block3"]  # fmt: skip


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("operand", ["mxfp8", "nvfp4", "fp8_e4m3", "int4_tile", "int4_block3"])
def test_scheme_pairs(operand: str, out: str) -> None:
    for shape in ((11, 96), (2, 5, 75), (1100,)):
        if len(SCHEMES[operand].block or ()) > len(shape):
            continue
        a = QTensor.quantize(values(shape), SCHEMES[operand])
        b = QTensor.quantize(values(shape, 1), SCHEMES["mxfp8"])
        check(np.add, [a, b], SCHEMES[out])


@pytest.mark.parametrize("rows", [9, pytest.param(33, marks=pytest.mark.compiled)])
@pytest.mark.parametrize("out", ["mxfp8", "nvfp4", "fp8_e4m3", "nvfp4_2d"])
def test_operands_that_broadcast_or_are_permuted(out: str, rows: int) -> None:
    scheme, mxfp8 = SCHEMES[out], SCHEMES["mxfp8"]
    a = QTensor.quantize(values((2, rows, 64)), mxfp8)
    others = [
        values((64,), 1),
        values((rows, 1), 1),
        values((2, 1, 1), 1),
        values((64, rows, 2), 1).T,
        QTensor.quantize(values((64,), 1), mxfp8),
        QTensor.quantize(values((rows, 1), 1), mxfp8),
        QTensor.quantize(values((1, rows, 64), 1), mxfp8),
        QTensor.quantize(values((64, rows, 2), 1), mxfp8).T,
        QTensor.quantize(values((2, 64, rows), 1), CATALOG["nvfp4"]).mT,
        QTensor.quantize(values((1, 1, 64), 1), mxfp8).broadcast_to((2, rows, 64)),
        QTensor.quantize(values((4, rows, 64), 1), mxfp8)[::-2],
        np.float64(3.0),
        np.array(0.5, np.float16),
        2,
    ]
    for other in others:
        check(np.multiply, [a, other], scheme)
        check(np.subtract, [other, a], scheme)


def test_dense_results_and_other_functions() -> None:
    a = QTensor.quantize(values((40, 96)), CATALOG["mxfp8"])
    mask = values((40, 96), 1) > 0
    where = map_tiles(np.where, [mask, a, 0.0], np.float32)
    assert same_floats(where, np.where(mask, a.dequantize(), 0.0))
    clip = map_tiles(lambda x, low, high: np.clip(x, low, high), [a, None, 1.0], np.float16)
    assert clip.dtype == np.float16
    assert np.array_equal(clip, np.clip(a.dequantize(), None, 1.0).astype(np.float16))
    constant = map_tiles(lambda x: np.float32(2.0), [a], CATALOG["mxfp8"])
    assert (constant.dequantize() == 2.0).all()
    wide = map_tiles(np.exp, [a], np.float64, compute=np.float64)
    assert np.array_equal(wide, np.exp(a.dequantize().astype(np.float64)))
    repeated = map_tiles(np.negative, [a[0]], CATALOG["mxfp8"], out_shape=(40, 96))
    assert same_floats(repeated.dequantize(), np.broadcast_to(-a[0].dequantize(), (40, 96)))
    integers = np.arange(96)
    assert map_tiles(np.add, [a, integers], np.float32).dtype == np.float32


def test_float64_compute_is_rounded_once() -> None:
    a = QTensor.quantize(values((40, 96)), CATALOG["mxfp8"])
    b = values((40, 96), 1).astype(np.float64) * (1 + 1e-12)
    result = map_tiles(np.multiply, [a, b], CATALOG["mxfp8"], compute=np.float64)
    assert result.same_bits(QTensor.encode(a.dequantize(np.float64) * b, CATALOG["mxfp8"]))


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "fp8_e4m3", "int4_tile"])
@pytest.mark.parametrize("policy", ["propagate", "saturate"])
def test_nonfinite_values(name: str, policy: str) -> None:
    x = values((40, 96))
    x[3, 5], x[30, 90] = np.inf, np.nan
    check(np.add, [x, 1.0], SCHEMES[name].replace(nonfinite=policy))
    x[:] = np.where(np.isfinite(x), 0, x)
    check(np.add, [x, 0.0], SCHEMES[name].replace(nonfinite=policy))


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "fp8_e4m3", "int4_tile"])
def test_raise_names_the_index_in_the_result(name: str) -> None:
    scheme = SCHEMES[name].replace(nonfinite="raise")
    x = values((40, 96))
    assert map_tiles(np.add, [x, 1.0], scheme).dequantize().shape == (40, 96)
    x[30, 90] = np.inf
    with pytest.raises(NonFiniteError, match=r"index \(30, 90\)"):
        map_tiles(np.add, [x, 1.0], scheme)


def test_stochastic_schemes_round_results_to_nearest() -> None:
    a = QTensor.quantize(values((40, 96)), CATALOG["mxfp8"])
    drawn = map_tiles(np.add, [a, a], CATALOG["mxfp8"].replace(rounding="stochastic"))
    assert drawn.scheme.rounding == "stochastic"
    assert np.array_equal(drawn.codes(), map_tiles(np.add, [a, a], CATALOG["mxfp8"]).codes())


@pytest.mark.parametrize("shape", [(40, 96), (4, 8)])
def test_a_float64_operand_beyond_float32_is_infinite_and_warns_of_nothing(shape: tuple[int, ...]) -> None:
    a = QTensor.quantize(values(shape), CATALOG["mxfp8"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(map_tiles(np.add, [a, np.full(shape, 1e300)], np.float32)).all()
        assert np.isinf(map_tiles(np.add, [a, np.full(shape[-1:], 1e300)], np.float32)).all()
        assert np.isinf(map_tiles(np.add, [a, np.float64(-1e300)], np.float32)).all()
        assert np.isinf(map_tiles(np.add, [a, 1e6], np.float16)).all()


def test_mean_calibrated_whole_tensor() -> None:
    x = values((40, 96))
    check(np.add, [x, 1.0], CATALOG["int2"].replace(block=None, calibration="abs_mean"))


def test_empty_results() -> None:
    q = QTensor.quantize(np.zeros((0, 64), np.float32), CATALOG["mxfp8"])
    assert map_tiles(np.add, [q, q], CATALOG["nvfp4"]).shape == (0, 64)
    assert map_tiles(np.add, [q, 1.0], np.float32).shape == (0, 64)


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 64\)"):
        map_tiles(np.add, [np.ones((2, 64)), np.ones((3, 64))], CATALOG["mxfp8"])


@pytest.mark.compiled
@pytest.mark.parametrize("shape", [(4096, 1024), (1 << 22,), (2048, 2048)])
@pytest.mark.parametrize("out", ["mxfp8", "nvfp4", "fp8_e4m3"])
def test_memory_beside_the_result_stays_under_4_mb(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], out: str
) -> None:
    monkeypatch.setattr(tiles, "TILE", 1 << 16)
    codes = np.random.default_rng(0).integers(0, 0x7E7E7E7E, shape[:-1] + (shape[-1] // 4,), np.uint32)
    scales = np.full(shape[:-1] + (shape[-1] // 32,), 120, np.uint8)
    q = QTensor(codes & 0x7E7E7E7E, scales, None, CATALOG["mxfp8"], shape)
    turned = q.T if shape == (2048, 2048) else q
    map_tiles(np.add, [q, turned], SCHEMES[out])
    tracemalloc.start()
    try:
        result = map_tiles(np.add, [q, turned], SCHEMES[out])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - result.nbytes < 4_000_000
