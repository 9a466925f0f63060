"""A write in parts: tasks elsewhere write blocks for one version of a table, and one commit publishes them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ConflictError, InternalError
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.snapshot import ROLLBACK, Snapshot
from tblctl.tableformat.native.blocks import layout_of
from tblctl.tableformat.native.log.commit import dropped
from tblctl.tableformat.native.log.head import summaries_since
from tblctl.tableformat.native.write.writer import BlockWriter, conformed
from tblctl.tableformat.parquet.block_writer import Layout
from tblctl.tableformat.projection import Conformer
from tblctl.tableformat.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Part:
    """Blocks that tasks wrote and nobody sees yet, and the version of the table that they were written for."""

    table_id: str
    sequence: int
    schema_id: int
    records: tuple[BlockRecord, ...]

    @property
    def paths(self) -> list[str]:
        """The blocks' names."""
        return [record.path for record in self.records]


@dataclass(frozen=True, kw_only=True)
class PartWriter:
    """Writes parts for one version. Pickles into tasks, secrets included: never show or log that.

    Attributes:
        memory_bytes: budget of one task.
    """

    storage: Storage
    env: Environment
    layout: Layout
    table_id: str
    sequence: int
    memory_bytes: int

    @classmethod
    def of(
        cls, storage: Storage, env: Environment, head: Snapshot, *, memory_bytes: int | None = None
    ) -> PartWriter:
        """Return what writes for `head`; the table's own budget for None."""
        return cls(
            storage=storage,
            env=env,
            layout=layout_of(head),
            table_id=head.table_id,
            sequence=head.sequence,
            memory_bytes=memory_bytes or head.options.memory_bytes,
        )

    def write(self, schema: pa.Schema, tables: Iterable[pa.Table]) -> Part:
        """Write rows of a schema as one part.

        Raises:
            SchemaMismatchError, InvalidDataError: the rows do not fit. As after any error, what was written is deleted
                as far as possible.
        """
        writer = BlockWriter(self.storage, self.env, self.layout)
        try:
            rows = conformed(tables, Conformer.plan(schema, self.layout.schema))
            records = writer.write_stream(rows, memory_bytes=self.memory_bytes)
        except BaseException:  # a task that is cancelled too
            writer.discard()
            raise
        return self._part(tuple(records))

    def nothing(self) -> Part:
        """Return a part without rows."""
        return self._part(())

    def _part(self, records: tuple[BlockRecord, ...]) -> Part:
        return Part(
            table_id=self.table_id,
            sequence=self.sequence,
            schema_id=self.layout.schema_id,
            records=records,
        )


def joined(parts: Sequence[Part]) -> Part:
    """Return the parts of one version, at least one, as one.

    Raises:
        InternalError: they are of several versions.
    """
    versions = {(part.table_id, part.sequence, part.schema_id) for part in parts}
    if len(versions) != 1:
        msg = f"parts of one write were written for {len(versions)} versions of the table"
        raise InternalError(msg)
    ((table_id, sequence, schema_id),) = versions
    records = tuple(record for part in parts for record in part.records)
    return Part(table_id=table_id, sequence=sequence, schema_id=schema_id, records=records)


def check_part(storage: Storage, part: Part, head: Snapshot) -> None:
    """Refuse to publish a part on top of a head that cannot read it.

    Raises:
        TableNotFoundError: the table was dropped meanwhile, perhaps created again.
        ConflictError: it was rolled back to another schema.
    """
    if head.table_id != part.table_id or head.sequence < part.sequence:
        raise dropped(storage)
    if head.schema_id == part.schema_id:
        return
    if any(summary.operation == ROLLBACK for summary in summaries_since(storage, part.sequence, head)):
        msg = (
            f"{storage.url} was rolled back to another schema while rows were written; nothing was committed: "
            "write again"
        )
        raise ConflictError(msg)
