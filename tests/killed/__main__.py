"""Kill processes for minutes, on each kind of table in turn, and write the figures down: `make test-killed`.

python -m tests.killed --seconds 600 --kind "native on disk" --seed 7

Where there is Java, Spark changes Iceberg tables too. What started it may end meanwhile, and its terminal with it: the
figures of each kind are in the file as soon as they are known.
"""

# ruff: noqa: E402 (the helpers of tests lie beside this folder)

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path.append(str(TESTS))

from jvm import quick_java
from postgres import run_postgres
from servers import run_minio

from benchmarks.common import machine
from tests.killed.harness import Race
from tests.killed.raced import KINDS, IcebergRaced, made
from tests.killed.spark import SparkRaced

RESULT = TESTS.parent / "benchmarks" / "results" / "killed.txt"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.killed")
    parser.add_argument("--seconds", type=float, default=150, help="for each kind of table")
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all, in turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULT, help="where the figures go")
    options = parser.parse_args()
    words = ["python", "-m", "tests.killed", "--seconds", f"{options.seconds:g}", "--seed", str(options.seed)]
    words += [word for kind in options.kind or () for word in ("--kind", kind)]
    beside = "and Spark on Iceberg tables" if quick_java() else "no Spark: there is no Java"
    lines = [
        f"killed: made by `{shlex.join(words)}`",
        machine(),
        f"six processes on one table, {beside}; {options.seconds:g} s on each kind in turn, seed {options.seed}",
    ]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    say(lines)
    with run_minio() as minio, run_postgres() as postgres:
        servers = {"minio": minio, "postgres": postgres}
        for kind in options.kind or KINDS:
            with tempfile.TemporaryDirectory(prefix="tblctl-killed-") as folder:
                table = made(kind, Path(folder), servers.__getitem__)
                spark = isinstance(table, IcebergRaced) and bool(quick_java())
                race = Race(
                    table=table,
                    folder=Path(folder),
                    seed=options.seed,
                    spark=SparkRaced.of(table, Path(folder) / "spark") if spark else None,
                )
                race.run(options.seconds)
                found = [f"\n{kind}", *race.judge().lines()]
            lines += found
            options.output.write_text("\n".join(lines) + "\n")
            say(found)


def say(lines: Sequence[str]) -> None:
    """Print lines, if anybody still reads them."""
    with contextlib.suppress(OSError):
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
