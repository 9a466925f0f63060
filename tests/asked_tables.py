"""Tables that policy `workload` is to sort by columns that their cluster key does not have, and logs of queries."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from query_logs import put

import tblctl
from tblctl.tableformat.workload.lines import encode_query

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


def record(table: tblctl.Table, where: str, weight: float = 1e6, times: int = 20) -> None:
    """Put a query into the log of a table, as if it had run some times."""
    port = table._port
    columns = (where.partition(" ")[0],)
    query = tblctl.Query(time=port.env.now(), where=where, columns=columns, weight=weight)
    table_id = port.newest().table_id
    put(port.log_place(), query.time, *[encode_query(query)] * times, table_id=table_id)
