"""The examples of docs/your-data.md run as they are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application

from .files import interleaved

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "your-data.md").read_text(encoding="utf-8")
ALERTING = (DOCS / "alerting.md").read_text(encoding="utf-8")


def test_every_example_on_parquet_and_delta_runs(tmp_path, monkeypatch):
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    interleaved(tmp_path / "events", count=3, rows=4)
    for number in range(2):
        rows = pa.table({"at": [number, 10 + number], "id": [1, 2]})
        deltalake.write_deltalake("events_delta", rows, mode="append")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["sh", "python", "sh", "python", "python"]
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "docs/your-data.md", "exec"), {})
            continue
        for line in text.splitlines():
            program, *words = shlex.split(line)
            done = CliRunner().invoke(application, words)
            assert (program, done.exit_code) == ("tblctl", 0), f"{line}: {done.output}"
    assert tblctl.open("table").snapshot.rows == 12
    assert tblctl.open("plain").info("at").rows == 7
    assert tblctl.open("from_delta").snapshot.rows == 4


def test_the_alerts_find_a_table_that_is_wholly_unsorted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = tblctl.create("table", "at: int64")
    table.append(pa.table({"at": [3, 1]}))
    table.set_cluster_key("at")
    assert (table.info().average_depth, table.info().unclustered_share) == (None, 1.0)
    [alert] = [
        text
        for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
        if "SystemExit" in text
    ]
    with pytest.raises(SystemExit, match="depth None, 100% of the blocks"):
        exec(compile(alert, "docs/your-data.md", "exec"), {})
    for page in (PAGE, ALERTING):
        assert ".unclustered_share <= 0.2 and (.average_depth // 0) <= 8" in page, "null <= 8 is true"
