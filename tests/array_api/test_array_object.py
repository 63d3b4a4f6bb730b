"""The array object of the standard: operators, in place and reflected, attributes, conversions, DLPack."""

from __future__ import annotations

import operator

import array_api_strict as strict
import numpy as np
import pytest

import autoq as aq
from tests.array_api.cases import FLOATS, INTEGERS, NUMERIC, array, compare, data

ARITHMETIC = {
    "__add__": operator.add,
    "__sub__": operator.sub,
    "__mul__": operator.mul,
    "__truediv__": operator.truediv,
    "__floordiv__": operator.floordiv,
    "__mod__": operator.mod,
    "__pow__": operator.pow,
}
BITWISE = {
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__lshift__": operator.lshift,
    "__rshift__": operator.rshift,
}
COMPARISONS = {
    "__eq__": operator.eq,
    "__ne__": operator.ne,
    "__lt__": operator.lt,
    "__le__": operator.le,
    "__gt__": operator.gt,
    "__ge__": operator.ge,
}
IN_PLACE = {
    **{"__iadd__": operator.iadd, "__isub__": operator.isub, "__imul__": operator.imul},
    **{"__itruediv__": operator.itruediv, "__ifloordiv__": operator.ifloordiv, "__imod__": operator.imod},
    **{"__ipow__": operator.ipow, "__iand__": operator.iand, "__ior__": operator.ior},
    **{"__ixor__": operator.ixor, "__ilshift__": operator.ilshift, "__irshift__": operator.irshift},
}
_REFLECTED = (
    "__radd__ __rsub__ __rmul__ __rtruediv__ __rfloordiv__ __rmod__ __rpow__ __rand__ __ror__ __rxor__ "
    "__rlshift__ __rrshift__"
)
REFLECTED = _REFLECTED.split()


