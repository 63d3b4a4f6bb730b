"""The rules of the codecs broken in turn, in the source of the kernels, which are interpreted for it.

Run in a process with ``NUMBA_DISABLE_JIT=1``. Every mutant is checked in a copy of that process which has
built no codec yet, so that each is built from the changed source.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from types import FunctionType

from autoq.schemes import ELEMENTS
from tests.mutation.elements import DECODING, POLICIES, ROUNDING
from tests.mutation.mutant import Mutant
from tests.mutation.scales import RULES, SCALES
from tests.mutation.source import with_code, with_text
from tests.mutation.suite import forked
from tests.mutation.wanted import Wanted
from tests.schemes import interpreted_matrix
from tests.schemes.conftest import assert_same, edges

CHANGES = {
    "codec: rounding": ROUNDING,
    "codec: policy": POLICIES,
    "codec: scale": SCALES,
    "codec: block rule": RULES,
    "codec: decoding": DECODING,
}
EQUIVALENT = {
    (
        "passes.measure_mean",
        "infinity averaged",
    ): "a mean of magnitudes that aren't all finite has the bits of infinity or NaN itself",
    (
        "table.encoder",
        "search off by one",
    ): "a value on the upper neighbour has distance 0 from it, or fraction 1 (below zero 0): it stays there",
    (
        "rules.te_rule",
        "overflow of the scale",
    ): "p is finite, so the product is no NaN; encode clips it",
}


def mutants() -> Iterator[Mutant]:
    """Each change; checked by the interpreted matrix, over the schemes that have the rule."""
    for name, changes in CHANGES.items():
        for function, change, old, new, wanted in changes:
            subject = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
            applied = partial(broken, function, old, new)
            why = EQUIVALENT.get((subject, change), "")
            check = partial(forked, partial(matrix, wanted))
            yield Mutant(name, subject, change, [("interpreted matrix", check)], applied, why)


def broken(function: FunctionType, old: str, new: str) -> AbstractContextManager[None]:
    """The function with the text replaced."""
    return with_code(function, with_text(function, old, new))


def matrix(wanted: Wanted) -> None:
    """The bytes of every scheme of the matrix that has the rule, against the oracle's."""
    for index, scheme in enumerate(interpreted_matrix.SCHEMES):
        if wanted(scheme):
            interpreted_matrix.test_storage_writes_the_bytes_of_the_oracle(index, edges, assert_same)
            interpreted_matrix.test_storage_reads_any_bytes_as_the_oracle(index, edges)
    for name in ELEMENTS:
        interpreted_matrix.test_a_value_between_two_codes_takes_the_even_one(name)
    for scale_name in interpreted_matrix.MANTISSA:
        interpreted_matrix.test_a_given_scale_between_two_stored_ones_takes_the_even_one(
            scale_name, assert_same
        )
