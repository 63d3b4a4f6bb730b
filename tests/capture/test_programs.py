"""Training programs put together at random: captured, they give the bytes of the eager ones in every call."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import autoq as aq

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()

CALLS, ROWS, WIDTH = 18, 4, 32  # more replays than there are halves of pinned memory for


class Program:
    """A model, an optimizer, a schedule, generators, and a step, all chosen by a seed."""

    def __init__(self, seed: int) -> None:
        choose = np.random.default_rng(seed)
        self.scheme = choose.choice(["", "mxfp8", "nvfp4", "mxfp4"])
        self.stochastic, self.clips, self.accumulates, self.inside, self.zeroes_first = choose.random(5) < 0.5
        self.rng, self.others = aq.Generator(seed), aq.Generator(seed + 1)
        norm = (aq.nn.BatchNorm1d, aq.nn.LayerNorm, lambda width: aq.nn.Dropout(0.1, rng=self.others))
        self.model = aq.nn.Sequential(
            aq.nn.Linear(WIDTH, WIDTH, rng=aq.Generator(seed)),
            norm[choose.integers(3)](WIDTH),
            aq.nn.Dropout(0.3, rng=self.rng),
            aq.nn.Linear(WIDTH, 2, rng=aq.Generator(seed)),
        ).to("cuda")
        kind, options = [("SGD", {"momentum": 0.9}), ("SGD", {}), ("AdamW", {})][choose.integers(3)]
        self.optimizer = getattr(aq.optim, kind)(self.model, lr=0.05, **options)
        self.schedule = aq.optim.CosineSchedule(self.optimizer, CALLS, warmup=3)

    def step(self, x: Any, batch: dict[str, Any]) -> dict[str, Any]:
        if self.zeroes_first:
            self.optimizer.zero_grad()
        if self.scheme:
            rounding = {"rounding": "stochastic", "rng": self.others} if self.stochastic else {}
            x = x.quantize(self.scheme, **rounding)
        for _ in range(1 + self.accumulates):
            loss = ((self.model(x) - batch["wanted"]) ** 2).mean()
            loss.backward()
        norm = aq.optim.clip_grad_norm(self.model.parameters(), 0.5) if self.clips else None
        self.optimizer.step()
        if self.inside:
            self.schedule.step()
        if not self.zeroes_first:
            self.optimizer.zero_grad()
        return {"loss": loss, "seen": [x, norm], "weight": self.model[0].weight}

    def run(self, step: Any, seed: int) -> list[bytes]:
        """What the calls return, of arguments that are arrays and tensors by turns, and what is left."""
        found: list[bytes] = []
        for number in range(CALLS):
            rng = np.random.default_rng((seed, number))
            arrays = [rng.standard_normal((ROWS, width)).astype(np.float32) for width in (WIDTH, 2)]
            x, wanted = (
                arrays if number % 3 and step != self.step else [aq.tensor(a, device="cuda") for a in arrays]
            )
            result = step(x, {"wanted": wanted})
            self.others.uniform((number % 2,))
            if not self.inside:
                self.schedule.step()
            found += [result["loss"].numpy().tobytes(), result["seen"][0].numpy().tobytes()]
            found += [np.float64(result["seen"][1] or 0.0).tobytes(), result["weight"].numpy().tobytes()]
        state = [*self.model.state_dict().values(), *self.optimizer.state_dict().values()]
        return found + [np.asarray(x.numpy() if isinstance(x, aq.Tensor) else x).tobytes() for x in state]


@pytest.mark.parametrize("seed", range(6))
def test_a_program_gives_the_same_bytes_captured(seed: int) -> None:
    eager, recorded = Program(seed), Program(seed)
    assert eager.run(eager.step, seed) == recorded.run(aq.capture(recorded.step, device="cuda"), seed)
    for one, other in ((eager.rng, recorded.rng), (eager.others, recorded.others)):
        assert one.state_dict() == other.state_dict()
