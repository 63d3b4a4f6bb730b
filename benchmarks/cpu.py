"""The CPU tables, ours and the peers' side by side; the results go to RESULTS.md.

``make bench`` runs all of it in about ten minutes; ``--quick`` is for trying the script out.
"""

from __future__ import annotations

import argparse
import time

import addition
import codecs_cpu
import dispatch
import seeds
import startup
import steps
from report import machine, write_section

SECTIONS = ("codecs", "addition", "steps", "dispatch", "startup", "fresh", "seeds")


def main() -> None:
    """Run the sections that are asked for, print them and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds; nothing is written")
    options = parser.parse_args()
    for name in options.sections or SECTIONS:
        started = time.perf_counter()
        body = run(name, options.quick)
        print(f"{body}\n\n[{name}: {time.perf_counter() - started:.0f} s]\n", flush=True)
        if not options.quick:
            write_section(name, f"{body}\n\n{machine()}")


def run(name: str, quick: bool) -> str:
    """The body of one section."""
    rounds, size = (3, 2**20) if quick else (21, 2**24)
    if name == "codecs":
        return codecs_cpu.section(size, rounds)
    if name == "addition":
        return addition.section(size, rounds)
    if name == "startup":
        return startup.section(1 if quick else 5)
    if name == "fresh":
        return startup.fresh_clone()
    if name == "seeds":
        return seeds.section(5 if quick else seeds.SEEDS)
    return {"steps": steps, "dispatch": dispatch}[name].section(rounds)


if __name__ == "__main__":
    main()
