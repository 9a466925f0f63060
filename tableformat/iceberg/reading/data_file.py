"""A data file to be merged, with what a task needs to know of it beside its bytes."""

from __future__ import annotations

from dataclasses import dataclass

from tblctl.tableformat.model.block import Block


@dataclass(frozen=True, kw_only=True)
class DataFile(Block):
    """A data file of a snapshot. `Inputs.live` fills in what follows; it travels with the file into tasks.

    Attributes:
        sequence_number: the data sequence number.
        deletes: paths of the position delete files that may have rows of it.
        null_counts: nulls of columns in all its stored rows, by id, as far as its manifest counts them.
        stored_ids: columns that it certainly has by its manifest, although their nulls are not counted, by id; those
            inside lists and maps among them.
        constants: texts of the partition's values, by column id, of columns that it is partitioned by as they are. They
            are all rows' values if the file lacks such a column.
    """

    sequence_number: int = 0
    deletes: tuple[str, ...] = ()
    null_counts: tuple[tuple[int, int], ...] = ()
    stored_ids: tuple[int, ...] = ()
    constants: tuple[tuple[int, object], ...] = ()
