"""The floor, and our merge in this process."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

import tblctl
from benchmarks.merging.contender import KEY, PROCESSES, Job
from tblctl.tableformat.parquet.encodings import NUMBERS, TEXT


class Floor:
    """Decode and encode on two processes that were started beforehand, without moving rows.

    The settings are pyarrow's defaults, with the codec and row groups of the other contenders.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self._pool = multiprocessing.get_context("spawn").Pool(PROCESSES)
        self._folder = folder / "out"
        self._files = self._input(job, folder)
        self._write = partial(_copy, folder=str(self._folder), writer=self._writer(job))

    def _input(self, job: Job, folder: Path) -> Sequence[str]:  # noqa: ARG002
        return job.files

    def _writer(self, job: Job) -> dict[str, object]:
        return {"row_group_size": job.row_group_rows, "compression": "zstd", "compression_level": 1}

    def reset(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def run(self) -> None:
        self._pool.map(self._write, self._files, chunksize=1)

    def output(self) -> list[str]:
        return [str(file) for file in self._folder.iterdir()]


class FloorOfOurs(Floor):
    """The floor for our blocks as input and our encodings, so it also has the gains of good encodings."""

    def _input(self, job: Job, folder: Path) -> Sequence[str]:
        return block_files(append_all(job, folder / "table"))

    def _writer(self, job: Job) -> dict[str, object]:
        footer = pq.read_metadata(self._files[0]).row_group(0)
        chunks = [footer.column(number) for number in range(footer.num_columns)]
        return super()._writer(job) | {
            "store_decimal_as_integer": True,
            "use_dictionary": [chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page],
            "column_encoding": {
                chunk.path_in_schema: name
                for chunk in chunks
                for name in {NUMBERS, TEXT} & set(chunk.encodings)
            },
        }


def _copy(file: str, *, folder: str, writer: dict[str, object]) -> None:
    rows = pq.ParquetFile(file).read(use_threads=False)
    pq.write_table(rows, f"{folder}/{Path(file).name}", **writer)


def append_all(job: Job, place: Path, *, key: str | None = KEY, **options: object) -> tblctl.Table:
    """Make a table of the job's files, one append each. If they are not sorted, the key is set afterwards.

    A curve takes its boundaries from all of them.
    """
    chosen = {"row_group_rows": job.row_group_rows, "block_rows": job.block_rows, **options}
    table = tblctl.create(
        place,
        tblctl.read_schema(job.files[0]),
        cluster_by=key if job.is_sorted else None,
        options=chosen,
        sample=pq.read_table(list(job.files)) if key and "(" in key else None,
    )
    for file in job.files:
        table.append(file)
    if not job.is_sorted and key:
        table.set_cluster_key(key)
    return table


def block_files(table: tblctl.Table) -> list[str]:
    """Return the files of a table on the local disk."""
    root = table.location.removeprefix("file://")
    return [f"{root}/{block.path}" for block in table.files()]


class Local:
    """Plan, merge, verify and commit in one process. `merged_blocks` is the expected number of merged blocks."""

    def __init__(self, job: Job, folder: Path, *, key: str | None = KEY, **options: object) -> None:
        self.base = append_all(job, folder / "base", key=key, **options)
        self._place = folder / "copy"
        self.merged_blocks = len(job.files)

    def reset(self) -> None:
        self.table = fresh_copy(self.base, self._place)

    def run(self) -> None:
        self.outcome = outcome = self._recluster()
        if (outcome.committed_groups, outcome.blocks_in) != (1, self.merged_blocks):
            msg = f"expected {self.merged_blocks} blocks to be merged as one group, got {outcome}"
            raise AssertionError(msg)

    def _recluster(self) -> tblctl.Outcome:
        return self.table.recluster(policy="full", engine="local")

    def output(self) -> list[str]:
        return block_files(self.table)


def fresh_copy(table: tblctl.Table, place: Path) -> tblctl.Table:
    """Return a copy of a table."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(table.location.removeprefix("file://"), place, copy_function=_link_or_copy)
    return tblctl.open(place)


def _link_or_copy(source: str, target: str) -> None:
    """Hard-link immutable files, copy the others."""
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)
