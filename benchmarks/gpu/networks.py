"""Training steps of the GPU benchmark: the same network, data and starting weights in autoq and torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import autoq as aq

Step = Callable[[], Any]


class Problem(NamedTuple):
    """A network of Linear and ReLU with cross-entropy, its batch, and its method.

    Attributes:
        widths: From the input to the logits.
        batch: Rows a step.
        lr: Learning rate.
        adam: AdamW, else plain SGD.
    """

    widths: tuple[int, ...]
    batch: int
    lr: float
    adam: bool

    def data(self, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """A batch and its labels."""
        rng = np.random.default_rng(number)
        x = rng.standard_normal((self.batch, self.widths[0]), dtype=np.float32)
        return x, rng.integers(0, self.widths[-1], self.batch)

    def flops(self) -> float:
        """Of the products of a step: forward, and two backward except the input's gradient."""
        sizes = [a * b for a, b in zip(self.widths[:-1], self.widths[1:], strict=True)]
        return 2.0 * self.batch * (3 * sum(sizes) - sizes[0])


MLP = Problem((1024, 4096, 4096, 1024), 4096, 0.01, False)
DIGITS = Problem((64, 256, 128, 10), 64, 3e-3, True)


def model_of(problem: Problem, weights: Any = None) -> aq.nn.Sequential:
    """The network on the GPU, the same starting weights every time."""
    return copy.deepcopy(drawn(problem, weights)).to("cuda")


@lru_cache(maxsize=8)
def drawn(problem: Problem, weights: Any = None) -> aq.nn.Sequential:
    """The network on the CPU, drawn once: millions of weights take seconds."""
    rng = aq.Generator(0)
    layers: list[aq.nn.Module] = []
    widths = problem.widths
    for inputs, outputs in zip(widths[:-2], widths[1:-1], strict=True):
        layers += [aq.nn.Linear(inputs, outputs, weight_scheme=weights, rng=rng), aq.nn.ReLU()]
    head = aq.nn.Linear(*widths[-2:], weight_scheme=weights, rng=rng, out_dtype=aq.float32)
    return aq.nn.Sequential(*layers, head)


def autoq_step(problem: Problem, signal: Any = None, weights: Any = None, captured: bool = False) -> Step:
    """A step of autoq on a batch that lies on the GPU, as a user writes it; returns the loss as a tensor."""
    model = model_of(problem, weights)
    method = aq.optim.AdamW if problem.adam else aq.optim.SGD
    optimizer = method(model.parameters(), lr=problem.lr)

    def step(x: aq.Tensor, labels: aq.Tensor) -> aq.Tensor:
        loss = aq.nn.cross_entropy(model(x if signal is None else x.quantize(signal)), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    x, labels = (aq.tensor(array, device="cuda") for array in problem.data())
    run = aq.capture(step) if captured else step
    return lambda: run(x, labels)


def torch_model(problem: Problem, linear: Any = None) -> Any:
    """The same network in torch, from the same weights."""
    import torch

    layers: list[Any] = []
    parameters = [parameter.numpy() for parameter in drawn(problem).parameters()]
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        layer = (linear or torch.nn.Linear)(*weight.shape[::-1])
        layer.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).cuda()


def torch_step(problem: Problem, how: str = "eager", linear: Any = None) -> Step:
    """A step of torch: eager, compiled, or captured by ``torch.cuda.graph``."""
    import torch

    model = torch_model(problem, linear)
    if problem.adam:
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=problem.lr, fused=True, capturable=how == "captured"
        )
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=problem.lr)
    x, labels = (torch.from_numpy(array).cuda() for array in problem.data())

    def whole(x: Any, labels: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(forward(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    forward = torch.compile(model) if how == "compiled" else model
    if how != "captured":
        return lambda: whole(x, labels)
    return torch_captured(whole, (x, labels))


def torch_captured(step: Callable[..., Any], arguments: Sequence[Any]) -> Step:
    """The step as a graph, its batch copied into fixed tensors before each replay, as ours."""
    import torch

    fixed = [argument.clone() for argument in arguments]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(*fixed)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(*fixed)

    def replay() -> Any:
        for held, argument in zip(fixed, arguments, strict=True):
            held.copy_(argument)
        graph.replay()
        return loss.clone()

    return replay


def mx_linear() -> Any:
    """torch's Linear with input and weight rounded to MXFP8 by torchao, the gradient straight through."""
    import torch
    from torchao.prototype.mx_formats.mx_tensor import MXTensor

    def rounded(x: Any) -> Any:
        with torch.no_grad():
            found = MXTensor.to_mx(x, torch.float8_e4m3fn, 32).dequantize(torch.float32)
        return x + (found - x).detach()

    class MXLinear(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.linear(rounded(x), rounded(self.weight), self.bias)

    return MXLinear
