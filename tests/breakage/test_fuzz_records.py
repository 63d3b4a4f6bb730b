"""Random calls of every record with a public function: its samples, operands and arguments exchanged."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.errors import AutoqError
from autoq.tape.op import REGISTRY
from tests.breakage.arguments import ABSURD, FLOATS, NUMBERS, SCHEMES, Arguments
from tests.breakage.test_fuzz import SEEDS, assert_gradients_fit, assert_three_parts

CALLS = 500
OTHER_PARAMETERS = {"dropout", "einsum", "scatter_add"}  # than their records have
FUNCTIONS = {n: getattr(aq, n, None) for n, op in REGISTRY.items() if op.sample and n not in OTHER_PARAMETERS}
NAMES = sorted(n for n, f in FUNCTIONS.items() if callable(f))
pytestmark = pytest.mark.filterwarnings("ignore")


def operand(a: Arguments, x: Any) -> Any:
    """A sample's operand as it is, in another dtype or scheme, with other values, or another operand."""
    if not isinstance(x, np.ndarray | np.generic):
        return a.operand() if a.chance(0.05) else x
    x, kind = np.asarray(x), a.rng.random()
    if kind < 0.1:
        return a.operand(x.shape)
    if kind < 0.15:
        return a.operand()
    if x.dtype.kind != "f" or kind < 0.3:
        return x
    values = a.values(x.shape) if a.chance(0.1) else x
    t = aq.tensor(np.asarray(values, a.one(FLOATS)), requires_grad=a.chance(0.7))
    if a.chance(0.5):
        try:
            return t.quantize(a.one(SCHEMES))
        except AutoqError:  # blocks of more axes than x has, or NaN under nonfinite="raise"
            return t
    return a.view(t) if a.chance(0.1) else t


def takes_any_keyword(function: Any) -> bool:
    """Whether it refuses keywords itself; those of the others Python refuses before they are called."""
    return bool(function.__code__.co_flags & inspect.CO_VARKEYWORDS)


def arguments_of(a: Arguments, name: str, static: dict[str, Any]) -> dict[str, Any]:
    """A sample's static arguments; now and then one is exchanged, left out or unheard of."""
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    made = {n: value for n, value in static.items() if n in parameters}
    for n in list(made):
        if a.chance(0.06):
            made[n] = a.one((*ABSURD, *NUMBERS, (1, 2), (-1, 0), [3], 2, -1, np.array([1, 0])))
        elif a.chance(0.02) and takes_any_keyword(FUNCTIONS[name]):
            del made[n]
    if a.chance(0.01) and takes_any_keyword(FUNCTIONS[name]):
        made["unheard_of"] = 1
    return made


def random_call(a: Arguments) -> tuple[str, list[Any], dict[str, Any]]:
    """A name, operands and keyword arguments."""
    name = a.one(NAMES)
    operands, static = a.one(REGISTRY[name].sample(np.random.default_rng(int(a.rng.integers(1000)))))
    return name, [operand(a, x) for x in operands], arguments_of(a, name, static) | a.out_dtype()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_gives_a_tensor_or_an_error_of_ours(seed):
    a, refused = Arguments(10_000 + seed), 0
    for _ in range(CALLS):
        name, operands, keywords = random_call(a)
        try:
            given = [operands] if REGISTRY[name].variadic else operands
            result = FUNCTIONS[name](*given, **keywords)
        except AutoqError as error:
            assert_three_parts(name, error)
            refused += 1
            continue
        assert isinstance(result, aq.Tensor), name
        assert repr(result), name
        if result.requires_grad:
            assert_gradients_fit(name, [x for x in operands if isinstance(x, aq.Tensor)], result)
    assert CALLS * 0.05 < refused < CALLS * 0.6
