"""Which ids a table gave to columns: another numbering in a file shows that its writer did not know the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField


@dataclass(frozen=True, kw_only=True)
class GivenIds:
    """The ids that a table gave, as far as its metadata says.

    Attributes:
        last: the highest one.
        reused: names that columns of several ids had, with these, at any depth: a column was dropped or renamed, and
            another one took its name.
    """

    last: int
    reused: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, metadata: TableMetadata) -> GivenIds:
        """Return the ids in all schemas of a table. O(fields of all schemas)."""
        found: dict[str, set[int]] = {}
        for schema in metadata.schemas:
            for field in _fields(schema):
                found.setdefault(field.name, set()).add(field.field_id)
        reused = {name: frozenset(ids) for name, ids in found.items() if len(ids) > 1}
        return cls(last=metadata.last_column_id, reused=reused)

    def objection(self, name: str, id_: int) -> str | None:
        """Say why a column of this name that the table has by another id cannot have `id_`; None if it can."""
        if id_ > self.last:
            return f"which the table never gave (the last one is {self.last})"
        if id_ not in self.reused.get(name, ()):
            return "which no schema of the table gives to that name"
        return None


def _fields(schema: IcebergSchema) -> Iterable[NestedField]:
    from pyiceberg.types import ListType, MapType, StructType

    waiting = list(schema.fields)
    while waiting:
        field = waiting.pop()
        yield field
        kind = field.field_type
        if isinstance(kind, StructType):
            waiting += kind.fields
        elif isinstance(kind, ListType):
            waiting.append(kind.element_field)
        elif isinstance(kind, MapType):
            waiting += (kind.key_field, kind.value_field)
