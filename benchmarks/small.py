"""Small Iceberg tables from the shell: `tblctl info` and `recluster` against a spark-submit of `rewrite_data_files`.

Each of two tables has ten files that all overlap, of appends by PyIceberg, in a catalog that is one SQLite file on
local disk. Every command is a new process, timed from its start to its end; the table is set back before each. Spark's
jars were downloaded beforehand, and are given by path. Commands take turns; the rows are checked after each rewrite.

    python -m benchmarks.small --rounds 11 --no-spark     ours alone
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common import Command, Report, in_turn, main, scratch
from benchmarks.merging.contender import MissingError
from benchmarks.merging.lake import Lake, rewrite, spark_wanted

APPENDS = 10
SIZES = {"315 KB": (37_500, 1.0), "22 MB": (2_250_000, 3.0)}  # rows, and most seconds of a command
TARGET_BYTES = 512 * 2**20  # Iceberg's default


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rounds", type=int, default=3, help="turns of each command, after one that does not count"
    )
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, help="default: unless --tiny")


def measure(report: Report, tiny: bool, *, rounds: int, spark: bool | None) -> None:
    sizes = {"tiny": (200, 60.0)} if tiny else SIZES
    for name, (rows, most) in sizes.items():
        with scratch() as folder:
            one_size(
                report,
                name,
                Small(folder, rows),
                most,
                1 if tiny else rounds,
                spark=spark_wanted(spark, tiny),
            )


class Small:
    """A table of some rows, in ten appends."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.lake = Lake(folder)
        self._rows = rows
        chance = np.random.default_rng(seed=0)
        ids = chance.permutation(rows)
        for number in range(APPENDS):
            mine = ids[number * rows // APPENDS : (number + 1) * rows // APPENDS]
            text = [f"text {number}" for number in chance.integers(0, 1000, len(mine))]
            data = pa.table({"id": mine, "number": np.arange(len(mine)), "text": text})
            if number == 0:
                self.lake.create("t", data.schema, target_bytes=TARGET_BYTES)
            self.lake.load("t").append(data)
        self.bytes = sum(Path(file).stat().st_size for file in self.lake.files("t"))
        self._sum = self._text_sum()

    def _text_sum(self) -> tuple[int, int]:
        """Return sums that differ if a row lost its other columns."""
        rows = pq.ParquetDataset(self.lake.files("t")).read()
        product = pc.multiply(rows["id"], rows["number"])
        return rows.num_rows, pc.sum(
            pc.multiply(product, pc.cast(pc.utf8_slice_codeunits(rows["text"], 5), "int64"))
        ).as_py()

    def require_merged(self) -> None:
        """Check the rows after a rewrite.

        Raises:
            AssertionError: they are not in one sorted file, or are others than before.
        """
        (file,) = self.lake.files("t")
        ids = pq.read_table(file, columns=["id"])["id"]
        assert ids.equals(pa.chunked_array([pa.array(np.arange(self._rows))])), "rows are not in order"
        assert self._text_sum() == self._sum, "other rows were written"


def one_size(report: Report, name: str, small: Small, most: float, rounds: int, *, spark: bool) -> None:
    """Compare the commands on one table."""
    report.begin(f"{name}: {APPENDS} files, {small.bytes:,} bytes; {rounds} rounds")
    info = small.lake.tblctl("info", "t", "--columns", "id")
    ours = small.lake.tblctl("recluster", "t", "--cluster-by", "id", "--policy", "full")
    commands = {"tblctl info": info, "tblctl recluster": ours}
    if spark:
        try:
            call = rewrite("t", "id", rewrite_all="true")
            commands["spark-submit, rewrite_data_files"] = small.lake.spark_submit(call)
        except MissingError as error:
            report.line(f"skipped rewrite_data_files: {error}")
    cases = [case(small, command, rewrites=command is not info) for command in commands.values()]
    seconds = dict(zip(commands, in_turn(cases, runs=rounds), strict=True))
    for title, command in commands.items():
        report.seconds(title, seconds[title])
        report.seconds("  of processor time", command.cpu_seconds[-rounds:])
    for title in ("tblctl info", "tblctl recluster"):
        report.figure(f"{title}, median", statistics.median(seconds[title]), "s", most=most)
    theirs = seconds.get("spark-submit, rewrite_data_files")
    if theirs:
        pairs = zip(theirs, seconds["tblctl recluster"], strict=True)
        report.figure(
            "rewrite_data_files / tblctl recluster", statistics.median(a / b for a, b in pairs), "x"
        )


def case(small: Small, command: Command, *, rewrites: bool):
    """Make a case of a command. The table is set back beforehand, and looked at afterwards."""

    def run() -> float:
        small.lake.reset("t")
        seconds = command()
        if rewrites:
            small.require_merged()
        return seconds

    return run


if __name__ == "__main__":
    main("small", measure, options)
