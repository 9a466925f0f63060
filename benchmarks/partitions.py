"""Plans of an Iceberg table of 10,000 partitions, each with 6 files that overlap: from opening it to the plan.

Only the metadata exists: an append for each file of a partition, whose manifest names all partitions. The table lies on
local disk, its catalog is SQLite. It is partitioned by a column as it is. Each policy plans a group a partition.
Files are large, so that `levels` looks at depths; it merges small levels without.

In this process a run opens the table, and reads its manifests, anew. A command is a new process, from its start to its
end, with imports and the text of the plan. Seconds are of the clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import Command, Report, in_turn, main, scratch, script

PARTITIONS, FILES = 10_000, 6
RUNS = 7
MOST_SECONDS = 2.0
CASES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("full", {}),
    ("levels", {}),
)


def measure(report: Report, tiny: bool) -> None:
    partitions, runs = (20, 1) if tiny else (PARTITIONS, RUNS)
    limit = None if tiny else MOST_SECONDS
    with scratch() as folder:
        made = Made(folder, partitions)
        report.line(
            f"{partitions:,} partitions, {partitions * FILES:,} files in {FILES} manifests; {runs} runs in turn"
        )
        names = [
            ", ".join([policy, *(f"{name} {value}" for name, value in options.items())])
            for policy, options in CASES
        ]
        report.begin("in this process, from open to plan")
        planning = in_turn([made.planning(policy, options) for policy, options in CASES], runs=runs)
        for name, seconds in zip(names, planning, strict=True):
            report.seconds(name, seconds)
            report.figure("  median", statistics.median(seconds), "s", most=limit)
        where = in_turn([made.planning("full", {}, where="region = 7")], runs=runs)[0]
        report.seconds("full, --where of one partition", where)
        report.begin("tblctl recluster --dry-run, a new process")
        commands = [made.command(policy, options) for policy, options in CASES]
        shown = in_turn([made.command("full", {}, "info"), *commands], runs=1 if tiny else 3)
        for name, seconds, command in zip(("(tblctl info)", *names), shown, (None, *commands), strict=True):
            report.seconds(name, seconds)
            if command is not None:
                report.seconds("  processor time", command.cpu_seconds[-(1 if tiny else 3) :])


class Made:
    """The table, of files that do not exist."""

    def __init__(self, folder: Path, partitions: int) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import LongType, NestedField, StringType

        self._options = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder)}
        catalog = load_catalog("lake", **self._options)
        catalog.create_namespace("db")
        schema = Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "region", LongType()),
            NestedField(3, "text", StringType()),
        )
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
        properties = {"tblctl.cluster-by": "id"}
        self._table = catalog.create_table("db.t", schema, partition_spec=spec, properties=properties)
        self._partitions = partitions
        for number in range(FILES):
            self._append(number)

    def _append(self, number: int) -> None:
        with self._table.transaction() as change, change.update_snapshot().fast_append() as update:
            for region in range(self._partitions):
                update.append_data_file(self._file(number, region))

    def _file(self, number: int, region: int) -> Any:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        low, high = (place.to_bytes(8, "little") for place in (number, 1_000_000 + number))
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._table.location()}/data/region={region}/{number:05d}-{region:05d}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(region),
            record_count=1_000_000,
            file_size_in_bytes=128 << 20,
            value_counts=dict.fromkeys((1, 2, 3), 1_000_000),
            null_value_counts=dict.fromkeys((1, 2, 3), 0),
            lower_bounds={1: low, 2: region.to_bytes(8, "little"), 3: b"furiously"},
            upper_bounds={1: high, 2: region.to_bytes(8, "little"), 3: b"quickly"},
        )
        file.spec_id = 0
        return file

    def planning(
        self, policy: str, options: Mapping[str, Any], where: str | None = None
    ) -> Callable[[], float]:
        """Return what plans once, and returns the seconds of that."""
        import tblctl

        def run() -> float:
            started = time.perf_counter()
            table = tblctl.open("iceberg://lake/db.t", catalog_options=self._options)
            plan = table.plan(policy=policy, where=where, options=options)
            seconds = time.perf_counter() - started
            assert len(plan.groups) == (self._partitions if where is None else 1)
            return seconds

        return run

    def command(self, policy: str, options: Mapping[str, Any], name: str = "recluster") -> Command:
        """Return the command that plans; or another one."""
        chosen = [f"--catalog-option={name}={value}" for name, value in self._options.items()]
        words = ["--dry-run", "--policy", policy] if name == "recluster" else []
        words += [word for option, value in options.items() for word in (f"--{option}", str(value))]
        return Command(script("tblctl"), name, "iceberg://lake/db.t", *words, *chosen)


if __name__ == "__main__":
    main("partitions", measure)
