"""A file of conditions is split into conditions, and positions in errors are those in the file."""

from __future__ import annotations

import pytest

import tblctl
from tblctl import errors
from tblctl.tableformat.predicate.sql import condition_file as predicates
from tblctl.tableformat.predicate.sql.condition_file import split_predicates


def texts(text: str) -> list[str]:
    return [item.text for item in split_predicates(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("\n -- nothing\n /* at\nall */ ;;\n", []),
        ("a = 1\n\nb = 2\n", ["a = 1", "b = 2"]),
        ("a = 1;\nb = 2\n  and c = 3;", ["a = 1", "b = 2 and c = 3"]),
        ("a = 1 -- one; two\nb = 2", ["a = 1", "b = 2"]),
        ("a = 'x;y' or\n b = 1;", ["a = 'x;y' or b = 1"]),
        ("a = 'it''s -- no comment'", ["a = 'it''s -- no comment'"]),
        ('"odd;name" = 1', ['"odd;name" = 1']),
        ("/* one\n two */ a = 1", ["a = 1"]),
        ("WHERE a = 1\nwhere b = 2", ["a = 1", "b = 2"]),
        ("whereabouts = 1", ["whereabouts = 1"]),
        ("where_ = 1", ["where_ = 1"]),
    ],
)
def test_conditions_end_with_a_semicolon_or_where_there_is_none_with_their_line(
    text: str, expected: list[str]
) -> None:
    assert texts(text) == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = 1\nb = 2", "line 2, column 1"),
        ("a = 1;\n-- all\n  WHERE a = 2 and b = 3;", "line 3, column 19"),
        ("zz = 1", "column 1"),
        ("/* a\n b */ c = 1", "line 2, column 7"),
        ("a = 1;\r\nb = 2", "line 2, column 1"),
    ],
)
def test_an_error_points_into_the_file(memory_url: str, text: str, place: str) -> None:
    table = tblctl.create(memory_url, "a: int64")
    with pytest.raises(errors.InvalidPredicateError, match=f"at {place}: ") as caught:
        table.suggest(text)
    offset = caught.value.details["position"]
    assert text[offset] in "bzc"


def test_conditions_may_be_given_one_by_one_and_there_must_be_one(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64")
    assert [item.text for item in table.suggest(["a = 1", "a = 2"]).predicates] == ["a = 1", "a = 2"]
    for nothing in ("", "-- only a comment", []):
        with pytest.raises(errors.InvalidOptionError, match="there is no condition"):
            table.suggest(nothing)


def test_what_is_never_closed_takes_all_that_follows_whatever_it_holds() -> None:
    for opened in ("'", '"', "`", "/*"):
        text = f"a = 1; b = {opened}open; -- x\n /* ; \n"
        assert [item.text for item in split_predicates(text)] == ["a = 1", f"b = {opened}open; -- x /* ;"]


def test_each_character_is_looked_at_once_however_many_comments_and_quotes_there_are() -> None:
    opened = "'" + "/* -- " * 500
    text = "/* x */ 'it''s' -- y\n" * 500 + opened
    pieces = [piece[0] for piece in predicates._PIECES.finditer(text)]
    assert pieces[-1] == opened
    assert sum(map(len, pieces)) <= len(text)


def test_conditions_far_down_in_a_long_file_are_read(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64")
    text = "-- " + "x" * 300_000 + "\na = 1;\nnope = 2;"
    with pytest.raises(errors.InvalidPredicateError, match="line 3, column 1"):
        table.suggest(text)
    assert [item.text for item in table.suggest(text.replace("nope", "a")).predicates] == ["a = 1", "a = 2"]
