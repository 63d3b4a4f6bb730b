"""The Python array API standard, version 2024.12, as names; and the reader of our list of skips."""

from __future__ import annotations

from pathlib import Path

SKIPS = Path(__file__).parent.parent / "array_api_skips.txt"

FUNCTIONS: dict[str, str] = {
    "creation": (
        "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones "
        "ones_like tril triu zeros zeros_like"
    ),
    "data_type": "astype can_cast finfo iinfo isdtype result_type",
    "operators_and_elementwise": (
        "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift "
        "bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp "
        "expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less "
        "less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor "
        "maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder "
        "round sign signbit sin sinh sqrt square subtract tan tanh trunc"
    ),
    "indexing": "take take_along_axis",
    "inspection": "__array_namespace_info__",
    "linear_algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": (
        "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape "
        "roll squeeze stack tile unstack"
    ),
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "set": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistical": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utility": "all any diff",
}
_DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
_CONSTANTS = "e inf nan newaxis pi"
_ATTRIBUTES = "dtype device mT ndim shape size T"
_METHODS = (
    "__abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ "
    "__eq__ __float__ __floordiv__ __ge__ __getitem__ __gt__ __index__ __int__ __invert__ __le__ "
    "__lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ "
    "__setitem__ __sub__ __truediv__ __xor__ to_device"
)
_IN_PLACE = (
    "__iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __ipow__ __imod__ __imatmul__ __iand__ "
    "__ior__ __ixor__ __ilshift__ __irshift__"
)
DTYPES, CONSTANTS, ATTRIBUTES = _DTYPES.split(), _CONSTANTS.split(), _ATTRIBUTES.split()
METHODS, IN_PLACE = _METHODS.split(), _IN_PLACE.split()
REFLECTED = [name.replace("__i", "__r", 1) for name in IN_PLACE]
ALL_FUNCTIONS = [name for names in FUNCTIONS.values() for name in names.split()]
ALL_METHODS = METHODS + IN_PLACE + REFLECTED


def skips() -> dict[str, str]:
    """Test ids of the list, each with the comment above it."""
    found: dict[str, str] = {}
    reason, after_id = "", False
    for line in SKIPS.read_text().splitlines():
        if line.startswith("#"):
            reason = f"{reason} {line[1:].strip()}".strip() if not after_id else line[1:].strip()
            after_id = False
        elif line.strip():
            found[line.strip()] = reason
            after_id = True
        else:
            reason, after_id = "", False
    return found


def skipped_names() -> set[str]:
    """Names of the standard that the list says are not offered: ids of the suite's test of names."""
    ids = [i for i in skips() if "test_has_names.py::test_has_names[" in i]
    return {i.rpartition("[")[2].rstrip("]").partition("-")[2] for i in ids}
