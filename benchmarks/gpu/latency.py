"""Latency: what small operations cost, what one on the tape costs the host, and cold starts."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import Any

import numpy as np

import autoq as aq

SIZES = (64, 1024, 16 * 1024, 64 * 1024)
SCHEMES = ("mxfp8", "nvfp4")
TAPED_BAR = 15.0  # microseconds

START = """
import json, os, sys, time
start = time.perf_counter()
times = {}
def note(name):
    times[name] = time.perf_counter() - start
"""
OURS = (
    START
    + """
import numpy as np, autoq as aq
note("import")
x = aq.tensor(np.random.default_rng(0).standard_normal((128, 64), dtype=np.float32), device="cuda")
note("device ready")
q = x.quantize(aq.mxfp8)
q.qtensor.dequantize().sum().get()
note("first op done")
rng, packed = aq.Generator(0), {"weight_scheme": aq.mxfp8}
model = aq.nn.Sequential(aq.nn.Linear(64, 128, rng=rng, **packed), aq.nn.ReLU(),
                         aq.nn.Linear(128, 10, rng=rng, out_dtype=aq.float32, **packed)).to("cuda")
optimizer = aq.optim.SGD(model.parameters(), lr=0.1)
loss = aq.nn.cross_entropy(model(q), aq.tensor(np.arange(128) % 10, device="cuda"))
loss.backward()
optimizer.step()
loss.item()
note("first training step done")
from autoq.kernels.cuda import compile
print(json.dumps({**times, "kernels compiled": len(compile.compiled)}))
"""
)
TORCH = (
    START
    + """
import torch
note("import")
x = torch.randn(128, 64, device="cuda")
torch.cuda.synchronize()
note("device ready")
float(x.to(torch.float8_e4m3fn).to(torch.float32).sum())
note("first op done")
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = torch.nn.functional.cross_entropy(model(x), torch.arange(128, device="cuda") % 10)
loss.backward()
optimizer.step()
loss.item()
note("first training step done")
print(json.dumps(times))
"""
)


def run(report: Any) -> None:
    """Small tensors, the cost of a taped operation, and starts of processes."""
    for size in SIZES[:1] if report.quick else SIZES:
        small(report, size)
    taped(report)
    if report.device:
        starts(report)


def small(report: Any, size: int) -> None:
    """Quantize, dequantize and add ``size`` values: device and host time of each."""
    data = np.random.default_rng(size).standard_normal((size // 64, 64), dtype=np.float32)
    x = aq.tensor(data, device="cuda")
    for name in SCHEMES:
        scheme = aq.scheme(name)
        with aq.no_grad():
            p, q = x.quantize(scheme), (x * 0.5).quantize(scheme)
            right = np.array_equal(p.numpy(), aq.QTensor.quantize(data, scheme).dequantize())
            report.check(f"{name} of {size} values as on the CPU", right)
            works = {
                "quantize": lambda scheme=scheme: x.quantize(scheme),
                "dequantize": lambda p=p: p.dequantize(),
                "add": lambda p=p, q=q: p + q,
            }
            for work, function in works.items():
                report.time(f"{name} {work}, {size} values", function)
                report.host_time(f"{name} {work}, {size} values", function)
    if find_spec("torch") is not None and report.device:
        import torch

        a = torch.randn(size, device="cuda")
        report.time(f"torch float32 add, {size} values", lambda: a + a, peer=True)
        report.host_time(f"torch float32 add, {size} values", lambda: a + a, peer=True)


def taped(report: Any) -> None:
    """A quantized operation that is recorded on the tape: its bar is on host time, and it is one launch."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((2, 32, 64), dtype=np.float32)
    p, q = (aq.tensor(x, requires_grad=True, device="cuda").quantize(aq.mxfp8) for x in data)
    works = {"p + q": lambda: p + q, "p * q": lambda: p * q, "relu(p)": lambda: aq.relu(p)}
    for name, function in works.items():
        seconds = report.host_time(f"taped {name}, MXFP8, 2048 values", function)
        report.bars(f"taped {name}, µs of the host", seconds * 1e6, TAPED_BAR, at_most=True)
        launched = report.launches(function)
        right = launched == 1 or not report.device
        report.check(f"taped {name} is one launch", right, f"{launched} launches")
    if report.device:
        bare_launches(report, p, q)
        parts(report, p, q)
    a = aq.tensor(data[0], requires_grad=True, device="cuda")
    report.host_time("taped float32 a + a, 2048 values", lambda: a + a)
    if find_spec("torch") is not None and report.device:
        import torch

        b = torch.randn(2048, device="cuda", requires_grad=True)
        report.host_time("torch taped float32 add, 2048 values", lambda: b + b, peer=True)


