"""`python -m simulation` from tests/: run many histories, replay one, or measure how soon seeded bugs are found."""

from __future__ import annotations

import argparse
import sys
import traceback

from simulation.formats import FORMATS
from simulation.run import run_history, run_many
from simulation.shrink import shrink
from tblctl.tableformat.concurrency import cpu_threads


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run the history of this seed, and cut it if it fails")
    parser.add_argument("--format", choices=list(FORMATS), default="native", help="of the table (native)")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every request")
    parser.add_argument("--no-shrink", action="store_true", help="with --seed: do not cut it")
    parser.add_argument("--bugs", action="store_true", help="print how soon each seeded bug is found")
    parser.add_argument("--trials", type=int, default=5, help="with --bugs: searches for each bug (5)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--count", type=int, default=10_000, help="how many histories (10,000)")
    parser.add_argument("--processes", type=int, default=cpu_threads(), help="how many at once")
    given = parser.parse_args()
    if given.bugs:
        from simulation.bugs import BUGS, table
        from simulation.iceberg.bugs import ICEBERG_BUGS

        print(table({"native": BUGS, "iceberg": ICEBERG_BUGS}[given.format], given.first, given.trials))
        return 0
    if given.seed is not None:
        return replay(given.seed, given.format, with_trace=given.trace, with_shrink=not given.no_shrink)
    total = run_many(
        range(given.first, given.first + given.count), processes=given.processes, table_format=given.format
    )
    print(total)
    return 1 if total.failed else 0


def replay(seed: int, table_format: str, *, with_trace: bool, with_shrink: bool) -> int:
    """Run one history; if it fails, print what was found, and the smallest history that fails like it."""
    history = FORMATS[table_format].draw(seed)
    lines: list[str] | None = [] if with_trace else None
    result = run_history(history, lines=lines)
    print("\n".join(lines or ()))
    if result.found is None:
        print(f"seed {seed}: nothing found; digest of its requests {result.digest}")
        return 0
    if with_shrink:
        history = shrink(history)
        lines = [] if with_trace else None
        result = run_history(history, lines=lines)
        print("\n".join(lines or ()))
    traceback.print_exception(result.found)
    print(history)
    return 1


if __name__ == "__main__":
    sys.exit(main())
