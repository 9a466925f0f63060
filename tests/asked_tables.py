"""Tables that policy `workload` is to sort by columns that their cluster key does not have, and logs of queries."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

import tblctl
from tblctl.tableformat.workload.lines import Header, encode_header, encode_query
from tblctl.tableformat.workload.place import log_path

SCHEMA = pa.schema([("t", pa.int64()), ("a", pa.int64()), ("s", pa.string())])
ROWS, BLOCKS = 100, 8
NARROW = "a between 100 and 140"


def rows_from(first: int, blocks: int = BLOCKS) -> pa.Table:
    chance = random.Random(first)
    values = [chance.randrange(1000) for _ in range(ROWS * blocks)]
    texts = [f"user-{chance.randrange(1000):04d}" for _ in values]
    return pa.table({"t": range(first, first + len(values)), "a": values, "s": texts}, schema=SCHEMA)


def table_of(url: str, policy: str = "workload", **how: Any) -> tblctl.Table:
    """Make a table in the order of `t`, with rows; every block has values of `a` and `s` from everywhere."""
    options = {"block_rows": ROWS, "recluster.policy": policy}
    table = tblctl.create(url, SCHEMA, options=options, **{"cluster_by": ["t"], **how})
    table.append(rows_from(0))
    return table


def record(table: tblctl.Table, where: str, weight: float = 1e6) -> None:
    """Put a query into the log of a table, as if it had run often."""
    port = table._port
    columns = (where.partition(" ")[0],)
    query = tblctl.Query(time=port.env.now(), where=where, columns=columns, weight=weight)
    place = port.log_place()
    lines = [encode_header(Header(table_id=port.newest().table_id)), *[encode_query(query)] * 20]
    place.storage.write(log_path(place.folder, int(query.time * 1000), port.env.new_id()), b"".join(lines))
