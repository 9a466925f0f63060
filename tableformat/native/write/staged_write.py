"""Staged writes: tasks in other processes write blocks for one version, and one commit publishes them together."""

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
class StagedWrite:
    """Written but unpublished blocks, and the version of the table that they were written for."""

    table_id: str
    sequence: int
    schema_id: int
    records: tuple[BlockRecord, ...]

    @property
    def paths(self) -> list[str]:
        """The blocks' names."""
        return [record.path for record in self.records]


@dataclass(frozen=True, kw_only=True)
class StagedWriter:
    """Stages rows for one version. Pickles into tasks, secrets included: never show or log that.

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
    ) -> StagedWriter:
        """Return a writer for `head`; without `memory_bytes` with the table's own budget."""
        return cls(
            storage=storage,
            env=env,
            layout=layout_of(head),
            table_id=head.table_id,
            sequence=head.sequence,
            memory_bytes=memory_bytes or head.options.memory_bytes,
        )

    def write(self, schema: pa.Schema, tables: Iterable[pa.Table]) -> StagedWrite:
        """Write rows of a schema as one staged write.

        Raises:
            SchemaMismatchError, InvalidDataError: the rows do not fit. As after any error, written blocks are deleted
                as far as possible.
        """
        writer = BlockWriter(self.storage, self.env, self.layout)
        try:
            Conformer.plan(schema, self.layout.schema)  # refuses before anything is written
            rows = conformed(tables, self.layout.schema)
            records = writer.write_stream(rows, memory_bytes=self.memory_bytes)
        except BaseException:  # also if the task is cancelled
            writer.discard()
            raise
        return self._staged(tuple(records))

    def nothing(self) -> StagedWrite:
        """Return a staged write without rows."""
        return self._staged(())

    def _staged(self, records: tuple[BlockRecord, ...]) -> StagedWrite:
        return StagedWrite(
            table_id=self.table_id,
            sequence=self.sequence,
            schema_id=self.layout.schema_id,
            records=records,
        )


def joined(writes: Sequence[StagedWrite]) -> StagedWrite:
    """Combine at least one staged write for one version into one.

    Raises:
        InternalError: they are for several versions.
    """
    versions = {(staged.table_id, staged.sequence, staged.schema_id) for staged in writes}
    if len(versions) != 1:
        msg = f"staged writes for {len(versions)} versions of the table cannot be joined"
        raise InternalError(msg)
    ((table_id, sequence, schema_id),) = versions
    records = tuple(record for staged in writes for record in staged.records)
    return StagedWrite(table_id=table_id, sequence=sequence, schema_id=schema_id, records=records)


def check_staged(storage: Storage, staged: StagedWrite, head: Snapshot) -> None:
    """Refuse to publish a staged write on top of a head that cannot read it.

    Raises:
        TableNotFoundError: the table was dropped meanwhile, perhaps created again.
        ConflictError: it was rolled back to another schema.
    """
    if head.table_id != staged.table_id or head.sequence < staged.sequence:
        raise dropped(storage)
    if head.schema_id == staged.schema_id:
        return
    if any(summary.operation == ROLLBACK for summary in summaries_since(storage, staged.sequence, head)):
        msg = (
            f"{storage.url} was rolled back to another schema while rows were written; nothing was committed: "
            "write again"
        )
        raise ConflictError(msg)
