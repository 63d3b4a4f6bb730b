"""What is installed: the same wheel from a checkout with and without symlinks and from an sdist."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "Makefile")
pytestmark = pytest.mark.slow


def checkout(folder: Path, symlinks: bool = True) -> Path:
    """Copy what a build reads into ``folder``; without symlinks, a link is a text file, as git writes it."""
    folder.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        shutil.copy(ROOT / name, folder / name)
    for name in ("autoq", "kernels", "tests", "tutorials"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    if not symlinks:
        (folder / "autoq/kernels").unlink()
        (folder / "autoq/kernels").write_text("../kernels")
    return folder


def build_wheel(source: Path, target: Path) -> Path:
    command = "pip wheel --quiet --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir"
    python("-m", *command.split(), str(target), str(source))
    (wheel,) = target.glob("autoq-*.whl")
    return wheel


def python(*arguments: str, cwd: Path | None = None, path: Path | None = None) -> str:
    """Run Python with ``arguments``; ``path`` goes first on its import path. Return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(path or "")}
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(checkout(folder / "checkout"), folder / "dist")


def modules_of(wheel: Path) -> set[str]:
    """The files of a wheel apart from its metadata."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def expected_modules() -> set[str]:
    """Every module in the checkout, under the name it is imported by."""
    found = {
        f"autoq/kernels/{path.relative_to(ROOT / 'kernels')}" for path in (ROOT / "kernels").rglob("*.py")
    }
    for path in (ROOT / "autoq").rglob("*.py"):
        if (ROOT / "autoq/kernels") not in path.parents:
            found.add(str(path.relative_to(ROOT)))
    return found


def test_the_wheel_holds_every_module_once(wheel):
    names = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")]
    assert set(names) == expected_modules()
    assert len(names) == len(set(names))
    assert "autoq/py.typed" in modules_of(wheel)


def test_every_package_folder_is_listed_in_setup_cfg():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    assert listed == {str(Path(name).parent).replace("/", ".") for name in expected_modules()}


def test_the_installed_wheel_quantizes_outside_the_checkout(wheel, tmp_path):
    site = tmp_path / "site"
    command = "pip install --quiet --no-deps --no-index --disable-pip-version-check --target"
    python("-m", *command.split(), str(site), str(wheel))
    program = (
        "import numpy as np, autoq as aq, autoq.kernels; "
        "q = aq.QTensor.quantize(np.arange(32, dtype=np.float32), aq.mxfp8); "
        "print(autoq.kernels.__file__); print(q.dequantize()[:4].tolist())"
    )
    location, values = python("-c", program, cwd=tmp_path, path=site).splitlines()
    assert Path(location) == site / "autoq/kernels/__init__.py"
    assert values == "[0.0, 1.0, 2.0, 3.0]"
    assert "mxfp8" in python("-m", "autoq", "formats", cwd=tmp_path, path=site)


def test_a_checkout_without_symlinks_builds_the_same_wheel(wheel, tmp_path):
    plain = build_wheel(checkout(tmp_path / "checkout", symlinks=False), tmp_path / "dist")
    assert modules_of(plain) == modules_of(wheel)


def test_the_sdist_builds_the_same_wheel(wheel, tmp_path):
    source = checkout(tmp_path / "checkout")
    python("-c", "from setuptools import build_meta; build_meta.build_sdist('dist')", cwd=source)
    (archive,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert (unpacked / "kernels/__init__.py").is_file()
    assert (unpacked / "tests/conftest.py").is_file()
    assert modules_of(build_wheel(unpacked, tmp_path / "wheel")) == modules_of(wheel)