def bare_launches(report: Any, p: Any, q: Any) -> None:
    """What an addition costs when nothing is left but its launch: by arrays, by addresses, by the driver."""
    import cupy

    from autoq.ops.on_device.elementwise import as_operand

    expected, result = (p + q).qtensor.words.get(), (p * q).qtensor
    one, arguments = prepared([as_operand(x.qtensor) for x in (p, q)], as_operand(result))
    report.host_time("launch of p + q by its kernel", lambda: one.kernel(one.blocks, one.threads, *arguments))
    values = [x.data.ptr if hasattr(x, "data") else x for x in arguments]
    report.host_time("the same by addresses", lambda: one.kernel.start(one.blocks, one.threads, values))
    function = next(iter(one.kernel._functions.values()))
    report.host_time(
        "the same by CuPy's function", lambda: function((one.blocks,), (one.threads,), arguments)
    )
    extra, *held = parameter_buffer(one.kernel.source.signature, arguments)
    launch, stream = cupy.cuda.driver.launchKernel, cupy.cuda.get_current_stream().ptr
    place, address = function.ptr, extra.ctypes.data

    def by_driver() -> None:
        launch(place, one.blocks, 1, 1, one.threads, 1, 1, 0, stream, 0, address)

    ways = {
        "arrays": lambda: one.kernel(one.blocks, one.threads, *arguments),
        "addresses": lambda: one.kernel.start(one.blocks, one.threads, values),
        "the driver's function": by_driver,
    }
    for name, way in ways.items():
        result.words.data.memset(0, result.words.nbytes)
        way()
        right = np.array_equal(result.words.get(), expected)
        report.check(f"a launch by {name} computes the same", right, f"{len(held)} buffers")
    report.host_time("the same by the driver's function", by_driver)
    current = cupy.cuda.get_current_stream
    report.host_time("the current device and stream", lambda: current(cupy.cuda.runtime.getDevice()).ptr)


def parts(report: Any, p: Any, q: Any) -> None:
    """What an addition is made of besides its launch: memory, the operation without a tape, its node."""
    import cupy

    from autoq.ops.on_device.elementwise import elementwise
    from autoq.storage.allocation import Allocation
    from autoq.tape.node import Node
    from autoq.tape.op import REGISTRY

    result, add = p + q, REGISTRY["add"]
    made, values, out = result.qtensor, [x.qtensor for x in (p, q)], p.dtype
    one = Allocation(made.scheme, made.shape, cupy)
    forms = [(x.shape, x.dtype) for x in (made.words, made.scales)]
    dtype, dense = aq.float32, made.dequantize()
    works = {
        "words by CuPy's empty": lambda: cupy.empty(*forms[0]),
        "scales by CuPy's empty": lambda: cupy.empty(*forms[1]),
        "both by CuPy's empty": lambda: [cupy.empty(*form) for form in forms],
        "one allocation": lambda: cupy.cuda.alloc(one.size),
        "one allocation and two views": lambda: one.arrays(one.memory()),
        "a packed tensor whose arrays nobody asks for": lambda: aq.QTensor.within(one),
        "the addition of stored values": lambda: elementwise(add, values, {}, out, dtype),
        "the node of p + q": lambda: Node(add, (p, q), {}, dtype, result.tensor_type, made.shape),
        "the tensor of p + q": lambda: type(result)(made, result.tensor_type),
        "the encoding of a stored array": lambda: aq.QTensor.quantize(dense, out),
        "the decoding of a stored tensor": made.dequantize,
    }
    for name, work in works.items():
        report.host_time(name, work)
    with aq.no_grad():
        report.host_time("p + q without a tape", lambda: p + q)


def prepared(operands: Any, out: Any) -> tuple[Any, list[Any]]:
    """The launch of a sum of two packed arrays, and what its kernel takes."""
    from autoq.kernels.cuda.arguments import arrays_of
    from autoq.kernels.cuda.map import planned
    from autoq.kernels.cuda.trace import traced

    found = traced(np.add, "ff")
    assert found is not None, "an expression"
    one = planned(found.expression, operands, out).write
    return one, [*arrays_of(one.picks, operands), *arrays_of(one.result or (), (out,)), *one.integers]


def parameter_buffer(signature: tuple[str, ...], arguments: list[Any]) -> tuple[np.ndarray, ...]:
    """Arguments as the driver takes them in one piece of memory: what tells it where, and what that holds."""
    codes = {"float32": "f", "int64": "q"}
    layout = "".join("Q" if kind.endswith("*") else codes[kind] for kind in signature)
    values = [x.data.ptr if hasattr(x, "data") else x for x in arguments]
    packed = np.frombuffer(struct.pack(f"@{layout}", *values), np.uint8).copy()
    size = np.array([packed.nbytes], np.uint64)
    # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
    extra = np.array([1, packed.ctypes.data, 2, size.ctypes.data, 0], np.uint64)
    return extra, packed, size


def starts(report: Any) -> None:
    """Processes from nothing to the first operation and the first training step."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"NUMBA_CACHE_DIR": folder, "CUPY_CACHE_DIR": f"{folder}/cupy"}
        started(report, "autoq, empty caches", OURS, cache)
        warm = started(report, "autoq, warm caches", OURS, cache)
        report.check("a second process compiles no kernel", warm.get("kernels compiled") == 0)
    if find_spec("torch") is not None:
        started(report, "torch float32", TORCH, {}, peer=True)


def started(report: Any, name: str, program: str, environment: dict[str, str], peer: bool = False) -> dict:
    """Run a program in a new process and note the times that it prints."""
    result = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True
    )
    if result.returncode:
        report.check(f"{name} runs", False, result.stderr[-2000:])
        return {}
    found = json.loads(result.stdout.splitlines()[-1])
    for key, value in found.items():
        report.figure(f"{name}: {key}", value, "" if key == "kernels compiled" else "s", peer=peer)
    return found
