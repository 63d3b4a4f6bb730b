"""The GPU tables, ours and the peers' side by side in one run; the results go to RESULTS.md.

``make bench-gpu`` runs all sections, ``benchmarks/gpu.py quantize matmul`` two of them. Sections run in a
process of their own: after one that kills it or hangs, the rest runs in a new one. ``--warm`` compiles all
kernels first, sections side by side on as many cores as there are. ``--quick`` is for trying the scripts out;
with ``AUTOQ_TEST_DEVICE=standin`` that needs no device.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import gpu
from gpu import tables
from report import write_section

SECTIONS = (
    *("quantize", "dequantize", "map", "rows", "reduce"),
    *("matmul", "vector", "optimizer", "latency", "training"),
)
HERE = Path(__file__).parent
FIGURES = HERE / "gpu_results.json"  # what docs/roofline.py draws
LIMIT = 180  # seconds a section
GRACE = 20


def main() -> int:
    """Run the sections that are asked for, print their tables last, and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder for the full figures")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds a section may take")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds; nothing is written")
    parser.add_argument("--write", action="store_true", help="run nothing: write RESULTS.md from --out")
    parser.add_argument("--warm", action="store_true", help="time nothing: compile and check, all at once")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.sections or [name for name in SECTIONS if (HERE / f"gpu/{name}.py").exists()]
    if options.child:
        run_all(names, options)
        return 0
    if options.warm:
        return warm(names, options)
    if not options.write:
        for name in names:
            (options.out / f"{name}.json").unlink(missing_ok=True)
        supervise(names, options)
    found = tables.load(options.out)
    for show in (tables.summary, tables.short):  # the short ones last, where a terminal ends
        print("\n".join(show(found[name]) for name in names if name in found), flush=True)
    if not options.quick:
        write_down([found[name] for name in names if name in found], options.out)
    bad = [name for name in names if name not in found or not _fine(found[name])]
    missing = f"; not: {', '.join(bad)}" if bad else ""
    print(f"{len(names) - len(bad)} of {len(names)} sections done{missing}")
    return 1 if bad else 0


def _fine(section: dict) -> bool:
    return section["state"] == "done" and all(row["passed"] for row in tables.rows_of(section, "check"))


def warm(names: list[str], options: argparse.Namespace) -> int:
    """Run the sections side by side, each in a process of its own, until every kernel is in the cache."""
    out = options.out / "warm"
    command = [sys.executable, __file__, "--child", "--warm", f"--out={out}", f"--limit={options.limit}"]
    command += ["--quick"] if options.quick else []
    children = [subprocess.Popen([*command, name]) for name in names]
    for child in children:
        try:
            child.wait(options.limit + GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
    found = tables.load(out)
    bad = [name for name in names if name not in found or not _fine(found[name])]
    print(f"{len(names) - len(bad)} of {len(names)} sections are warm; not: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


def supervise(names: list[str], options: argparse.Namespace) -> None:
    """Run the sections in a process, and those that it left in a new one."""
    rest = list(names)
    while rest:
        command = [sys.executable, __file__, "--child", f"--out={options.out}", f"--limit={options.limit}"]
        child = subprocess.Popen([*command, *(["--quick"] if options.quick else []), *rest])
        started = {}
        while child.poll() is None:
            time.sleep(0.2)
            running = _states(options.out, rest).get("running")
            if running is not None:
                started.setdefault(running, time.monotonic())
                if time.monotonic() - started[running] > options.limit + GRACE:
                    child.kill()
        states = _states(options.out, rest)
        if states.get("running") is not None:
            _mark(options.out / f"{states['running']}.json", f"process ended with {child.returncode}")
        left = [name for name in rest if name not in states["ended"] and name != states.get("running")]
        if len(left) == len(rest):
            print(f"no section started: process ended with {child.returncode}", flush=True)
            return
        rest = left


def _states(folder: Path, names: list[str]) -> dict:
    """Which section is running, and which have ended."""
    found = {name: section["state"] for name, section in tables.load(folder).items() if name in names}
    running = [name for name, state in found.items() if state == "running"]
    return {"running": running[0] if running else None, "ended": [n for n in found if n not in running]}


def _mark(path: Path, state: str) -> None:
    section = json.loads(path.read_text())
    section["state"] = state
    path.write_text(json.dumps(section, indent=1))


def run_all(names: list[str], options: argparse.Namespace) -> None:
    """Run sections one after the other, each within its time."""
    gpu.__path__ += os.environ.get("AUTOQ_BENCH_SECTIONS", "").split(os.pathsep)  # sections kept elsewhere
    device = prepare()
    if device:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "machine.txt").write_text(tables.machine())
    for name in names:
        run_section(name, options, device)
        if device:
            check_device()


def prepare() -> bool:
    """Make autoq's device ready; False where a stand-in takes its place."""
    if os.environ.get("AUTOQ_TEST_DEVICE") != "standin":
        return True
    sys.path.insert(0, str(HERE.parent))
    from tests.capture import graphs
    from tests.device.standin import install

    install()
    graphs.install()
    return False


def run_section(name: str, options: argparse.Namespace, device: bool) -> None:
    """Run one section; whatever it raises is printed and noted."""
    from gpu.report import Report

    started = time.perf_counter()
    print(f"-- {name}", flush=True)
    report, state = None, "interrupted"
    signal.signal(signal.SIGALRM, _overdue)
    signal.setitimer(signal.ITIMER_REAL, options.limit)
    try:
        report = Report(name, options.out, quick=options.quick, device=device, timed=not options.warm)
        importlib.import_module(f"gpu.{name}").run(report)
        state = "done"
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        state = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if report is not None:
            report.finish(state)
    free_memory(device)
    print(f"-- {name}: {state}, {time.perf_counter() - started:.0f} s", flush=True)


def _overdue(number: int, frame: object) -> None:
    raise TimeoutError("the section took longer than its limit")


def free_memory(device: bool) -> None:
    """Give unused device memory back, so that sections don't meet each other's."""
    import gc

    gc.collect()
    if device:
        import contextlib

        import cupy

        with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
            cupy.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            with contextlib.suppress(RuntimeError):
                sys.modules["torch"].cuda.empty_cache()


def check_device() -> None:
    """End this process where the device no longer answers, as after an error in a kernel."""
    import cupy

    try:
        cupy.zeros(1).get()
    except Exception as error:
        print(f"the device fails: {error}; going on in a new process", flush=True)
        os._exit(3)


def write_down(sections: list[dict], folder: Path) -> None:
    """Put measured sections into RESULTS.md, the figures of the docs and the folder, with their machine."""
    path = folder / "machine.txt"
    measured = [section for section in sections if section["device"] and not section["quick"]]
    if not path.exists() or not measured:
        print("nothing was measured on a device: RESULTS.md stays as it is", flush=True)
        return
    for section in measured:
        body = f"{tables.markdown(section)}\n\n{path.read_text()}"
        (folder / f"{section['section']}.md").write_text(body)
        write_section(f"gpu {section['section']}", body)
    kept = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    kept |= {section["section"]: {**section, "machine": path.read_text()} for section in measured}
    FIGURES.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
