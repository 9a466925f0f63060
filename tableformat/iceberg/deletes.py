"""Which delete files apply to which data files (Apache Iceberg specification, "Scan Planning")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.iceberg.entries import ColumnBounds, FileEntries
from tblctl.tableformat.iceberg.partitions import Partitions

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


def partition_keys(partitions: Partitions) -> list[PartitionKey]:
    """Return for each file what distinguishes its partition from all others, in any listing of the table."""
    keys = [
        (spec_id, repr(values))
        for spec_id, values in zip(partitions.spec_ids, partitions.values, strict=True)
    ]
    return [keys[code] for code in partitions.code.tolist()]
