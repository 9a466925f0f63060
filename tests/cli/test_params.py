"""How the command parses its arguments."""

from __future__ import annotations

import click
import pytest

from tblctl.cli.arguments import params


def test_storage_options_nest_by_dots_and_keep_digits_as_text() -> None:
    words = (
        "key=k",
        "secret=12345",
        "anon=false",
        "client_kwargs.region_name=eu",
        'config_kwargs={"a": [1]}',
        "x==b=",
    )
    assert params.read_storage_options(words) == {
        "key": "k",
        "secret": "12345",
        "anon": False,
        "client_kwargs": {"region_name": "eu"},
        "config_kwargs": {"a": [1]},
        "x": "=b=",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("key",), "'key' is not KEY=VALUE"),
        (("=v", "key"), "'=v' is not KEY=VALUE; 'key' is not KEY=VALUE"),
        (("a=1", "a=2"), "'a' is given twice"),
        (("a=1", "a.b=2"), "'a.b' nests into 'a', which has a value of its own"),
        (("a={x",), "the value of 'a' is not JSON"),
    ],
)
def test_wrong_storage_options_are_named(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        params.read_storage_options(words)


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("v1", "v1"), ("2024-01-01T00:00", "2024-01-01T00:00"), ("²", "²"), (None, None)],
)
def test_digits_are_a_sequence_everything_else_is_told_apart_later(text: str | None, value: object) -> None:
    assert params.read_as_of(None, None, text) == value


@pytest.mark.parametrize(
    ("text", "names"),
    [("a,b", ["a", "b"]), (" a , b.c ", ["a", "b.c"]), ('"odd, name",b', ["odd, name", "b"]), (None, None)],
)
def test_names_are_separated_by_commas_and_may_be_quoted(text: str | None, names: list[str] | None) -> None:
    assert params.read_names(None, None, text) == names


@pytest.mark.parametrize("text", ["", "a,,b", ","])
def test_an_empty_name_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="names separated by commas"):
        params.read_names(None, None, text)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("c: int64", ("c", "int64")),
        ("c:decimal(12, 2)", ("c", "decimal(12, 2)")),
        ("s: struct<a: int64>", ("s", "struct<a: int64>")),
        ('"odd: name": string', ("odd: name", "string")),
        ("a.b: string", ("a.b", "string")),
    ],
)
def test_a_column_is_a_name_and_a_type(text: str, column: tuple[str, str]) -> None:
    assert params.read_column(text, option="--add-column") == column


@pytest.mark.parametrize("text", ["c", "c:", ":int64", "", '"c"'])
def test_a_column_without_name_or_type_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match='--add-column: expected "name: type"'):
        params.read_column(text, option="--add-column")
