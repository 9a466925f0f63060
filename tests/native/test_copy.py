"""Row groups copied undecoded: every reader finds the same rows, and the block's metadata is right."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_rows import canonical, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.model.cut import cut_rows
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.parquet.thrift import read_struct, write_struct

from ..merger.blocks import RUN, block_of, lake
from ..model.strategies import SCHEMAS

MANY = settings(max_examples=cases(10), suppress_health_check=list(HealthCheck))


@st.composite
def sequences(draw, groups):
    """Draw in which order row groups are copied (numbers) and rows are encoded (None)."""
    return draw(st.lists(st.none() | st.integers(0, groups - 1), min_size=1, max_size=6))


@given(st.data())
@MANY
def test_a_block_of_copied_and_encoded_row_groups_is_told_right_whatever_its_types(data):
    number = pa.field("row number", pa.int64())
    schema = Schema.create(
        data.draw(SCHEMAS.filter(lambda schema: "row number" not in schema.names)).append(number)
    )
    with lake(schema, '"row number"', row_group_rows=data.draw(st.sampled_from([1, 3, 100]))) as here:
        rows = here.conformed(data.draw(tables(schema.logical, min_rows=1, max_rows=8)))
        constant = rows.set_column(
            rows.num_columns - 1,
            rows.schema.field(rows.num_columns - 1),
            pa.nulls(rows.num_rows, pa.int64()).fill_null(7),
        )
        source = here.add(constant).block
        with here.io.open(source) as reader:
            groups = len(reader.group_rows)
            assert reader.copyable == frozenset(range(groups))
            parts = [reader.rows([group]) for group in range(groups)]
        builder = here.io.build(sort=here.sort, level=2, run_id=RUN)
        expected = []
        for item in data.draw(sequences(groups)):
            if item is None:
                builder.adding(constant, cut_rows(constant.num_rows, here.io.options.row_group_rows))()
            else:
                builder.copy(source, [item])
            expected.append(constant if item is None else parts[item])
        (record,) = builder.finish()
        assert canonical(here.rows_of([record])) == [row for part in expected for row in canonical(part)]
        assert here.problems([record]) == []


# -- what is copied, and what is not ----------------------------------------------------------------------------------


def four_groups(here):
    kind = here.schema.logical.field("k").type
    return here.add(
        pa.table({"k": pa.array(range(40), kind), "s": [f"text {n % 7}" for n in range(40)]})
    ).block


def test_another_codec_is_not_copied_so_that_the_option_takes_effect():
    with lake("k: int64, s: string", "k", row_group_rows=10, compression="snappy") as here:
        block = four_groups(here)
        with here.io.open(block) as reader:
            assert reader.copyable == {0, 1, 2, 3}
        here.set_options(compression="zstd")
        with here.io.open(block) as reader:
            assert reader.copyable == frozenset()


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema.rename_column("s", "t"),
        lambda schema: schema.add_column("t", pa.int32()),
        lambda schema: schema.drop_column("s"),
        lambda schema: schema.widen_column("k", pa.int64()),
    ],
    ids=["renamed", "added", "dropped", "widened"],
)
def test_a_block_of_another_schema_is_not_copied(change):
    with lake("k: int32, s: string", "k", row_group_rows=10) as here:
        block = four_groups(here)
        here.set_schema(change(here.schema))
        with here.io.open(block) as reader:
            assert reader.copyable == frozenset()


def test_a_copied_block_keeps_what_a_parquet_file_says_of_itself():
    with lake("k: int64, s: string", "k", row_group_rows=10) as here:
        block = four_groups(here)
        builder = here.io.build(sort=here.sort, level=2, run_id=RUN)
        builder.copy(block, [0, 1])
        builder.adding(here.conformed(pa.table({"k": [20] * 3, "s": ["x"] * 3})), [3])()
        builder.copy(block, [3])
        (record,) = builder.finish()
        with here.io.open(block_of(record)) as reader:
            assert reader.group_rows == (10, 10, 3, 10)
        made, whole = (
            pq.ParquetFile(io.BytesIO(here.storage.read(path))) for path in (record.path, block.path)
        )
        assert made.metadata.num_rows == 33
        assert made.schema_arrow.equals(whole.schema_arrow, check_metadata=True)
        assert made.metadata.created_by == whole.metadata.created_by
        groups = [made.metadata.row_group(group) for group in range(4)]
        assert {group.sorting_columns for group in groups} == {(pq.SortingColumn(0),)}
        assert [groups[3].column(0).statistics.min, groups[3].column(1).statistics.max] == [30, "text 6"]
        assert record.uncompressed_bytes == sum(group.total_byte_size for group in groups)


@pytest.mark.parametrize("where", ["page", "value count"])
def test_damage_is_not_copied(where):
    with lake("k: int64, s: string", "k", row_group_rows=10) as here:
        block = four_groups(here)
        data = bytearray(here.storage.read(block.path))
        chunk = pq.read_metadata(io.BytesIO(data)).row_group(1).column(1)
        if where == "page":
            data[chunk.dictionary_page_offset + chunk.total_compressed_size - 1] ^= 1
        else:
            header, start = read_struct(bytes(data), chunk.data_page_offset)
            header[5][1][1] = header[5][1][1][0], 9
            again = write_struct(header)
            assert len(again) == start - chunk.data_page_offset
            data[chunk.data_page_offset : start] = again
        here.storage.write(block.path, bytes(data))
        builder = here.io.build(sort=here.sort, level=2, run_id=RUN)
        builder.copy(block, [0])
        with pytest.raises(CorruptTableError, match=r"checksum|9 values"):
            builder.copy(block, [1])
