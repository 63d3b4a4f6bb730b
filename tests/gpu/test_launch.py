"""Launches on the device: parameters of every type, threads, streams, devices, errors; allocations."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda.compile import uses_cuda
from autoq.kernels.cuda.launch import kernel

pytestmark = pytest.mark.gpu
cuda: Any = None
uses_cuda(globals())

SANITIZER = os.environ.get("AUTOQ_TEST_SANITIZER") == "1"
ROUNDS = 3 if SANITIZER else 200


@kernel
def every_type_kernel():
    """``(out, a, b, c, d, e, f, x)``: the parameters as numbers, one after the other."""

    def write(out, a, b, c, d, e, f, x):
        if cuda.grid(1) == 0:
            out[0], out[1], out[2], out[3], out[4], out[5], out[6] = a, b, c, d, e, f, x[0]

    return write, ("float64*", "float32", "int64", "uint32", "float64", "int32", "uint64", "float32*")


@kernel
def fill_kernel():
    """``(out, value, n)``."""

    def fill(out, value, n):
        i = cuda.grid(1)
        if i < n:
            out[i] = value

    return fill, ("float32*", "float32", "int64")


def packed(scheme: Any, seed: int, device: str = "cuda") -> Any:
    data = np.random.default_rng(seed).standard_normal((32, 64), dtype=np.float32)
    return aq.tensor(data, device=device, requires_grad=True).quantize(scheme)


def same(found: Any, expected: Any) -> bool:
    return bool(found.qtensor.to("cpu").same_bits(expected.qtensor.to("cpu")))


def test_parameters_of_every_type_arrive(cupy: Any) -> None:
    out, x = cupy.zeros(7, np.float64), cupy.full(1, 2.5, np.float32)
    every_type_kernel()(1, 32, out, 0.1, -7, 0xFFFFFFFF, 0.1, -5, 1 << 63, x)
    assert out.get().tolist() == [float(np.float32(0.1)), -7.0, 4294967295.0, 0.1, -5.0, 2.0**63, 2.5]


def test_an_array_in_the_middle_of_another_is_passed_by_its_own_address(cupy: Any) -> None:
    out = cupy.zeros(64, np.float32)
    fill_kernel()(1, 32, out[8:], 3.0, 16, shared=1024)
    assert out.get().tolist() == [0.0] * 8 + [3.0] * 16 + [0.0] * 40


@pytest.mark.skipif(SANITIZER, reason="it reports what the driver refuses, wanted or not")
def test_an_error_is_cupys_and_leaves_the_next_launch_right(cupy: Any) -> None:
    out = cupy.zeros(4, np.float32)
    fill_kernel()(1, 32, out, 1.0, 4)
    with pytest.raises(cupy.cuda.driver.CUDADriverError):
        fill_kernel()(1, 4096, out, 2.0, 4)  # more threads than a block has
    fill_kernel()(1, 32, out, 3.0, 4)
    assert out.get().tolist() == [3.0] * 4


@pytest.mark.parametrize("scheme", [aq.mxfp8, aq.nvfp4], ids=["mxfp8", "nvfp4"])
def test_a_new_thread_launches(scheme: Any) -> None:
    p, q = packed(scheme, 0), packed(scheme, 1)
    expected, found = p + q, []
    thread = threading.Thread(target=lambda: found.append(p + q))
    thread.start()
    thread.join()
    assert same(found[0], expected)


def test_threads_that_launch_one_kernel_keep_their_numbers() -> None:
    p, numbers = packed(aq.mxfp8, 0).detach(), (1.25, 3.5, 0.3, -7.1)
    expected = {number: p * number for number in numbers}
    found: list[tuple[float, Any]] = []

    def work(number: float) -> None:
        for _ in range(ROUNDS):
            found.append((number, p * number))

    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == ROUNDS * len(numbers)
    assert all(same(x, expected[number]) for number, x in found)


def test_launches_follow_the_current_stream(cupy: Any) -> None:
    p, q = packed(aq.mxfp8, 0).detach(), packed(aq.mxfp8, 1).detach()

    def chain() -> Any:
        x = p
        for _ in range(50):
            x = x * 0.5 + q
        return x

    expected = chain()
    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        found = chain()
        stream.synchronize()
    assert same(found, expected)


def test_a_stream_that_is_captured_gets_the_launch(cupy: Any) -> None:
    out = cupy.zeros(4, np.float32)
    fill_kernel()(1, 32, out, 1.0, 4)
    cupy.cuda.get_current_stream().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        fill_kernel()(1, 32, out, 2.0, 4)
        graph = stream.end_capture()
        fill_kernel()(1, 32, out, 3.0, 4)  # into the memory that the captured parameters were in
        stream.synchronize()
        assert out.get().tolist() == [3.0] * 4
        graph.launch(stream)
        stream.synchronize()
        assert out.get().tolist() == [2.0] * 4


def test_another_device_gets_its_own_launches(cupy: Any) -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one device")
    for device in ("cuda:1", "cuda", "cuda:1"):
        p, q = packed(aq.mxfp8, 0, device), packed(aq.mxfp8, 1, device)
        assert (p + q).device == device
        assert same(p + q, packed(aq.mxfp8, 0, "cpu") + packed(aq.mxfp8, 1, "cpu"))


def allocations(cupy: Any, function: Callable[[], Any]) -> list[int]:
    """Sizes of what a function takes from the pool."""
    sizes: list[int] = []

    class Noted(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "noted"

        def malloc_preprocess(self, **what: Any) -> None:
            sizes.append(what["size"])

    with Noted():
        function()
    return sizes


@pytest.mark.skipif(SANITIZER, reason="without a pool every array has an allocation of its own")
def test_an_operation_is_one_allocation(cupy: Any) -> None:
    p, q = packed(aq.mxfp8, 0), packed(aq.mxfp8, 1)
    x = p + q
    assert allocations(cupy, lambda: p + q) == [2048 + 64]
    assert allocations(cupy, lambda: x + q) == [2048 + 64]
    assert allocations(cupy, lambda: [x.qtensor.words, x.qtensor.scales]) == []


def test_arrays_of_a_result_share_its_memory_and_keep_it() -> None:
    p, q = packed(aq.mxfp8, 0), packed(aq.mxfp8, 1)
    x = (p + q).qtensor
    addresses = x.addresses
    words, scales = x.words, x.scales
    assert addresses == (words.data.ptr, scales.data.ptr)
    assert words.data.ptr % 16 == scales.data.ptr % 16 == 0
    expected = x.to("cpu")
    del x
    others = [p * 2.0 for _ in range(20)]  # would take the memory, were it free
    assert len(others) == 20
    assert words.get().tobytes() == expected.words.tobytes()
    assert scales.get().tobytes() == expected.scales.tobytes()
