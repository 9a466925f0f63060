"""The task function: the rows of the blocks in key order, in blocks of the sizes asked for, however it is run."""

from __future__ import annotations

import pyarrow as pa
from arrow_rows import canonical, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tblctl.tableformat.model.cluster_key import Term, _problem
from tblctl.tableformat.model.schema import Schema
from tblctl.tableformat.model.types import is_orderable

from ..model.strategies import SCHEMAS
from .blocks import lake

MANY = settings(max_examples=60, suppress_health_check=list(HealthCheck))
NUMBER = pa.field("row number", pa.int64(), nullable=False)
TRANSFORMS = [("day", None), ("year", None), ("truncate", 3), ("bucket", 4)]


def transforms_of(leaf):
    fitting = [(name, width) for name, width in TRANSFORMS if _problem(name, leaf) is None]
    return ["identity"] + [name if width is None else f"{name}[{width}]" for name, width in fitting]


@st.composite
def schemas_and_terms(draw):
    """A random schema with a last column that numbers the rows, and one to three terms of a key."""
    columns = draw(SCHEMAS.filter(lambda schema: NUMBER.name not in schema.names))
    schema = Schema.create(columns.append(NUMBER))
    leaves = [leaf for leaf in schema.leaves if is_orderable(leaf.type)]
    chosen = draw(st.lists(st.sampled_from(leaves[:-1] or leaves), min_size=1, max_size=3, unique=True))
    terms = tuple(
        Term(
            column_id=leaf.id,
            transform=draw(st.sampled_from(transforms_of(leaf))),
            descending=draw(st.booleans()),
            nulls_first=draw(st.booleans()),
        )
        for leaf in chosen
    )
    return schema, terms


@st.composite
def lakes_of_blocks(draw, here):
    """Add one to five blocks of few different rows, in key order or not."""
    some = pa.schema(list(here.schema.logical)[:-1])
    pool = draw(tables(some.append(NUMBER), min_rows=3, max_rows=6))
    pool = here.conformed(pool).drop_columns([NUMBER.name])
    for _ in range(draw(st.integers(1, 5))):
        picks = draw(st.lists(st.integers(0, pool.num_rows - 1), min_size=1, max_size=14))
        numbers = pa.array(range(here.rows, here.rows + len(picks)), pa.int64())
        columns = [*pool.take(pa.array(picks)).columns, numbers]
        rows = pa.Table.from_arrays(columns, schema=here.schema.read_schema)
        (here.add if draw(st.booleans()) else here.unordered)(rows)


@given(st.data())
@MANY
def test_any_rows_are_merged_as_a_stable_sort_orders_them(data):
    schema, terms = data.draw(schemas_and_terms())
    options = {
        "block_rows": data.draw(st.sampled_from([1, 4, 7, 1_000])),
        "row_group_rows": data.draw(st.sampled_from([1, 2, 3, 1_000])),
    }
    with lake(schema, terms, **options) as here:
        data.draw(lakes_of_blocks(here))
        expected = canonical(here.expected())
        sizes = None
        for memory_bytes in (1 << 30, data.draw(st.sampled_from([1, 100, 1_000, 10_000, 100_000]))):
            tasks = here.split(data.draw(st.integers(1, 5)), memory_bytes=memory_bytes)
            records = here.run(tasks, threads=data.draw(st.integers(1, 3)))
            assert canonical(here.rows_of(records)) == expected
            assert here.problems(records) == []
            assert [record.row_count for record in records] == [size for task in tasks for size in task.cuts]
            assert sizes in (None, [record.row_count for record in records])
            sizes = [record.row_count for record in records]