def dtypes_of(name: str) -> tuple[str, ...]:
    if "truediv" in name:
        return FLOATS
    bits = ("and__", "or__", "xor__", "shift__")
    return INTEGERS if name.endswith(bits) else NUMERIC


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The second small and positive: an exponent, a divisor, a number of places."""
    return data(dtype), (np.abs(data(dtype, seed=1)) + 1).astype(dtype) % 4 + np.asarray(1, dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [*ARITHMETIC, *BITWISE, *COMPARISONS])
def test_operator_agrees_with_the_strict_implementation(name):
    operation = {**ARITHMETIC, **BITWISE, **COMPARISONS}[name]
    for dtype in dtypes_of(name):
        a, b = operands(dtype)
        found = operation(array(aq, a, dtype), array(aq, b, dtype)), operation(array(aq, a, dtype), 2)
        compare(found, (operation(array(strict, a, dtype), array(strict, b, dtype)),
                        operation(array(strict, a, dtype), 2)))  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", REFLECTED)
def test_reflected_operator_agrees_with_the_strict_implementation(name):
    for dtype in dtypes_of(name):
        _, b = operands(dtype)
        compare(getattr(array(aq, b, dtype), name)(3), getattr(array(strict, b, dtype), name)(3))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operator_changes_the_tensor_itself_and_keeps_its_dtype(name):
    for dtype in dtypes_of(name):
        a, b = operands(dtype)
        x, y = array(aq, a, dtype), array(strict, a, dtype)
        before = x
        x, y = IN_PLACE[name](x, array(aq, b, dtype)), IN_PLACE[name](y, array(strict, b, dtype))
        assert x is before
        compare(x, y)
        x, y = IN_PLACE[name](x, 2), IN_PLACE[name](y, 2)
        compare(x, y)


@pytest.mark.parametrize("name", ["__and__", "__or__", "__xor__", "__iand__", "__ior__", "__ixor__"])
def test_bitwise_operators_take_bools(name):
    operation = {**BITWISE, **IN_PLACE}[name]
    for b in ([True, False], [False, False]):
        compare(operation(array(aq, [True, False], "bool"), array(aq, b, "bool")),
                operation(array(strict, [True, False], "bool"), array(strict, b, "bool")))  # fmt: skip


def test_matrix_products():
    # __matmul__, __rmatmul__ and __imatmul__
    a, b = data("float64", (2, 2)), data("float64", (2, 2), 1)
    x = aq.asarray(a.copy())
    np.testing.assert_allclose((x @ aq.asarray(b)).numpy(), a @ b)
    np.testing.assert_allclose(x.__rmatmul__(aq.asarray(b)).numpy(), b @ a)
    before = x
    x @= aq.asarray(b)
    assert x is before
    np.testing.assert_allclose(x.numpy(), a @ b)
    integers = data("int16", (2, 3))
    compare(array(aq, integers, "int16") @ array(aq, integers.T, "int16"),
            array(strict, integers, "int16") @ array(strict, integers.T, "int16"))  # fmt: skip


@pytest.mark.parametrize("dtype", NUMERIC)
def test_unary_operators(dtype):
    # __abs__, __neg__, __pos__, __invert__
    x, y = array(aq, data(dtype), dtype), array(strict, data(dtype), dtype)
    compare((abs(x), -x, +x), (abs(y), -y, +y))
    if dtype in INTEGERS:
        compare(~x, ~y)
    compare(~array(aq, [True, False], "bool"), ~array(strict, [True, False], "bool"))


@pytest.mark.parametrize("dtype", ["bool", *NUMERIC])
def test_attributes(dtype):
    # dtype, device, mT, ndim, shape, size, T
    x, y = array(aq, data(dtype, (2, 3)), dtype), array(strict, data(dtype, (2, 3)), dtype)
    assert (x.shape, x.ndim, x.size, x.dtype.name) == (y.shape, y.ndim, y.size, dtype)
    assert x.device in aq.__array_namespace_info__().devices()
    compare((x.T, x.mT), (y.T, y.mT))


def test_scalars_of_python():
    # __bool__, __int__, __float__, __complex__, __index__
    assert bool(aq.asarray(True)) is True
    assert bool(aq.asarray(0.0)) is False
    assert int(aq.asarray(-3.7)) == -3
    assert float(aq.asarray(2)) == 2.0
    assert complex(aq.asarray(1.5)) == 1.5 + 0j
    assert [10, 20, 30][aq.asarray(2)] == 30
    with pytest.raises(TypeError, match="as an index"):
        operator.index(aq.asarray(1.0))
    for convert in (bool, int, float, complex):
        with pytest.raises(aq.errors.ShapeError):
            convert(aq.asarray([1, 2]))


INDICES = [
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(None, None, -1),
    (1, 2),
    (0, ...),
    (..., None, 1),
    (slice(0, 2), 1),
]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32"])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_getitem_and_setitem(dtype, index):
    # __getitem__, __setitem__
    values = data(dtype, (3, 4))
    x, y = array(aq, values, dtype), array(strict, values, dtype)
    if isinstance(index, tuple) or y.ndim == 1:
        compare(x[index], y[index])
    else:
        compare(x[index, ...], y[index, ...])
    x[index], values[index] = True, True
    np.testing.assert_array_equal(x.numpy(), values)


def test_masks_and_integer_arrays_as_indices():
    values = data("float64", (3, 4))
    x = aq.asarray(values.copy())
    np.testing.assert_array_equal(x[x > 0].numpy(), values[values > 0])
    places = aq.asarray([2, 0])
    np.testing.assert_array_equal(x[places, aq.asarray([1, 3])].numpy(), values[[2, 0], [1, 3]])
    x[x > 0] = 0.0
    np.testing.assert_array_equal(x.numpy(), np.where(values > 0, 0, values))


def test_dlpack_hands_over_the_same_memory(device):
    # __dlpack__, __dlpack_device__
    x = aq.asarray(data("float32"))
    assert x.__dlpack_device__() == ((1, 0) if device == "cpu" else (2, 0))
    assert aq.from_dlpack(x).shares_memory(x)
    assert not aq.from_dlpack(x, copy=True).shares_memory(x)
    assert aq.from_dlpack(x, copy=False, device=device).shares_memory(x)
    if device != "cpu":
        with pytest.raises(aq.errors.ArgumentError, match="cuda, to cpu"):
            aq.from_dlpack(x, copy=False, device="cpu")


def test_what_is_handed_over_stays_on_its_device_whatever_the_default():
    a = np.arange(3)
    x = aq.from_dlpack(a)
    assert x.device == "cpu"
    assert np.shares_memory(x.numpy(), a)
    assert aq.from_dlpack(a, device=aq.ones(1).device).device == aq.ones(1).device


def test_dlpack_hands_numpy_the_memory_of_the_cpu():
    x = aq.asarray(data("float32"), device="cpu")
    assert np.shares_memory(np.from_dlpack(x), x.numpy())


def test_dlpack_refuses_what_it_cannot_hand_over():
    with pytest.raises(aq.errors.GradientError, match="detach"):
        np.from_dlpack(aq.tensor([1.0], requires_grad=True))
    with pytest.raises(aq.errors.DTypeError, match="bfloat16"):
        np.from_dlpack(aq.tensor([1.0], dtype=aq.bfloat16))
    with pytest.raises(aq.errors.ArgumentError):
        aq.from_dlpack([1.0])
    with pytest.raises(aq.errors.DTypeError):
        aq.from_dlpack(np.ones(2, complex))


def test_to_device():
    # to_device
    x = aq.ones(3)
    assert x.to_device("cpu").device == "cpu"
    with pytest.raises(aq.errors.ArgumentError):
        x.to_device("cpu", stream=1)
    with pytest.raises(aq.errors.DeviceError):
        x.to_device("mars")


def test_dense_tensors_answer_with_the_package():
    # __array_namespace__
    for x in (aq.ones(2), aq.tensor([1]), aq.tensor([True]), aq.Parameter([1.0])):
        assert x.__array_namespace__() is aq
        assert x.__array_namespace__(api_version="2023.12") is aq
    assert aq.__array_api_version__ == "2024.12"
    assert aq.ones(2).__array_namespace__(api_version=aq.__array_api_version__) is aq
    with pytest.raises(ValueError, match="2019.01"):
        aq.ones(2).__array_namespace__(api_version="2019.01")


def test_packed_tensors_do_not_answer():
    packed = aq.ones((2, 32)).quantize(aq.mxfp8)
    assert not hasattr(packed, "__array_namespace__")
    assert not hasattr(packed, "__dlpack__")
    assert not hasattr(aq.Parameter(packed), "__array_namespace__")
