"""What `tblctl.create` takes as columns, and conditions that are refused at once."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tblctl
from tblctl.errors import InvalidPredicateError, InvalidSchemaError

FRAME = {"a": [1, 2], "b": ["x", "y"]}


@pytest.mark.parametrize(
    "given",
    [
        "a: int64, b: string",
        pa.schema([("a", pa.int64()), ("b", pa.string())]),
        {"a": "int64", "b": pa.string()},
        FRAME,
        pa.table(FRAME),
        pa.record_batch(FRAME),
        pd.DataFrame(FRAME),
        pl.DataFrame(FRAME),
    ],
    ids=["text", "schema", "types", "lists", "table", "batch", "pandas", "polars"],
)
def test_a_table_is_created_from_what_describes_columns(memory_url: str, given: Any) -> None:
    table = tblctl.create(memory_url, given, cluster_by="a")
    assert table.schema.names == ["a", "b"]
    assert table.schema.field("a").type == pa.int64()
    assert table.scan().to_arrow().num_rows == 0, "rows are not appended"
    assert table.append(pl.DataFrame(FRAME)).rows_added == 2
    assert table.scan("b = 'y'").to_arrow().column("a").to_pylist() == [2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "got int"),
        ([("a", "int64")], "got list"),
        ({}, "got a dict without columns"),
        (
            {"a": int, "b": "nope"},
            "'a': expected a type such as 'int64' or 'string', got <class 'int'>; 'b': ",
        ),
    ],
)
def test_what_describes_no_columns_is_refused(memory_url: str, given: Any, message: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        tblctl.create(memory_url, given)
    assert message in str(caught.value)
    assert not tblctl.exists(memory_url)


@pytest.mark.parametrize("where", [pc.field("a") > 1, True, pl.col("a") > 1], ids=["arrow", "bool", "polars"])
def test_a_condition_of_another_library_is_refused_at_once(memory_url: str, where: Any) -> None:
    table = tblctl.create(memory_url, "a: int64", cluster_by="a")
    for use in (table.scan, table.delete, table.info, table.plan):
        with pytest.raises(InvalidPredicateError, match="write it as SQL"):
            use(where=where)
    assert table.snapshot.sequence == 1


def test_named_parts_of_a_pandas_index_are_columns(memory_url: str) -> None:
    indexed = pd.DataFrame(FRAME).set_index("a")
    table = tblctl.create(memory_url, indexed)
    assert table.schema.names == ["a", "b"]
    table.append(indexed)
    table.append(pd.DataFrame({**FRAME, "c": [0, 0]}).set_index(["b", "a"])[[]])
    table.append(pd.DataFrame(FRAME).set_index("a", drop=False))
    table.append(pd.DataFrame(FRAME)[1:])  # an index without a name is none
    rows = table.scan().to_arrow()
    assert sorted(rows["a"].to_pylist()) == [1, 1, 1, 2, 2, 2, 2]
    assert rows["b"].null_count == 0
    table.overwrite(indexed)
    assert table.scan().to_arrow()["a"].null_count == 0
