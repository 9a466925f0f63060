"""Tables are found on every storage without listing their data, and a broken table does not end a survey."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from faults import storage_calls
from servers import Location

import tblctl
from tblctl import errors


def make(location: Location, name: str, rows: int = 1) -> str:
    url = f"{location.url}/{name}"
    table = tblctl.create(url, "a: int64", cluster_by="a", storage_options=location.storage_options)
    table.append(pa.table({"a": range(rows)}))
    return url


def test_tables_are_found_at_any_depth_and_not_within_tables(location: Location) -> None:
    urls = [make(location, name) for name in ("x", "deep/er/y", "deep/z")]
    location.storage().write("deep/notes/readme.txt", b"no table")
    location.storage().write("metadata/latest", b"no table either")
    found = tblctl.find_tables(location.url, storage_options=location.storage_options)
    assert found == sorted(urls)
    assert tblctl.find_tables(urls[0] + "/", storage_options=location.storage_options) == [urls[0] + "/"]


def test_what_lies_in_a_table_is_not_listed(tmp_path: Path) -> None:
    make(Location(kind="local", url=str(tmp_path)), "t")
    calls = storage_calls(lambda: tblctl.find_tables(tmp_path))
    assert sorted(call.name for call in calls) == ["", "t/", "t/metadata/"]


def test_a_place_without_tables_is_refused(location: Location) -> None:
    with pytest.raises(errors.TableNotFoundError, match="there is no table at or below"):
        tblctl.find_tables(location.url, storage_options=location.storage_options)


def test_a_bug_in_one_table_does_not_end_the_survey(memory_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location(kind="memory", url=memory_url)
    urls = [make(location, name) for name in ("good", "odd")]
    real = tblctl.Table.info

    def fail(self: tblctl.Table, *words: object, **names: object) -> object:
        if self.location.endswith("odd"):
            raise KeyError("x")
        return real(self, *words, **names)  # type: ignore[arg-type]

    monkeypatch.setattr(tblctl.Table, "info", fail)
    good, odd = tblctl.survey(urls)
    assert (good.location, good.error) == (urls[0], None)
    assert odd.error == "a bug in tblctl, please report it: KeyError: 'x'"


def test_deeper_tables_come_first_whatever_their_order(memory_url: str) -> None:
    location = Location(kind="memory", url=memory_url)
    urls = [make(location, name) for name in ("a", "b")]
    for url, groups in ((urls[0], [[0, 1], [0, 1]]), (urls[1], [[0, 9], [0, 4], [5, 9], [2, 3], [6, 7]])):
        table = tblctl.open(url)
        table.delete("true")
        for keys in groups:
            table.append(pa.table({"a": keys}))
    found = tblctl.survey(urls)
    assert [item.location for item in found] == [urls[1], urls[0]]
    assert [item.info and item.info.average_depth for item in found] == [3.0, 2.0]


def test_tables_of_mostly_unclustered_blocks_come_first_and_of_half_by_their_depth(memory_url: str) -> None:
    location = Location(kind="memory", url=memory_url)
    deep = make(location, "deep")
    for _ in range(2):
        tblctl.open(deep).append(pa.table({"a": [0]}))
    urls = [deep]
    for name, unclustered in (("half", 1), ("most", 2)):
        url = f"{memory_url}/{name}"
        table = tblctl.create(url, "a: int64, b: int64", cluster_by="a")
        for number in range(unclustered):
            table.append(pa.table({"a": [0, 1], "b": [number, 0]}))
        table.set_cluster_key("b")
        table.append(pa.table({"a": [0], "b": [5]}))
        urls.append(url)
    found = tblctl.survey(urls)
    assert [Path(item.location).name for item in found] == ["most", "deep", "half"]
    assert [item.info and item.info.average_depth for item in found] == [1.0, 3.0, 1.0]


def test_a_survey_shows_no_credentials_of_a_location() -> None:
    (found,) = tblctl.survey(["s3://someone:pass/word@bucket/table"])
    assert found.location == "s3://bucket/table"
    assert "word" not in str(found)
