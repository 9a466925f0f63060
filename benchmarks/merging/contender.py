"""The interface of contenders, their processes, and the check of their output."""

from __future__ import annotations

import gc
import importlib
import itertools
import math
import multiprocessing
import os
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KEY = "l_shipdate"
PROCESSES = 2  # all contenders may use so many processors


class MissingError(Exception):
    """Something that a contender needs is not installed."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job of every contender: sort the rows of `files` by `KEY`.

    Attributes:
        files: Parquet files, which contenders must not change.
        is_sorted: whether each file is sorted.
        block_rows: rows of an output file, for contenders that have such a setting.
        output_files: about how many output files, for contenders without that setting.
        row_group_rows: rows of a row group in input and output, for contenders that have such a setting.
        is_tiny: times mean nothing: runs need not be warm, nor wait until the disk has what others wrote.
        columns: those by which layouts of several columns order the rows.
        lake: the folder of a `Lake` in which PyIceberg wrote the files as data files of a table; None for files that
            are of no Iceberg table.
    """

    files: tuple[str, ...]
    is_sorted: bool
    block_rows: int
    output_files: int
    row_group_rows: int
    is_tiny: bool = False
    columns: tuple[str, ...] = (KEY,)
    lake: Path | None = None

    @property
    def output_bytes(self) -> int:
        """The approximate size of an output file."""
        return sum(Path(file).stat().st_size for file in self.files) // self.output_files


class Contender(Protocol):
    """One way to do the job. It is constructed in its own process. Only `run` is timed.

    The constructor takes the job and an empty folder.

    Raises:
        MissingError: the constructor lacks something that is not installed.
    """

    def reset(self) -> None:
        """Prepare a run: restore the input, and warm caches and workers."""

    def run(self) -> None:
        """Do the job."""

    def output(self) -> Sequence[str]:
        """Return the Parquet files that the last run wrote."""


def cut_input(
    source: Path, folder: Path, *, rows: int, row_group_rows: int, is_sorted: bool
) -> tuple[str, ...]:
    """Cut a file into blocks in the order of its rows, each sorted by `KEY` or as it is, zstd level 1."""
    folder.mkdir()
    schema = pq.read_schema(source)
    plain = [item.with_type(pa.string()) if pa.types.is_string_view(item.type) else item for item in schema]
    table = pq.read_table(source, schema=pa.schema(plain))
    files = []
    for number, start in enumerate(range(0, table.num_rows, rows)):
        files.append(str(folder / f"{number:04}.parquet"))
        block = table.slice(start, rows).combine_chunks()
        block = block.sort_by(KEY) if is_sorted else block
        pq.write_table(
            block, files[-1], compression="zstd", compression_level=1, row_group_size=row_group_rows
        )
    return tuple(files)


def link_all(files: Sequence[str], folder: Path) -> None:
    """Make a folder with hard links to some files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in files:
        os.link(file, folder / Path(file).name)


# -- processes -------------------------------------------------------------------------------------------------------


class Host:
    """A process with one or more contenders that stay warm between runs.

    `cpu_seconds` is the processor time of the last run, with that of all processes that this one started.
    """

    cpu_seconds = math.nan

    def __init__(self, process: multiprocessing.process.BaseProcess, end: Connection) -> None:
        self._process = process
        self._end = end

    def missing(self) -> dict[str, str]:
        """Wait until the contenders are ready. Return the reasons why some are missing."""
        return self._received()

    def run(self, name: str) -> tuple[float, list[str]]:
        """Return the seconds of a run and the files that it wrote.

        Raises:
            AssertionError: the contender itself finds that it did not do the job.
        """
        self._end.send(name)
        seconds, self.cpu_seconds, files = self._received()
        return seconds, files

    def close(self) -> None:
        """End the process."""
        self._end.close()
        self._process.join()

    def _received(self):
        try:
            answer, failure = self._end.recv()
        except EOFError:
            self._process.join()
            msg = f"the process of a contender ended with {self._process.exitcode}"
            answer, failure = None, RuntimeError(msg)
        if failure:
            raise failure
        return answer


@contextmanager
def hosts(places: dict[str, dict[str, str]], job: Job, folder: Path) -> Iterator[dict[str, Host]]:
    """Yield a process for each of `places`, with contenders by name as `module:class` of this package."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, Host] = {}
    try:
        for place, contenders in places.items():
            mine, theirs = context.Pipe()
            own = folder / place
            own.mkdir()
            process = context.Process(target=_serve, args=(theirs, contenders, job, str(own)))
            process.start()
            theirs.close()
            found[place] = Host(process, mine)
        yield found
    finally:
        for host in found.values():
            host.close()


