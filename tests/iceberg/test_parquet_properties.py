"""The properties `write.parquet.*` of sizes of pages and dictionaries: new files are as they say."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl.tableformat.parquet.thrift import read_struct

from .lake import Lake, append, fields
from .replacing import data_files, sorted_ids

ROWS = 20_000
WORDS = 500
DICTIONARY, DATA = 2, (0, 3)
BATCH_ROWS = 1_024
"""pyarrow looks at a page's size after so many values."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of a new file. `size_bytes` are those of its values, before compression."""

    column: str
    kind: int
    size_bytes: int
    values: int
    encoding: int


def pages_of(path: Path) -> Iterator[Page]:
    data = path.read_bytes()
    footer = pq.read_metadata(path)
    for group in range(footer.num_row_groups):
        for place in range(footer.num_columns):
            chunk = footer.row_group(group).column(place)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            stop = start + chunk.total_compressed_size
            while start < stop:
                header, start = read_struct(data, start)
                of_kind = next(header[field][1] for field in (5, 7, 8) if field in header)
                yield Page(
                    column=chunk.path_in_schema,
                    kind=header[1][1],
                    size_bytes=header[2][1],
                    values=of_kind[1][1],
                    encoding=of_kind[4 if 8 in header else 2][1],
                )
                start += header[3][1]


def written(lake: Lake, **properties: str) -> list[Page]:
    """Merge two files whose numbers are in no order, with 500 long words, under some properties; return the pages."""
    kept = {f"write.parquet.{name.replace('_', '-')}": value for name, value in properties.items()}
    table = lake.create("t", fields(id=LongType(), number=LongType(), word=StringType()))
    for first in range(2):
        ids = range(first, ROWS, 2)
        append(
            table,
            id=list(ids),
            number=[id_ * 0x9E3779B97F4A7C15 % 2**61 for id_ in ids],
            word=[f"a word that is long {id_ * 7919 % WORDS:05}" for id_ in ids],
        )
    with table.transaction() as change:  # only now: PyIceberg's own writer never ends with a limit of 0
        change.set_properties(kept)
    assert tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full").commits == 1
    assert sorted_ids(table) == list(range(ROWS))
    (file,) = data_files(table)
    return list(pages_of(Path(file.file_path.removeprefix("file://"))))


def of(pages: list[Page], column: str) -> list[Page]:
    return [page for page in pages if page.column == column and page.kind in DATA]


@pytest.mark.parametrize("limit", [None, "1000", "none", "0", "-5"])
def test_pages_have_at_most_as_many_rows_as_the_table_says(lake: Lake, limit: str | None) -> None:
    """A property that is no number above 0 counts as not set."""
    pages = written(lake, **({} if limit is None else {"page_row_limit": limit}))
    most = max(page.values for page in pages if page.kind in DATA)
    assert most == (1_000 if limit == "1000" else ROWS)


@pytest.mark.parametrize("size_bytes", [None, 16_384, 40_000])
def test_pages_have_about_as_many_bytes_as_the_table_says(lake: Lake, size_bytes: int | None) -> None:
    """Of numbers that no dictionary holds: eight bytes each."""
    found = of(
        written(lake, **({} if size_bytes is None else {"page_size_bytes": str(size_bytes)})), "number"
    )
    sizes = [page.size_bytes for page in found]
    assert sum(page.values for page in found) == ROWS
    if size_bytes is None:
        assert len(sizes) == 1
    else:
        assert all(size_bytes <= size <= size_bytes + 8 * BATCH_ROWS + 100 for size in sizes[:-1])
        assert len(sizes) > ROWS * 8 // (size_bytes + 8 * BATCH_ROWS + 100)


@pytest.mark.parametrize(("size_bytes", "holds"), [(None, True), (100_000, True), (4_000, False)])
def test_dictionaries_have_about_as_many_bytes_as_the_table_says(
    lake: Lake, size_bytes: int | None, holds: bool
) -> None:
    """The words take 15 kB. Where they are more than a dictionary may hold, later pages have them as they are."""
    pages = written(lake, **({} if size_bytes is None else {"dict_size_bytes": str(size_bytes)}))
    (dictionary,) = [page for page in pages if (page.column, page.kind) == ("word", DICTIONARY)]
    plain = [page for page in of(pages, "word") if page.encoding == 0]
    assert bool(plain) != holds
    assert (dictionary.values == WORDS) or not holds


def test_properties_that_are_followed_are_not_named_and_others_are(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    followed: dict[str, Any] = {
        "page_size_bytes": "65536",
        "page_row_limit": "5000",
        "dict_size_bytes": "65536",
    }
    ignored = {
        "page_version": "v2",
        "row_group_check_min_record_count": "10",
        "bloom_filter_max_bytes": "100",
        "stats_enabled.column.id": "false",
    }
    with caplog.at_level(logging.WARNING, "tblctl"):
        written(lake, **followed, **ignored)
    (said,) = [record.getMessage() for record in caplog.records if "not followed" in record.getMessage()]
    named = said.partition("not followed: ")[2].split(", ")
    assert named == sorted(f"write.parquet.{name.replace('_', '-')}" for name in ignored)
