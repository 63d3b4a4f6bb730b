"""What autoq promises of devices, without one: in a process where a stand-in takes CuPy's place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autoq as aq
from autoq import devices, gpu_checks

SEAM = Path(__file__).with_name("seam")


@pytest.mark.skipif(
    os.environ.get("AUTOQ_TEST_DEVICE", "cpu") != "cpu", reason="the folder seam runs in this process"
)
def test_the_promises_hold_on_the_stand_in() -> None:
    environment = {**os.environ, "AUTOQ_TEST_DEVICE": "standin", "AUTOQ_TEST_FLOAT": "float32"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(SEAM)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=SEAM.parents[2])
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


def runtime(count: int = 1, capability: str = "90", error: Exception | None = None) -> Any:
    """A module as CuPy looks to the checks of a device."""

    def counted() -> int:
        if error is not None:
            raise error
        return count

    cuda = SimpleNamespace(
        runtime=SimpleNamespace(getDeviceCount=counted),
        Device=lambda index: SimpleNamespace(compute_capability=capability),
    )
    return SimpleNamespace(cuda=cuda, ndarray=())


@pytest.mark.parametrize(
    ("module", "device", "told"),
    [
        (None, "cuda", "pip install -e '.[cuda13]'"),
        (runtime(error=RuntimeError("the driver is too old")), "cuda", "the driver is too old"),
        (runtime(count=2), "cuda:2", "'cpu', 'cuda', 'cuda:1'"),
        (runtime(capability="75"), "cuda", "compute capability 7.5"),
        (runtime(), "cuda:x", "is not offered"),
        (runtime(), "tpu", "is not offered"),
        (runtime(), 0, "is not offered"),
    ],
)
def test_a_device_that_can_not_be_used_says_why(
    module: Any, device: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(devices, "_usable", set())
    monkeypatch.setattr(devices, "LIBRARIES", [])
    for call in (
        lambda: aq.tensor([1.0], device=device),
        lambda: aq.zeros(2, device=device),
        lambda: aq.tensor([1.0], device="cpu").to(device),
        lambda: aq.default_device(device),
        lambda: aq.set_default_device(device),
    ):
        with pytest.raises(aq.errors.DeviceError) as caught:
            call()
        assert told in str(caught.value)
        assert all(part for part in (caught.value.given, caught.value.allowed, caught.value.remedy))


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_without_the_compiler_of_the_kernels_a_gpu_is_refused(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", runtime(count=2))
    monkeypatch.setattr(devices, "_usable", set())
    monkeypatch.setattr(gpu_checks, "find_spec", lambda name: None)
    with pytest.raises(aq.errors.DeviceError, match="without numba-cuda") as caught:
        aq.zeros(2, device=device)
    assert "'.[cuda13]'" in caught.value.remedy


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_an_installed_cupy_that_can_not_be_loaded_says_what_it_misses(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cupy"
    package.mkdir()
    (package / "__init__.py").write_text(
        "try:\n    raise ImportError('libcudart.so.13: cannot open shared object file')\n"
        "except ImportError as exc:\n    raise ImportError('a page of advice') from exc\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(devices, "_usable", set())
    with pytest.raises(aq.errors.DeviceError, match="is installed") as caught:
        aq.zeros(2, device=device)
    assert repr(device) in caught.value.given
    assert "libcudart.so.13" in caught.value.given
    assert "advice" not in str(caught.value)
    assert "not installed" not in caught.value.allowed
    assert "'.[cuda13]'" in caught.value.remedy


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_without_cupy_the_device_that_was_given_is_named(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(devices, "_usable", set())
    with pytest.raises(aq.errors.DeviceError, match=f"device '{device}' without CuPy"):
        aq.zeros(2, device=device)


@pytest.mark.parametrize("index", ["cuda", "1", 1.0, -1, None, True])
def test_what_is_no_number_of_a_gpu_is_told_as_it_was_given(index: Any) -> None:
    for call in (aq.cuda, aq.tensor([1.0], device="cpu").cuda):
        with pytest.raises(aq.errors.DeviceError, match=f"is {index!r}"):
            call(index)


@pytest.mark.parametrize("device", ["gpu", "", "cuda:", "tpu:0"])
def test_the_remedy_for_a_device_fits_wherever_one_is_asked_for(device: str) -> None:
    for call in (
        lambda: aq.default_device(device),
        lambda: aq.tensor([1.0], device=device),
        lambda: aq.tensor([1.0]).to(device),
    ):
        with pytest.raises(aq.errors.DeviceError) as caught:
            call()
        assert "eave" not in caught.value.remedy
        assert "astype" not in caught.value.remedy


@pytest.mark.parametrize("dtype", [aq.float32, "float16", aq.mxfp8])
def test_a_dtype_in_the_place_of_a_device_is_sent_to_astype(dtype: Any) -> None:
    with pytest.raises(aq.errors.DeviceError) as caught:
        aq.tensor([1.0]).to(dtype)
    assert "astype" in caught.value.remedy


def test_gpus_that_errors_name_are_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", runtime(count=3))
    monkeypatch.setattr(devices, "_usable", set())
    monkeypatch.setattr(devices, "SEVERAL", set())
    with pytest.raises(aq.errors.DeviceError, match="cuda:2"):
        devices.resolve("cuda:7")
    assert not devices.SEVERAL


def test_a_gpu_that_can_be_used_has_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", runtime(count=2))
    monkeypatch.setattr(devices, "_usable", set())
    monkeypatch.setattr(devices, "LIBRARIES", [])
    monkeypatch.setattr(devices, "SEVERAL", set())
    monkeypatch.setattr(gpu_checks, "find_spec", lambda name: name)
    assert devices.resolve("cuda") == devices.resolve("cuda:0") == aq.cuda() == "cuda"
    assert aq.cuda(1) == devices.resolve("cuda:1") == "cuda:1"
    assert devices.available() == ["cpu", "cuda", "cuda:1"]


def test_the_cpu_never_asks_for_cupy() -> None:
    program = "import sys, autoq as aq; aq.tensor([1.0]).exp(); assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
