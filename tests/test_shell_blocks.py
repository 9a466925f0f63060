"""Shell blocks of the README and of docs/: every command is one that tblctl takes, and blocks run where they can.

An HTML comment right before a block says what it needs: `<!-- shell: lineitem, typical -->` names data of `DATA` below,
and the block runs in a folder with a copy of it; `<!-- shell: not run, needs Spark -->` says why it does not. Lines
that name `s3://` are parsed alone. All runs in this process. docs/your-data.md has a test of its own (tests/folder).
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_ELSEWHERE = {"your-data.md"}
_BLOCK = re.compile(
    r"(?:^<!-- shell: (?P<needs>[^\n]*) -->\n)?^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A block with commands of tblctl: its page, what its comment says, and its commands."""

    page: str
    needs: str
    commands: tuple[tuple[str, ...], ...]


def commands(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each command of tblctl in a block. Where it shows output, commands begin with `$`."""
    lines = text.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    found: list[tuple[str, ...]] = []
    for line in lines:
        if not line.startswith("tblctl "):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&")
        lexer.whitespace_split = True
        words: list[list[str]] = [[]]
        for word in lexer:
            if set(word) <= {"|", "&"}:
                words.append([])
            else:
                words[-1].append(word)
        found += [tuple(part[1:]) for part in words if part and part[0] == "tblctl"]
    return tuple(found)


def blocks() -> list[Block]:
    found = [
        Block(page.name, block["needs"] or "", commands(block["text"]))
        for page in PAGES
        for block in _BLOCK.finditer(page.read_text(encoding="utf-8"))
        if block["kind"] in {"", "sh", "console"}
    ]
    return [block for block in found if block.commands]


def rows(batch: int, batches: int, count: int = 40) -> pa.Table:
    """Return rows of lineitem, one batch of several: its order keys go up, and it holds every ship date."""
    first = datetime.date(1992, 1, 3)
    return pa.table(
        {
            "l_orderkey": pa.array([batch * count + number for number in range(count)], pa.int64()),
            "l_shipdate": [
                first + datetime.timedelta(days=(number * batches + batch) % 2500) for number in range(count)
            ],
            "l_quantity": pa.array([number % 50 for number in range(count)], pa.int32()),
            "l_tax": pa.array([0.04] * count),
        }
    )


def lineitem() -> None:
    pq.write_table(rows(0, 1, 2500), "lineitem.parquet")
    table = tblctl.create("lineitem", rows(0, 60).schema, cluster_by="l_shipdate")
    for batch in range(60):
        table.append(rows(batch, 60))
    pq.write_table(rows(60, 60), "part.parquet")


def lineitem_file() -> None:
    pq.write_table(rows(0, 1, 2500), "lineitem.parquet")


def typical() -> None:
    Path("typical.sql").write_text(
        "l_shipdate between '1995-03-01' and '1995-03-07'\nl_orderkey = 4711\n"
        "l_shipdate >= '1998-11-01' and l_quantity > 45\n"
    )


def small() -> None:
    table = tblctl.create("small", "k: int64", cluster_by="k")
    for ends in ([1, 5], [3, 7], [6, 6], [9, 9]):
        table.append(pa.table({"k": ends}))


def events() -> None:
    Path("events").mkdir()
    start = datetime.datetime(2026, 9, 1)
    for number in range(3):
        at = [start + datetime.timedelta(hours=hour * 3 + number) for hour in range(40)]
        table = pa.table({"at": at, "customer": [hour % 7 for hour in range(40)]})
        pq.write_table(table, f"events/{number}.parquet")
    Path("typical.sql").write_text("at >= '2026-09-02' and at < '2026-09-03'\ncustomer = 3\n")


def table() -> None:
    columns = {
        "region": ["a", "b", "c", "d"],
        "ts": [datetime.datetime(2026, 9, day) for day in (1, 5, 9, 13)],
    }
    made = tblctl.create("table", pa.table(columns).schema, cluster_by="ts")
    for _ in range(3):
        made.append(pa.table(columns))


def asked() -> None:
    """Queries of `table`, in its log."""
    table()
    with tblctl.open("table", record="on") as made:
        for day in (1, 5, 9):
            made.scan(where=f"ts = '2026-09-{day:02} 00:00:00'").to_arrow()


def lake() -> None:
    visits = tblctl.create("lake/visits", "city: string, k: int64", cluster_by="k")
    made = tblctl.create("lake/events", "k: int64", cluster_by="k")
    for number in range(4):
        visits.append(pa.table({"city": ["Oslo", "Rome"], "k": [number, number + 4]}))
        made.append(pa.table({"k": [number, number + 4]}))
    pq.write_table(pa.table({"city": ["Oslo"], "k": [9]}), "more.parquet")
    lines = tblctl.create("lake/lineitem", rows(0, 60).schema, cluster_by="l_shipdate")
    for batch in range(3):
        lines.append(rows(batch, 60))


DATA: dict[str, Callable[[], None]] = {
    maker.__name__.replace("_", " "): maker
    for maker in (lineitem, lineitem_file, typical, small, events, table, asked, lake)
}
ALL = blocks()
RUN = [block for block in ALL if block.needs and not block.needs.startswith("not run, needs ")]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns a folder with some data, made once."""

    @functools.cache
    def folder(name: str) -> Path:
        path = tmp_path_factory.mktemp("data")
        with contextlib.chdir(path):
            DATA[name]()
        return path

    return folder


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TBLCTL_CONFIG", os.devnull)


def test_every_block_says_what_it_needs() -> None:
    without = {block.page: block.commands[0] for block in ALL if not block.needs}
    assert set(without) <= RUN_ELSEWHERE, without
    assert all(set(block.needs.split(", ")) <= DATA.keys() for block in RUN)
    assert len(RUN) >= 15


@pytest.mark.parametrize("page", sorted({block.page for block in ALL}))
def test_every_command_of_a_page_is_one_that_tblctl_takes(page: str) -> None:
    for block in ALL:
        for name, *words in block.commands if block.page == page else ():
            application.commands[name].make_context(name, list(words))


@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{block.page}: {' '.join(block.commands[0])[:40]}")
def test_a_block_runs_in_a_folder_with_what_it_needs(block: Block, made: Callable[[str], Path]) -> None:
    for name in block.needs.split(", "):
        shutil.copytree(made(name), ".", dirs_exist_ok=True)
    for words in block.commands:
        if any("s3://" in word for word in words):
            continue
        given = ["table" if word == "LOC" else word for word in words]
        done = CliRunner().invoke(application, given)
        assert done.exit_code == 0, f"tblctl {shlex.join(given)}: {done.output}"
