"""Check an Iceberg table at one snapshot. Report all problems, change nothing.

Shallow: all its metadata can be read. Deep: every live data file and delete file is also read, and compared with what
its manifest says; see `check_file`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.errors import InvalidOptionError, TblctlError
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.own_keys import read_side_file
from tblctl.tableformat.iceberg.reading.inputs import Inputs
from tblctl.tableformat.iceberg.upkeep.check_file import DeleteCheck, FileCheck
from tblctl.tableformat.iceberg.version import IcebergVersion
from tblctl.tableformat.port import MOST_PROBLEMS, Checked
from tblctl.tableformat.progress import Progress

if TYPE_CHECKING:
    from tblctl.tableformat.port import Listing

_FILES_AT_ONCE = 10_000
"""Of which single values exist."""


def check_table(
    version: IcebergVersion, storages: DataStorage, *, deep: bool, progress: Progress | None
) -> Checked:
    """Verify a version.

    Raises:
        InvalidOptionError: `deep`, and some data files are not Parquet, or are encrypted.
    """
    problems: list[str] = []
    segments = rows = blocks = 0
    try:
        files = version.files
        blocks, rows = len(files), int(files.row_count.sum())
        files.fetch(version.schema.leaves)
        segments = len(version.manifests)
    except TblctlError as error:
        problems.append(str(error))
    else:
        if deep:
            _require_readable(version)
            problems += _deep_problems(version, storages, progress)
    return Checked(
        snapshots=len(version.metadata.snapshots),
        segments=segments,
        blocks=blocks,
        rows=rows,
        problems=tuple(problems[:MOST_PROBLEMS]),
    )


def _require_readable(version: IcebergVersion) -> None:
    entries = version.files.entries
    others = pc.unique(entries.format.filter(pc.not_equal(pc.utf8_upper(entries.format), "PARQUET")))
    what = [f"{name} files" for name in sorted(others.to_pylist())]
    what += ["encrypted files"] if entries.encrypted.any() else []
    if what:
        msg = (
            f"{version.location}: check --deep reads plain Parquet files, and the table has {' and '.join(what)}; "
            "check without --deep reads its metadata"
        )
        raise InvalidOptionError(msg)


def _deep_problems(version: IcebergVersion, storages: DataStorage, progress: Progress | None) -> list[str]:
    """Return the problems of files. Each is read once, those of key columns of tblctl's own files too."""
    try:
        checks = _delete_checks(version, storages)
        listing = None if version.sort is None else version.listing(version.sort, None)
    except TblctlError as error:
        return [str(error)]
    total, done, lock = len(version.files) + len(checks), 0, Lock()

    def work(check: Callable[[], Iterator[str]]) -> list[str]:
        nonlocal done
        found: list[str] = []
        try:
            found.extend(check())
        except TblctlError as error:
            found.append(str(error))
        with lock:
            done += 1
            if progress:
                progress(done, total, "files")
        return found

    problems = _side_file_problems(version)
    for part in (checks, *_file_checks(version, storages, listing)):
        problems += [line for lines in in_parallel(work, part, threads=cpu_threads()) for line in lines]
    return problems


def _file_checks(
    version: IcebergVersion, storages: DataStorage, listing: Listing | None
) -> Iterator[list[Callable[[], Iterator[str]]]]:
    """Yield checks of data files, a part of the table at a time, in the order of their manifests."""
    inputs, entries = Inputs(version, storages), version.files.entries
    for start in range(0, len(entries), _FILES_AT_ONCE):
        paths = entries.path.slice(start, _FILES_AT_ONCE).to_pylist()
        blocks = version.blocks(paths)
        checks = [
            FileCheck(version=version, inputs=inputs, block=blocks[path], row=start + place, listing=listing)
            for place, path in enumerate(paths)
        ]
        yield [check.problems for check in checks]


def _delete_checks(version: IcebergVersion, storages: DataStorage) -> list[Callable[[], Iterator[str]]]:
    entries = version.deletes.entries
    facts = (entries.path, entries.format, np.asarray(entries.content), entries.rows, entries.size_bytes)
    return [
        partial(
            DeleteCheck(
                path=path, form=form, content=int(content), rows=int(rows), size_bytes=int(size)
            ).problems,
            storages,
        )
        for path, form, content, rows, size in zip(*(fact.tolist() for fact in facts), strict=True)
    ]


def _side_file_problems(version: IcebergVersion) -> list[str]:
    """Return which files of keys are damaged. They may be missing: footers have the same."""
    found = []
    for path in version.side_files(version.sort) if version.sort is not None else ():
        try:
            data = version.content_of(path)
        except TblctlError:
            continue
        if read_side_file(data) is None:
            found.append(f"{path} is damaged: it is no file of keys; footers of data files are read instead")
    return found
