"""What tblctl leaves in the names and footers of its data files: table, level, run, sort, and the keys of both ends.

A file's name is `tblctl-TABLE-l0-sSORT-rRUN-UNIQUE.parquet`. TABLE is the table's UUID: a folder may hold several
tables' files, and gc must not touch others'. Bounds of columns are not bounds of keys: so the keys of the first row and
the last are in the footer's key-value metadata, and come back exactly.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tblctl.tableformat.model.record import BlockRecord

KEYS = "tblctl.keys"
"""The entry of a footer's key-value metadata with the file's keys: a row of `key_rows`, an Arrow stream in base64."""

NAME = (
    r"(?s)^(?:.*/)?tblctl-(?P<table>[0-9a-f]{32})-l(?P<level>-?[0-9]{1,9})-s(?P<sort>[0-9a-f]{12})"
    r"-r(?P<run>[0-9a-f]{1,64})-[0-9a-f]{32}\.parquet$"
)
"""The pattern of paths, for Python and for Arrow."""


UNORDERED = 0
"""In a name, in the place of the sort: the file is in no order."""


@dataclass(frozen=True, kw_only=True)
class OwnName:
    """What the name of one of tblctl's files says.

    Attributes:
        table: the table's UUID, 32 hexadecimal digits.
        level, run_id: see `Block`.
        sort_id: the sort in whose order the file is; 0 for none.
    """

    table: str
    level: int
    sort_id: int
    run_id: str

    def with_id(self, unique: str) -> str:
        """Return a file's name; `unique` has 32 hexadecimal digits."""
        return f"tblctl-{self.table}-l{self.level}-s{self.sort_id:012x}-r{self.run_id}-{unique}.parquet"


def parse_name(path: str) -> OwnName | None:
    """Return what a file's name says; None if tblctl did not write it."""
    found = re.match(NAME, path)
    if found is None:
        return None
    return OwnName(
        table=found["table"], level=int(found["level"]), sort_id=int(found["sort"], 16), run_id=found["run"]
    )


def key_rows(records: Sequence[BlockRecord]) -> pa.Table:
    """Return the keys of files of one sort, one row each: path, low.0, .., high.0, .., exact, same_key_rows.

    `same_key_rows` is -1 if unknown. There is at least one file.
    """
    columns: dict[str, Any] = {"path": pa.array([record.path for record in records], pa.string())}
    for name, ends in (
        ("low", [record.key_min for record in records]),
        ("high", [record.key_max for record in records]),
    ):
        for place, values in enumerate(zip(*ends, strict=True)):
            columns[f"{name}.{place}"] = pa.array(list(values), values[0].type)
    columns["exact"] = pa.array([record.key_exact for record in records], pa.bool_())
    same = [-1 if record.same_key_rows is None else record.same_key_rows for record in records]
    columns["same_key_rows"] = pa.array(same, pa.int64())
    return pa.table(columns)


def encode_keys(record: BlockRecord) -> str:
    """Return the keys of a file for its footer."""
    sink = pa.BufferOutputStream()
    rows = key_rows([record])
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode()


def decode_keys(text: str | bytes) -> pa.Table | None:
    """Return the row of `key_rows` that a footer has; None if it cannot be read."""
    try:
        rows = pa.ipc.open_stream(base64.b64decode(text, validate=True)).read_all()
        rows.validate(full=True)  # otherwise offsets of text lead anywhere in memory
    except (ValueError, pa.ArrowException, OSError):
        return None
    return rows if rows.num_rows == 1 and "same_key_rows" in rows.column_names else None
