"""Quantize and dequantize of whole tensors, as fractions of copying the float side in the same process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from peers import peers_of
from report import markdown_table
from timing import Timing, kernel_threads, side_by_side

import autoq as aq
from autoq.storage import convert

SCHEMES = ("mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4", "int8")
BARS = {  # Fractions of a copy on one thread that the engine is held to: quantize, dequantize.
    "mxfp8": (0.80, 1.10),
    "mxfp6_e2m3": (0.60, 0.90),
    "mxfp4": (0.75, 1.15),
    "nvfp4": (0.38, 1.00),
    "int8": (0.95, 1.15),
}
COLUMNS = 4096


def section(size: int, rounds: int) -> str:
    """The tables of large tensors, small tensors and peers."""
    x = np.random.default_rng(0).standard_normal((size // COLUMNS, COLUMNS), dtype=np.float32)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return "\n\n".join(
        [
            f"### Quantize and dequantize, {size / 2**20:g} Mi float32 values",
            f"GB/s of the float32 side, and in brackets the fraction of `np.copyto` to an existing array in "
            f"the same rounds. *1 thread* and *{threads} threads* write into existing arrays; *fresh* is "
            f"`aq.QTensor.quantize(x, scheme)` and `q.dequantize()`, page faults of a new result included.",
            _large_table(x, rounds, threads),
            "### Small tensors, µs a call",
            _small_table(rounds),
        ]
    )


def _large_table(x: np.ndarray, rounds: int, threads: int) -> str:
    header = (
        "scheme",
        "work",
        "1 thread",
        "bar",
        f"{threads} threads",
        "fresh",
        "NumPy + ml_dtypes",
        "torchao",
    )
    rows = []
    for name in SCHEMES:
        for work, bar in zip(("quantize", "dequantize"), BARS[name], strict=True):
            rows.append([name, work, *_large_row(x, name, work, bar, rounds, threads)])
    return markdown_table(header, rows)


def _large_row(x: np.ndarray, name: str, work: str, bar: float, rounds: int, threads: int) -> list[str]:
    single = _timings(x, name, work, rounds, 1)
    several = _timings(x, name, work, rounds, threads)
    peers = {peer.name: _peer_call(peer, x, work) for peer in peers_of(name)}
    theirs = side_by_side(peers, rounds=max(3, rounds // 5)) if peers else {}

    def shown(timings: dict[str, Timing], key: str) -> str:
        speed = x.nbytes / timings[key].median / 1e9
        return f"{speed:.1f} ({timings['copy'].median / timings[key].median:.2f})"

    peer_speeds = [
        f"{x.nbytes / theirs[peer].median / 1e9:.2f}" if peer in theirs else "-"
        for peer in ("NumPy + ml_dtypes", "torchao")
    ]
    return [
        shown(single, "ours"),
        f"{bar:.2f}",
        shown(several, "ours"),
        shown(several, "fresh"),
        *peer_speeds,
    ]


def _timings(x: np.ndarray, name: str, work: str, rounds: int, threads: int) -> dict[str, Timing]:
    scheme = aq.scheme(name)
    q = aq.QTensor.quantize(x, scheme)
    _check(name, x, q)
    target = np.empty_like(x)
    with kernel_threads(threads):
        return side_by_side(
            {
                "copy": lambda: np.copyto(target, x),
                "ours": encode_into(x, scheme) if work == "quantize" else lambda: q.dequantize(out=target),
                "fresh": (lambda: aq.QTensor.quantize(x, scheme)) if work == "quantize" else q.dequantize,
            },
            rounds,
        )


def encode_into(x: np.ndarray, scheme: aq.QuantScheme) -> Callable[[], object]:
    """A call that encodes ``x`` into arrays that exist, the tensor's largest magnitude included."""
    from autoq.storage.plan import kernels, plan_of

    packed, plan = convert.quantize(x, scheme), plan_of(scheme)
    words = packed.words.view(np.uint8)

    def call() -> None:
        amax = convert.finite_amax(x) if scheme.tensor_scale else 0.0
        kernels().quantize_lines(x, plan.codec, plan.block, words, packed.scales, tensor_amax=amax)

    return call


def _peer_call(peer: Any, x: np.ndarray, work: str) -> Callable[[], object]:
    if work == "quantize":
        return lambda: peer.encode(x)
    encoded = peer.encode(x)
    return lambda: peer.decode(encoded)


def _check(name: str, x: np.ndarray, q: aq.QTensor) -> None:
    """What is timed must be right: equal to the peers, but for the ties that their rules settle otherwise."""
    rows = slice(0, 64)
    ours = aq.QTensor.quantize(x[rows], q.scheme)
    for peer in peers_of(name):
        theirs = peer.decode(peer.encode(x[rows])).reshape(x[rows].shape)
        different = np.mean(theirs != ours.dequantize())
        allowed = 0.0 if name.startswith("mx") else 0.01
        assert different <= allowed, f"{name}: {100 * different:.2f} % of the values differ from {peer.name}"


def _small_table(rounds: int) -> str:
    sizes = (64, 1024, 16384, 65536)
    rows = []
    for name in SCHEMES:
        scheme = aq.scheme(name)
        for work in ("quantize", "dequantize"):
            rows.append([name, work, *[_small(scheme, work, size, rounds) for size in sizes]])
    return markdown_table(("scheme", "work", *[f"{size:,} values" for size in sizes]), rows)


def _small(scheme: aq.QuantScheme, work: str, size: int, rounds: int) -> str:
    x = np.random.default_rng(1).standard_normal((size // 64, 64), dtype=np.float32)
    q = aq.QTensor.quantize(x, scheme)
    call = (lambda: aq.QTensor.quantize(x, scheme)) if work == "quantize" else q.dequantize
    return f"{side_by_side({'call': call}, rounds)['call'].median * 1e6:.1f}"
