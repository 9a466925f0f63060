"""What notebooks show of results, and what other libraries take as it is."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tblctl
from tblctl.errors import InvalidOptionError, InvalidPredicateError
from tblctl.metrics import html


@pytest.fixture
def table(memory_url: str) -> tblctl.Table:
    made = tblctl.create(memory_url, 'id: int64, "<b>": string', cluster_by="id", options={"block_rows": 2})
    for start in range(3):
        made.append(pa.table({"id": [start, start + 4, start + 8], "<b>": ["x", None, "y"]}))
    return made


def test_a_scan_is_a_stream_for_other_libraries(table: tblctl.Table) -> None:
    scan = table.scan("id > 3", columns=["id"])
    assert sorted(pl.DataFrame(scan)["id"]) == [4, 5, 6, 8, 9, 10]
    assert sorted(pa.table(scan)["id"].to_pylist()) == [4, 5, 6, 8, 9, 10]
    assert pa.RecordBatchReader.from_stream(scan).schema == scan.schema
    assert duckdb.sql("select sum(id) from scan").fetchall() == [(42,)]


def test_a_table_counts_rows_and_shows_the_first(table: tblctl.Table) -> None:
    assert table.count() == 9
    assert table.count("id > 3") == 6
    assert table.count('"<b>" is null') == 3
    assert table.count("true") == 9
    assert table.head(4).num_rows == 4
    assert table.head().column_names == ["id", "<b>"]
    with pytest.raises(InvalidPredicateError):
        table.count("nope = 1")


def test_a_count_without_a_condition_reads_no_block(
    table: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(table), "scan", None)
    assert table.count() == 9


def shown(value: object) -> str:
    """Return the text that a notebook shows. What it is given must be whole, and nothing of data may be a tag."""
    text: str = value._repr_html_()
    ET.fromstring(f"<all>{text}</all>")
    assert "<b>:" not in text
    return " ".join(ET.fromstring(f"<all>{text}</all>").itertext())


def test_a_notebook_shows_a_table_its_figures_a_plan_and_an_outcome(table: tblctl.Table) -> None:
    assert "<b> string" in shown(table)
    figures = table.info()
    assert f"depth on average {figures.average_depth:.2f} deepest {figures.depth.max}" in shown(figures)
    assert "nothing to do" in shown(table.plan(options={"threshold": 50}))
    plan = table.plan(options={"threshold": 1})
    assert plan.groups
    assert plan.groups[0].why in shown(plan)
    assert "groups committed 1" in shown(table.recluster(plan))


def test_a_table_that_is_gone_is_shown_with_the_reason(tmp_path: Path) -> None:
    table = tblctl.create(tmp_path / "t", "id: int64")
    tblctl.drop(tmp_path / "t")
    assert "cannot be read" in shown(table)


def test_long_lists_are_cut_and_say_so() -> None:
    text = html.table_html(("n",), [(number,) for number in range(25)])
    assert text.count("<tr>") == 1 + html.MOST_ROWS
    assert "and 5 more" in text


def test_a_picture_without_a_file_is_shown_in_a_notebook(table: tblctl.Table) -> None:
    drawing = table.picture()
    assert ET.fromstring(drawing._repr_svg_()).tag.endswith("svg")
    assert "snapshot 4, by id" in repr(drawing)


def test_without_matplotlib_a_picture_for_a_notebook_is_refused(
    table: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tblctl.pictures.file.find_spec", lambda _name: None)
    with pytest.raises(InvalidOptionError, match="matplotlib"):
        table.picture()


def test_pandas_takes_a_scan(table: tblctl.Table) -> None:
    frame = pd.DataFrame.from_arrow(table.scan())
    assert sorted(frame["id"]) == [0, 1, 2, 4, 5, 6, 8, 9, 10]
