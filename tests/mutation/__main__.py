"""Break every rule in turn and see that the suite notices: ``python -m tests.mutation``.

Prints a table and every mutant that nothing noticed; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

# Before kernels are imported: each is built from source that was just broken, and none is compiled.
os.environ["NUMBA_DISABLE_JIT"] = os.environ["AUTOQ_MATRIX"] = "1"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tests.mutation import codecs, rules, signals
from tests.mutation.mutant import Mutant

SOURCES: dict[str, Callable[[], Iterator[Mutant]]] = {
    "codecs": codecs.mutants,
    "results": rules.mutants_of_results,
    "signals": signals.mutants,
    "source": rules.mutants_of_source,
}
Found = tuple[Mutant, str]


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants of the chosen kinds; 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[[], *SOURCES], help="all if none is named")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th mutant")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutants whose description has it")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # broken rules overflow
    found = list(tried(options.kinds or list(SOURCES), options.every, options.only))
    print(table(found))
    for mutant, _ in found:
        if mutant.equivalent:
            print(f"equivalent  {mutant}: {mutant.equivalent}")
    survivors = [mutant for mutant, by in found if not by and not mutant.equivalent]
    for mutant in survivors:
        print(f"SURVIVED  {mutant.kind}: {mutant}")
    return int(bool(survivors))


def tried(kinds: Iterable[str], every: int, only: str) -> Iterator[Found]:
    """Each mutant, with the check that caught it."""
    for kind in kinds:
        for number, mutant in enumerate(SOURCES[kind]()):
            if number % every == 0 and only in str(mutant):
                by = "" if mutant.equivalent else mutant.caught_by()
                if not by and not mutant.equivalent:
                    print(f"nothing noticed  {mutant}", file=sys.stderr, flush=True)
                yield mutant, by


def table(found: list[Found]) -> str:
    """A Markdown table: a row a kind."""
    lines = ["| broken | mutants | caught | equivalent | survived | by |", "|---|---|---|---|---|---|"]
    for kind in dict.fromkeys(mutant.kind for mutant, _ in found):
        rows = [(mutant, by) for mutant, by in found if mutant.kind == kind]
        by = Counter(by for _, by in rows if by)
        equivalent = sum(bool(mutant.equivalent) for mutant, _ in rows)
        survived = len(rows) - by.total() - equivalent
        checks = ", ".join(f"{name} {count}" for name, count in by.most_common())
        lines.append(f"| {kind} | {len(rows)} | {by.total()} | {equivalent} | {survived} | {checks} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
