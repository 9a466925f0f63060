"""Which delete files apply to which data files (Apache Iceberg specification, "Scan Planning")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.iceberg.entries import ColumnBounds, FileEntries
from tblctl.tableformat.iceberg.partitions import Partitions
from tblctl.tableformat.model.statistics import Deletions

POSITION, EQUALITY = 1, 2
"""What a delete file has: positions of rows in files, or values of rows."""

PATH_COLUMN = 2_147_483_546
"""The column of position deletes with the path of the data file."""

POSITION_COLUMN = 2_147_483_545
"""The column of position deletes with the position of the row in the data file, from 0."""

PartitionKey = tuple[int, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class DeleteFiles:
    """The live delete files of a snapshot, one row each.

    Attributes:
        entries: the files.
        partitions: the partition of each.
        least_path, greatest_path: bounds of the paths of data files that position deletes are about, large_string; null
            if unknown.
    """

    entries: FileEntries
    partitions: Partitions
    least_path: pa.Array
    greatest_path: pa.Array

    @classmethod
    def of(cls, entries: FileEntries, partitions: Partitions, paths: ColumnBounds) -> DeleteFiles:
        """Return delete files with the bounds of their path column. Truncated bounds are bounds, too."""
        return cls(
            entries=entries,
            partitions=partitions,
            least_path=paths.lower.cast(pa.large_string()),
            greatest_path=paths.upper.cast(pa.large_string()),
        )

    def __len__(self) -> int:
        return len(self.entries)


def deletes_of(
    paths: Sequence[str],
    sequence_numbers: Sequence[int],
    keys: Sequence[PartitionKey],
    deletes: DeleteFiles,
) -> list[tuple[int, ...]]:
    """Return for each data file the numbers of the delete files that may apply to it, ascending.

    A position delete applies to files of its partition, and an equality delete to files of its partition, or to all if
    its spec has no partitions. Position deletes apply to files that are not newer, equality deletes to older ones.

    Args:
        paths: of the data files.
        sequence_numbers: the data sequence number of each.
        keys: the partition of each, from `partition_keys`.
        deletes: the snapshot's delete files.
    """
    if not len(deletes):
        return [()] * len(paths)
    by_partition: dict[PartitionKey, list[int]] = {}
    everywhere: list[int] = []
    for number, (key, content) in enumerate(
        zip(partition_keys(deletes.partitions), deletes.entries.content.tolist(), strict=True)
    ):
        if content == EQUALITY and not deletes.partitions.values[int(deletes.partitions.code[number])]:
            everywhere.append(number)
        else:
            by_partition.setdefault(key, []).append(number)
    places = {key: np.array(sorted({*found, *everywhere})) for key, found in by_partition.items()}
    others = np.array(everywhere, np.int64)
    return [
        tuple(_applying(path, number, places.get(key, others), deletes))
        for path, number, key in zip(paths, sequence_numbers, keys, strict=True)
    ]


def _applying(path: str, sequence_number: int, candidates: np.ndarray, deletes: DeleteFiles) -> list[int]:
    """Return which of some delete files may apply to a data file of their partition."""
    entries = deletes.entries
    is_position = entries.content[candidates] == POSITION
    later = entries.sequence_number[candidates] >= sequence_number + ~is_position
    chosen = candidates[later]
    take = pa.array(chosen)
    text = pa.scalar(path, pa.large_string())
    named = pc.fill_null(pc.equal(entries.referenced.take(take), text), fill_value=True)
    above = pc.fill_null(pc.less_equal(deletes.least_path.take(take), text), fill_value=True)
    below = pc.fill_null(pc.greater_equal(deletes.greatest_path.take(take), text), fill_value=True)
    about = np.asarray(pc.and_(named, pc.and_(above, below)), bool)
    found: list[int] = chosen[about | (entries.content[chosen] == EQUALITY)].tolist()
    return found


def deletions_of(entries: FileEntries, keys: Sequence[PartitionKey], deletes: DeleteFiles) -> Deletions:
    """Return how many files of position deletes apply to each of some data files, and how many rows these delete.

    A delete file of one data file (it names that, or its bounds of the path are equal) deletes as many rows as it has.
    Of others it is not known whose rows they delete: the data files that they may be about share them by their rows.
    A delete file that is older than a data file cannot name it, although its sequence number may say that it applies:
    a rewrite keeps the number of what it replaces. So a file that was just rewritten has no deletes.

    Takes O(n) for n data files, and O(m) for each delete file of several, which has m data files in its partition.
    Equality deletes do not count: files that they apply to are not rewritten.

    Args:
        entries: the data files.
        keys: the partition of each, from `partition_keys`.
        deletes: the snapshot's delete files.
    """
    files, rows = np.zeros(len(entries), np.int64), np.zeros(len(entries))
    about_rows = np.flatnonzero(deletes.entries.content == POSITION)
    if about_rows.size:
        one = pc.if_else(pc.equal(deletes.least_path, deletes.greatest_path), deletes.least_path, None)
        target = pc.coalesce(deletes.entries.referenced.cast(pa.large_string()), one).take(
            pa.array(about_rows)
        )
        is_of_one = np.asarray(target.is_valid())
        place = np.asarray(pc.fill_null(pc.index_in(target, entries.path.cast(pa.large_string())), -1))
        found = is_of_one & (place >= 0)
        mine, chosen = place[found], about_rows[found]
        later = deletes.entries.sequence_number[chosen] >= _added(entries)[mine]
        np.add.at(files, mine[later], 1)
        np.add.at(rows, mine[later], deletes.entries.rows[chosen[later]])
        _add_shared(files, rows, about_rows[~is_of_one], (entries, keys, deletes))
    return Deletions(files=files, rows=np.minimum(rows, entries.rows))


def _add_shared(
    files: np.ndarray,
    rows: np.ndarray,
    numbers: np.ndarray,
    of: tuple[FileEntries, Sequence[PartitionKey], DeleteFiles],
) -> None:
    """Add the delete files `numbers`, each of several data files, to the counts of `deletions_of`."""
    entries, keys, deletes = of
    if not numbers.size:
        return
    codes = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    code = np.array([codes[key] for key in keys], np.int64)
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], np.arange(len(codes) + 1))
    added = _added(entries)
    delete_keys = partition_keys(deletes.partitions)
    for number in numbers.tolist():
        here = codes.get(delete_keys[number])
        if here is None:
            continue
        places = order[ends[here] : ends[here + 1]]
        places = places[added[places] <= deletes.entries.sequence_number[number]]
        paths = entries.path.take(pa.array(places))
        for compare, bound in (
            (pc.greater_equal, deletes.least_path[number]),
            (pc.less_equal, deletes.greatest_path[number]),
        ):
            if bound.is_valid:
                places = places[np.asarray(compare(paths, bound))]
                paths = entries.path.take(pa.array(places))
        stored = entries.rows[places]
        files[places] += 1
        rows[places] += deletes.entries.rows[number] * stored / max(int(stored.sum()), 1)


def _added(entries: FileEntries) -> np.ndarray:
    """Return since which sequence number each data file is there."""
    found: np.ndarray = np.maximum(entries.sequence_number, entries.file_sequence_number)
    return found


def partition_keys(partitions: Partitions) -> list[PartitionKey]:
    """Return for each file what distinguishes its partition from all others, in any listing of the table."""
    keys = [
        (spec_id, repr(values))
        for spec_id, values in zip(partitions.spec_ids, partitions.values, strict=True)
    ]
    return [keys[code] for code in partitions.code.tolist()]
