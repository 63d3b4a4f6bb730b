"""Tensors on a device: made there, moved, refused beside others, read on request alone."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.devices import array_namespace, device_of, namespace_of, on_gpu, to_host

cupy = namespace_of("cuda")


def on(device: str, *shape: int) -> Any:
    return aq.tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), device=device)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: aq.tensor([[1.0, 2.0]], device=d),
        lambda d: aq.tensor(np.ones((1, 2)), device=d),
        lambda d: aq.tensor(np.ones((1, 2), np.float32), dtype=aq.mxfp8, device=d),
        lambda d: aq.zeros((2,), device=d),
        lambda d: aq.ones((2,), dtype=aq.bfloat16, device=d),
        lambda d: aq.empty((2,), device=d),
        lambda d: aq.full((2,), 3, device=d),
        lambda d: aq.arange(3, device=d),
        lambda d: aq.linspace(0, 1, 3, device=d),
        lambda d: aq.eye(2, device=d),
        lambda d: aq.zeros_like(aq.ones(2), device=d),
        lambda d: aq.asarray([1.0], device=d),
        lambda d: aq.astype(aq.ones(2), aq.float16, device=d),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_creates_tensors_takes_a_device(make: Any, device: str) -> None:
    x = make(device)
    assert x.device == device
    value = x.qtensor.words if isinstance(x, aq.AutodiffQTensor) else x.value
    assert on_gpu(value) == (device == "cuda")


def test_the_default_device_is_the_blocks_and_the_threads_own() -> None:
    seen = {}

    def other() -> None:
        with aq.default_device("cpu"):
            barrier.wait()
            seen["other"] = aq.ones(1).device
            barrier.wait()

    barrier = threading.Barrier(2)
    thread = threading.Thread(target=other)
    thread.start()
    with aq.default_device("cuda"):
        barrier.wait()
        seen["own"] = aq.ones(1).device
        barrier.wait()
    thread.join()
    assert seen == {"own": "cuda", "other": "cpu"}


def test_data_that_has_a_device_stays_on_it() -> None:
    array = cupy.arange(3, dtype=np.float32)
    with aq.default_device("cpu"):
        x = aq.tensor(array)
        assert x.device == aq.tensor(x).device == aq.ones_like(x).device == "cuda"
        array[0] = 7.0
        assert x.tolist() == [0.0, 1.0, 2.0]
        assert aq.asarray(array).tolist()[0] == 7.0
    assert aq.tensor(on("cpu", 2)).device == "cpu"


@pytest.mark.parametrize(
    "dtype", [aq.float32, aq.float64, aq.bfloat16, aq.int32, aq.bool, aq.mxfp8, aq.nvfp4]
)
def test_there_and_back_is_the_same_bytes(dtype: Any) -> None:
    x = aq.tensor(np.linspace(-3, 3, 64, dtype=np.float32).reshape(2, 32), device="cpu").astype(dtype)
    there = x.to("cuda")
    assert there.device == "cuda"
    assert there.tensor_type is x.tensor_type
    back = there.cpu()
    if isinstance(x, aq.AutodiffQTensor):
        assert back.qtensor.same_bits(x.qtensor)
        assert there.qtensor.same_bits(x.qtensor)
        assert back.qtensor.tensor_scale is None or isinstance(back.qtensor.tensor_scale, np.float32)
    else:
        assert back.value.tobytes() == x.value.tobytes()
    assert there.to("cuda") is there
    assert x.cuda().device == "cuda"


def test_a_gradient_goes_back_to_where_its_leaf_is() -> None:
    x = aq.tensor([1.0, 2.0], requires_grad=True, device="cpu")
    (x.to("cuda") * 3.0).sum().backward()
    assert x.grad.device == "cpu"
    assert x.grad.tolist() == [3.0, 3.0]


def test_second_gradients_pass_a_move() -> None:
    x = aq.tensor([1.0, 2.0], requires_grad=True, device="cpu")
    y = x.to("cuda")
    (y * y * y).sum().backward(create_graph=True)
    slope, x.grad = x.grad, None
    slope.sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


@pytest.mark.parametrize(
    "mix",
    [
        lambda a, b: a + b,
        lambda a, b: b + a,
        lambda a, b: a @ b,
        lambda a, b: aq.concat([a, b]),
        lambda a, b: aq.stack([b, a]),
        lambda a, b: aq.where(a > 0, a, b),
        lambda a, b: a < b,
        lambda a, b: a.at[0].set(b[0]),
        lambda a, b: a + b.numpy().astype(np.float32),
        lambda a, b: a.quantize(aq.mxfp8) + b.quantize(aq.mxfp8),
        lambda a, b: a.assign(b),
        lambda a, b: aq.maximum(a, b.astype(aq.float16)),
    ],
)
def test_operands_on_two_devices_are_an_error_that_names_both(mix: Any) -> None:
    a, b = on("cuda", 4, 4), on("cpu", 4, 4)
    with aq.default_device("cpu"), pytest.raises(aq.errors.DeviceError) as caught:
        mix(a, b)
    assert "cuda" in caught.value.given
    assert "cpu" in caught.value.given
    assert ".to(" in str(caught.value.remedy)


def test_numbers_and_numpy_scalars_go_with_any_device() -> None:
    x = on("cuda", 3)
    with aq.default_device("cpu"):
        for y in (x + 1, 1.0 - x, x * np.float32(2), np.float64(2) * x, x / True, x > np.int64(1)):
            assert y.device == "cuda"


def test_arrays_of_the_device_are_operands_from_either_side() -> None:
    x, array = on("cuda", 3), cupy.arange(3, dtype=np.float32)
    with aq.default_device("cpu"):
        for y in (x + array, array + x, aq.add(array, array), array * x, x == array):
            assert isinstance(y, aq.Tensor)
            assert y.device == "cuda"
        assert (array - x).tolist() == [0.0, 0.0, 0.0]


def test_numpy_does_not_take_it_silently() -> None:
    for x in (on("cuda", 3), aq.ones((2, 32), device="cuda").quantize(aq.mxfp8)):
        with pytest.raises(TypeError, match=r"\.numpy\(\)"):
            np.asarray(x)
        assert x.numpy().shape == x.shape
    with pytest.raises(TypeError, match=r"\.numpy\(\)"):
        np.asarray(aq.ones((2, 32), device="cuda").quantize(aq.mxfp8).qtensor)


def test_explicit_reads_work() -> None:
    x = on("cuda", 1) + 2.5
    assert x.item() == float(x) == 2.5
    assert bool(x)
    assert f"{x:.1f}" == "2.5"
    assert repr(x) == "tensor([2.5], float32, cuda)"
    assert x.tolist() == [2.5]
    q = aq.ones((2, 32), device="cuda").quantize(aq.mxfp8)
    assert repr(q) == "<AutodiffQTensor (2, 32) mxfp8 on cuda>"
    assert "0.00390625 to 0.00390625" in q._repr_html_()


def test_a_numpy_view_of_it_can_not_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        on("cuda", 3).numpy()[0] = 1.0


def test_pickles_hold_host_values_and_copies_stay() -> None:
    q = aq.ones((2, 32), device="cuda").quantize(aq.nvfp4)
    for x in (on("cuda", 3), q, aq.Parameter([1.0, 2.0]), aq.tensor([1.0], requires_grad=True)):
        loaded = pickle.loads(pickle.dumps(x))
        assert loaded.device == "cpu"
        assert loaded.numpy().tobytes() == x.numpy().tobytes()
        again = copy.deepcopy(x)
        assert again.device == "cuda"
        assert type(again) is type(x)
        assert again.requires_grad == x.requires_grad
        assert not again.shares_memory(x)
    assert copy.deepcopy(q.qtensor).device == copy.copy(q.qtensor).device == "cuda"


def test_memory_is_handed_over() -> None:
    x = on("cuda", 3)
    assert x.__dlpack_device__() == (2, 0)
    assert x.__cuda_array_interface__["shape"] == (3,)
    assert not hasattr(on("cpu", 3), "__cuda_array_interface__")
    again = aq.from_dlpack(x.value)
    assert again.device == "cuda"
    assert again.shares_memory(x)
    assert not aq.from_dlpack(x.value, copy=True).shares_memory(x)
    assert aq.from_dlpack(x.value, device="cpu").device == "cpu"
    with pytest.raises(aq.errors.GradientError):
        _ = aq.tensor([1.0], requires_grad=True, device="cuda").__cuda_array_interface__


def test_changes_in_place_reach_the_array() -> None:
    x = on("cuda", 2, 3)
    x[0] = 5.0
    x[1, :2] = np.array([8.0, 9.0], np.float32)
    x[1, 2] = on("cuda", 3)[1]
    x += 1
    assert x.tolist() == [[6.0, 6.0, 6.0], [9.0, 10.0, 2.0]]
    x.assign([[0.0] * 3] * 2)
    assert x.device == "cuda"
    assert to_host(x.value).sum() == 0


def test_a_broadcast_view_is_not_written_through() -> None:
    x = on("cuda", 1)
    wide = aq.broadcast_to(x, (3,))
    wide[0] = 7.0
    assert wide.tolist() == [7.0, 0.0, 0.0]
    assert x.tolist() == [0.0]


def test_an_index_from_the_host_is_checked_before_it_is_used() -> None:
    for x in (on("cuda", 4, 32), on("cuda", 4, 32).quantize(aq.mxfp8)):
        for index in ([4], np.array([0, -5]), (slice(None), [32])):
            with pytest.raises(aq.errors.IndexingError):
                x[index]


def test_a_second_gpu_computes_where_its_tensors_are() -> None:
    if "cuda:1" not in aq.__array_namespace_info__().devices():
        pytest.skip("one GPU")
    x = on("cuda:1", 2, 32)
    x.requires_grad = True
    y = (x.quantize(aq.mxfp8).dequantize() * 2 + 1).sum()
    y.backward()
    assert x.device == y.device == x.grad.device == "cuda:1"
    assert device_of(x.value) == "cuda:1"
    with pytest.raises(aq.errors.DeviceError, match="cuda and cuda:1|cuda:1 and cuda"):
        x + on("cuda", 2, 32)
    assert array_namespace(x.value) is cupy


def test_lists_with_entries_on_a_gpu_are_not_read_unasked(device: str) -> None:
    x = aq.tensor([1.0, 2.0], device=device)
    nested: list[Any] = [[[x.value]], [[1.0], (x.value,)], [[[x.value[0]]], [[2.0]]]]
    for entries in ([x, x], [1.0, x.sum()], (x.value, x.value), [x.quantize(aq.fp8_e4m3), x], *nested):
        with pytest.raises(aq.errors.DTypeError, match=r"aq\.stack.*\.numpy\(\)"):
            aq.tensor(entries)
    assert aq.stack([x, x]).device == device
    assert aq.tensor([x.to("cpu"), x.numpy()], device=device).shape == (2, 2)
