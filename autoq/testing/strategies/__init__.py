"""Hypothesis strategies for arrays, schemes, tensors, calls of ops, and whole programs.

Every argument is a value or a strategy of values. What is drawn shrinks to few, small, round numbers and
prints as code. Hypothesis is an extra of its own (``pip install hypothesis``): only this package needs it.

Example:
    >>> from hypothesis import given, settings
    >>> from autoq.testing import check_grads, strategies as sts
    >>> @settings(max_examples=5, deadline=None, database=None, derandomize=True)
    ... @given(sts.programs(schemes=sts.schemes("mxfp4")))
    ... def test_programs_differentiate_through_rounding(program):
    ...     check_grads(program, *program.inputs, order=1, through_rounding=True, allow_vacuous=True)
    >>> test_programs_differentiate_through_rounding()
"""

from .calls import OpCall as OpCall
from .calls import op_calls as op_calls
from .numbers import arrays as arrays
from .numbers import shapes as shapes
from .packed import qtensors as qtensors
from .packed import schemes as schemes
from .packed import tensors as tensors
from .programs import Program as Program
from .programs import programs as programs
