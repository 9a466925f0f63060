"""Which files count, by their names, and what folders' names say."""

from __future__ import annotations

import pytest

from tblctl.errors import InvalidOptionError
from tblctl.tableformat.folder.names import Chosen, are_integers, partition_of, split_glob, table_of


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("events", ("events", None)),
        ("s3://lake/in/*.parquet", ("s3://lake/in/", "*.parquet")),
        ("/a/b[12]/c.parquet", ("/a/", "b[12]/c.parquet")),
        ("*.parquet", (".", "*.parquet")),
        ("/*/x", ("/", "*/x")),
        ("s3://user:a*b@bucket/in", ("s3://user:a*b@bucket/in", None)),
        ("s3://user:a/b?c@bucket/in/*.pq", ("s3://user:a/b?c@bucket/in/", "*.pq")),
        ("https://host/in/a.parquet?token=x", ("https://host/in/a.parquet?token=x", None)),
        ("simplecache::HTTPS://host/in?token=[x", ("simplecache::HTTPS://host/in?token=[x", None)),
        ("s3://bucket", ("s3://bucket", None)),
    ],
)
def test_a_location_is_cut_before_the_first_folder_with_a_wildcard(location, expected):
    assert split_glob(location) == expected


@pytest.mark.parametrize("name", ["a.parquet", "x/y/b.parquet", "_day=1/a.parquet"])
def test_files_with_the_ending_count(name):
    assert Chosen().takes(name)


@pytest.mark.parametrize(
    "name",
    ["a.csv", "_SUCCESS", "_a.parquet", ".a.parquet", "_tmp/a.parquet", "x/.t/a.parquet", "a.parquet.crc"],
)
def test_hidden_files_and_others_do_not_count(name):
    assert not Chosen().takes(name)


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("*.pq", ["a.pq", "_a.pq"], ["a.parquet", "x/a.pq"]),
        ("part-?.parquet", ["part-1.parquet"], ["part-12.parquet"]),
        (
            "year=202[34]",
            ["year=2023/a.parquet", "year=2024/m=1/b.parquet"],
            ["year=2022/a.parquet", "year=2023/_a.parquet"],
        ),
        ("[!a]*", ["b.x"], ["a.x"]),
        ("a[+-9]b", ["a5b"], ["a/b"]),
        ("a[b", ["a[b"], ["ab"]),
        ("**/b.parquet", ["b.parquet", "x/b.parquet", "x/y/b.parquet"], ["x/ab.parquet"]),
        ("x/**", ["x/a", "x/y/b"], ["a"]),
        ("a.b*", ["a.bc"], ["axbc"]),
    ],
)
def test_a_glob_takes_what_it_matches_and_visible_files_below_folders_it_matches(pattern, taken, left):
    chosen = Chosen(pattern=pattern)
    assert [name for name in [*taken, *left] if chosen.takes(name)] == taken
    assert all(name.startswith(chosen.prefix) for name in taken)


def test_a_pattern_that_cannot_be_is_refused():
    with pytest.raises(InvalidOptionError, match="no glob"):
        Chosen(pattern="[z-a]")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_delta_log/0.json", ("", "a Delta table")),
        ("x/_delta_log/0.json", ("x", "a Delta table")),
        (".hoodie/hoodie.properties", ("", "a Hudi table")),
        ("t/metadata/v1.metadata.json", ("t", "an Iceberg table")),
        ("metadata/00001-a.gz.metadata.json", ("", "an Iceberg table")),
        ("metadata/snapshots/1", ("", "a table of tblctl")),
        ("metadata/readme.json", None),
        ("a.parquet", None),
    ],
)
def test_a_name_shows_of_which_table_a_file_is(name, expected):
    assert table_of(name) == expected


def test_folders_give_keys_and_values():
    found = partition_of("x/year=2024/city=S%C3%A3o%2FPaulo/z=__HIVE_DEFAULT_PARTITION__/e=")
    assert found.keys == ("year", "city", "z", "e")
    assert found.values == ("2024", "São/Paulo", None, "")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-2", None], True),
        (["01"], True),
        (["1", "x"], False),
        (["1.5"], False),
        ([None], False),
        (["9" * 19], False),
        (["٣"], False),
    ],
)
def test_values_are_integers_if_all_are(values, expected):
    assert are_integers(values) is expected