def _serve(end: Connection, contenders: dict[str, str], job: Job, folder: str) -> None:
    os.chdir(folder)  # some engines write where they are
    try:
        ready, missing = _constructed(contenders, job, Path(folder))
        end.send((missing, None))
        while True:
            contender = ready[end.recv()]
            contender.reset()
            gc.collect()
            if not job.is_tiny:
                os.sync()
            used, started = _cpu_seconds(), time.perf_counter()
            try:
                contender.run()
                seconds = time.perf_counter() - started
                used = _cpu_seconds() - used
                end.send(((seconds, used, list(contender.output())), None))
            except AssertionError as error:
                end.send((None, error))
    except EOFError:
        return
    except Exception:  # noqa: BLE001 (raised again in the parent)
        end.send((None, RuntimeError(traceback.format_exc())))


def _cpu_seconds() -> float:
    """Return the processor time of this process and all below it, also of those that ended (Linux)."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        processes[int(path.parent.name)] = int(words[1]), sum(map(int, words[11:15]))
    below, ticks = {os.getpid()} & set(processes), 0
    while below:
        ticks += sum(processes[process][1] for process in below)
        below = {process for process, (parent, _) in processes.items() if parent in below}
    return ticks / os.sysconf("SC_CLK_TCK") if processes else math.nan


def _constructed(
    contenders: dict[str, str], job: Job, folder: Path
) -> tuple[dict[str, Contender], dict[str, str]]:
    ready, missing = {}, {}
    for name, path in contenders.items():
        module, _, kind = path.partition(":")
        own = folder / name
        own.mkdir()
        try:
            ready[name] = getattr(importlib.import_module(f"benchmarks.merging.{module}"), kind)(job, own)
        except (ImportError, MissingError) as error:
            missing[name] = str(error)
    return ready, missing


# -- the check -------------------------------------------------------------------------------------------------------


class Check:
    """Compares what contenders wrote with the rows of the input."""

    def __init__(self, job: Job) -> None:
        self._schema = pq.read_schema(job.files[0])
        self._expected = self._fingerprint(job.files)

    def require_equal(self, name: str, files: Sequence[str], *, ordered: bool) -> None:
        """Check the output of a contender.

        Raises:
            AssertionError: the rows differ, or they are not in order although they should be.
        """
        if self._fingerprint(files) != self._expected:
            msg = f"{name} wrote other rows than it read"
            raise AssertionError(msg)
        if ordered and not _in_order(files):
            msg = f"{name} wrote rows that are not in the order of {KEY}"
            raise AssertionError(msg)

    def _fingerprint(self, files: Sequence[str]) -> tuple[int, int]:
        """Return the number of rows and the sum of their hashes."""
        import duckdb

        kinds = {"int64": "BIGINT", "int32": "INTEGER", "date32[day]": "DATE", "string": "VARCHAR"}
        columns = ", ".join(
            f"{item.name}::{kinds.get(str(item.type), 'DECIMAL(15, 2)')}" for item in self._schema
        )
        with duckdb.connect(config={"threads": PROCESSES}) as connection:
            rows = connection.execute(
                f"SELECT count(*), sum(hash({columns})::HUGEINT) FROM read_parquet(?)", [list(files)]
            )
            return rows.fetchone()


def _in_order(files: Sequence[str]) -> bool:
    ranges = []
    for file in files:
        keys = pq.read_table(file, columns=[KEY]).column(0).combine_chunks()
        if not pc.all(pc.less_equal(keys[:-1], keys[1:]), min_count=0).as_py():
            return False
        if len(keys):
            ranges.append((keys[0].as_py(), keys[-1].as_py()))
    return all(before[1] <= after[0] for before, after in itertools.pairwise(sorted(ranges)))
