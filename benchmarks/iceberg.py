"""An Iceberg table of 61 sorted files of TPC-H lineitem, sorted as a whole: tblctl against `rewrite_data_files`.

The rows, the codec and the row groups are those of `benchmarks.merge`. The catalog is one SQLite file; each contender
has a table of its own, which is set back before each run. All aim at files of the same size, zstd level 1. tblctl sorts
by policy `full`, Iceberg by its strategy `sort` with `rewrite-all`.

- Files as an Iceberg writer makes them: PyIceberg appended one after the other to a table, and every contender's table
  has these same files. tblctl's own format, for comparison, has the same rows in blocks of its own.
- Files that another Parquet writer made, registered by `add_files`, with a name mapping: the files of
  `benchmarks.merge`, which pyarrow wrote with its defaults. Without limits, and warm without `rewrite_data_files`.

Until 2026-11-25 the limits were held against the second kind alone. But no Iceberg writer makes such files: pyarrow's
default stores decimals of up to 18 digits as fixed-length bytes, Iceberg's specification (appendix A, Parquet) asks for
integers, and PyIceberg 0.12 and Spark with Iceberg 1.12 write these. Four of lineitem's columns are such decimals; to
decode one costs 26 ns as bytes and 8 as an integer, which none of a merge's work can win back. So the limits are held
against what Iceberg tables have, and the other figures stay beside them.

- Cold, as a user has it: a command of the shell, in a new process, from its start to its end. Spark's jars were
  downloaded beforehand, and are given by path.
- Warm: two runs in a process that stays, the second of which counts, as in `benchmarks.merge`. Here are also the native
  table's times, and processor seconds of all processes of a contender.

Contenders take turns; ratios are those of one round, and the result is their median. The output of each run that counts
is checked: its rows, and their order.

    python -m benchmarks.iceberg --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.common import Command, Report, lineitem, main, scratch
from benchmarks.merging.contender import KEY, Check, Host, Job, MissingError, cut_input, hosts
from benchmarks.merging.lake import PLAIN_CONF, Lake, rewrite, spark_wanted

TABLE = "lineitem"
ICEBERG, LOCAL, SPARK, NATIVE, NATIVE_SPARK = "iceberg", "local", "spark", "native", "native-spark"
TITLES = {
    ICEBERG: "rewrite_data_files, sort, on Spark local[2]",
    LOCAL: "tblctl, in-process",
    SPARK: "tblctl, on Spark local[2]",
    NATIVE: "tblctl's own format, in-process",
    NATIVE_SPARK: "tblctl's own format, on Spark local[2]",
}
WARM = {  # name: process, and `module:class` in `benchmarks.merging`
    ICEBERG: ("iceberg", "registered:Sort"),
    LOCAL: ("local", "registered:Ours"),
    SPARK: ("spark", "registered:OursOnSpark"),
    NATIVE: ("native", "ours:Local"),
    NATIVE_SPARK: ("spark", "spark:OursOnSpark"),
}
WITHOUT_SPARK = (LOCAL, NATIVE)
LEAST_COLD = {LOCAL: 5.0, SPARK: 2.0}
LEAST_WARM = {LOCAL: 3.0, SPARK: 2.5}
MOST_PROCESSOR_TIME = 1.15
RULES = """\
Since 2026-11-25 limits are held against files that an Iceberg writer made: it stores lineitem's decimals as integers,
as Iceberg's specification asks. Before, they were held against files of the second kind alone, with decimals as
fixed-length bytes, which take three times as long to decode and which no Iceberg writer makes."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of files.

    Attributes:
        title: what they are.
        folder: for the tables.
        job: the files.
        is_limited: figures have limits; otherwise they are shown, and warm runs are without `ICEBERG`.
    """

    title: str
    folder: Path
    job: Job
    is_limited: bool

    def begin(self, report: Report, part: str) -> None:
        """Begin a part of the report."""
        report.begin(f"{self.title}; {part}")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, help="default: unless --tiny")
    parser.add_argument("--part", choices=("cold", "warm"), help="only this one")


def measure(report: Report, tiny: bool, *, rounds: int, spark: bool | None, part: str | None) -> None:
    rounds = 1 if tiny else rounds
    spark = spark_wanted(spark, tiny)
    with scratch() as folder:
        kinds = make_kinds(folder, tiny=tiny)
        report.line(f"{len(kinds[0].job.files)} files of lineitem, each sorted by {KEY}; {rounds} rounds")
        report.line(RULES)
        for kind in kinds:
            size = kind.job.output_bytes / 2**20
            report.line(f"{kind.title}: files of {size:.1f} MiB are wanted")
        for kind in kinds:
            beside_spark = spark and (kind.is_limited or not tiny)  # it starts four times for a kind
            if part != "warm":
                cold(report, kind, rounds, spark=beside_spark)
            if part != "cold":
                warm(report, kind, rounds, spark=beside_spark)


def make_kinds(folder: Path, *, tiny: bool) -> list[Kind]:
    """Return the same rows as files of both kinds."""
    rows = 500 if tiny else 100_000
    source = lineitem("0.001" if tiny else "1")
    registered = Job(
        files=cut_input(source, folder / "input", rows=rows, row_group_rows=rows // 5, is_sorted=True),
        is_sorted=True,
        block_rows=rows * 10,
        output_files=2 if tiny else 8,
        row_group_rows=rows // 5,
        is_tiny=tiny,
    )
    lake = Lake(folder / "source")
    written = replace(
        registered,
        files=lake.write(TABLE, registered.files, row_group_rows=rows // 5),
        lake=lake.folder,
    )
    found = [
        Kind(
            title="files as an Iceberg writer makes them",
            folder=folder / "written",
            job=written,
            is_limited=True,
        ),
        Kind(
            title="files that another Parquet writer made, registered by add_files",
            folder=folder / "registered",
            job=registered,
            is_limited=False,
        ),
    ]
    for kind in found:
        kind.folder.mkdir()
    return found


# -- cold --------------------------------------------------------------------------------------------------------------


def cold(report: Report, kind: Kind, rounds: int, *, spark: bool) -> None:
    """Compare commands of the shell. Without Spark ours alone."""
    kind.begin(report, "cold: one command of the shell, from its start to its end")
    job = kind.job
    lake = Lake(kind.folder / "cold")
    lake.take(TABLE, job)
    words = ("--cluster-by", KEY, "--policy", "full")
    commands = {LOCAL: lake.tblctl("recluster", TABLE, *words)}
    if spark:
        conf = [word for item in PLAIN_CONF.items() for word in ("--spark-conf", "=".join(item))]
        call = rewrite(TABLE, KEY, rewrite_all="true", target_file_size_bytes=job.output_bytes)
        commands[SPARK] = lake.tblctl("recluster", TABLE, *words, "--master", "local[2]", *conf)
        try:
            commands[ICEBERG] = lake.spark_submit(call)
        except MissingError as error:
            report.line(f"skipped {TITLES[ICEBERG]}: {error}")
    check = Check(job)
    cases = [Checked(name, command, lake, check) for name, command in commands.items()]
    turns = [[case() for case in cases] for _ in range(rounds)]  # the first one counts, as it does for a user
    seconds = dict(zip(commands, zip(*turns, strict=True), strict=True))
    for name, found in seconds.items():
        report.seconds(TITLES[name], found)
        if name != SPARK:  # its JVM is nobody's child in the end
            report.seconds("  of processor time", commands[name].cpu_seconds)
    for name, least in LEAST_COLD.items():
        if name in seconds and ICEBERG in seconds:
            limit = least if kind.is_limited else None
            report.figure(f"{ICEBERG} / {name}", ratio(seconds[ICEBERG], seconds[name]), "x", least=limit)


class Checked:
    """A case of a command that rewrites the table. The table is set back beforehand, and looked at afterwards."""

    def __init__(self, name: str, command: Command, lake: Lake, check: Check) -> None:
        self._name, self._command, self._lake, self._check = name, command, lake, check

    def __call__(self) -> float:
        self._lake.reset(TABLE)
        seconds = self._command()
        self._check.require_equal(self._name, self._lake.files(TABLE), ordered=True)
        return seconds


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


# -- warm --------------------------------------------------------------------------------------------------------------


def warm(report: Report, kind: Kind, rounds: int, *, spark: bool) -> None:
    """Compare contenders in processes that stay."""
    kind.begin(report, "warm: the second of two runs in a process that stays")
    names = tuple(WARM) if spark else WITHOUT_SPARK
    if not kind.is_limited:  # one run of it takes as long as two rounds of all others
        names = tuple(name for name in names if name != ICEBERG)
    places: dict[str, dict[str, str]] = {}
    for name in names:
        place, contender = WARM[name]
        places.setdefault(place, {})[name] = contender
    with hosts(places, kind.job, kind.folder) as running:
        missing = {name: why for host in running.values() for name, why in host.missing().items()}
        for name, why in missing.items():
            report.line(f"skipped {TITLES[name]}: {why}")
        ready = {name: running[WARM[name][0]] for name in names if name not in missing}
        seconds, used = in_rounds(ready, kind.job, rounds)
    for name in ready:
        report.seconds(TITLES[name], seconds[name])
        report.seconds("  of processor time", used[name])
    for name, least in LEAST_WARM.items():
        if name in ready and ICEBERG in ready:
            report.figure(f"{ICEBERG} / {name}", ratio(seconds[ICEBERG], seconds[name]), "x", least=least)
    for name, native in ((LOCAL, NATIVE), (SPARK, NATIVE_SPARK)):
        if name in ready and native in ready:
            share = ratio(used[name], used[native])
            most = MOST_PROCESSOR_TIME if kind.is_limited else None
            report.figure(f"processor time, {name} / {native}", share, "x", most=most)


def in_rounds(
    ready: dict[str, Host], job: Job, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the seconds and processor seconds of every contender, of the second of two runs a round (tiny: of one)."""
    check = Check(job)
    seconds: dict[str, list[float]] = {name: [] for name in ready}
    used: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, host in ready.items():
            if not job.is_tiny:
                host.run(name)
            found, files = host.run(name)
            check.require_equal(name, files, ordered=True)
            seconds[name].append(found)
            used[name].append(host.cpu_seconds)
    return seconds, used


if __name__ == "__main__":
    main("iceberg", measure, options)
