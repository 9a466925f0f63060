"""Files kept in a folder: what is kept is what was read, damage counts as missing, old files go, nothing fails."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tblctl.tableformat.storage.file_cache import FileCache

URL = "s3://bucket/metadata/a.avro"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_what_was_put_is_found_by_another_process_later(folder: Path) -> None:
    FileCache(folder).put(URL, b"content")
    assert FileCache(folder).get(URL) == b"content"
    assert FileCache(folder).get(URL + "x") is None


def test_only_the_owner_can_read_it(folder: Path) -> None:
    FileCache(folder).put(URL, b"content")
    [file] = folder.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 30], ids=["empty", "cut", "zeros"])
def test_a_damaged_file_counts_as_missing(folder: Path, damage: bytes) -> None:
    cache = FileCache(folder)
    cache.put(URL, b"content of a manifest")
    [file] = folder.iterdir()
    file.write_bytes(damage)
    assert cache.get(URL) is None
    cache.put(URL, b"content of a manifest")
    assert cache.get(URL) == b"content of a manifest"


def test_a_file_under_the_name_of_another_counts_as_missing(folder: Path) -> None:
    cache = FileCache(folder)
    cache.put(URL, b"content")
    cache.put(URL + "x", b"other content")
    first, second = sorted(folder.iterdir())
    second.write_bytes(first.read_bytes())
    first_again = {cache.get(URL), cache.get(URL + "x")}
    assert first_again in ({b"content", None}, {b"other content", None})


def test_what_was_used_longest_ago_is_deleted_first(folder: Path) -> None:
    cache = FileCache(folder)
    for number in range(4):
        cache.put(f"{URL}{number}", bytes(100))
    for age, number in enumerate((2, 0, 3, 1)):  # 2 was used longest ago
        path = cache._path(f"{URL}{number}")
        os.utime(path, (1_000 + age, 1_000 + age))
    FileCache(folder, most_bytes=250).put(f"{URL}new", bytes(100))
    assert [cache.get(f"{URL}{number}") is not None for number in range(4)] == [False, True, False, True]
    assert cache.get(f"{URL}new") is not None


def test_a_folder_that_cannot_be_made_keeps_nothing_and_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = FileCache(tmp_path / "file" / "cache")
    cache.put(URL, b"content")
    assert cache.get(URL) is None


def test_many_threads_may_put_and_get_the_same_file(folder: Path) -> None:
    cache = FileCache(folder)

    def work(number: int) -> bool:
        cache.put(URL, b"content" * 1_000)
        return cache.get(URL) == b"content" * 1_000

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))
    assert len(list(folder.iterdir())) == 1
