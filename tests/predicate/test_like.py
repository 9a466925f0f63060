"""LIKE against a plain matcher, in rows and in blocks of one value."""

from __future__ import annotations

import functools
import re
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from predicate_model import KINDS, SCHEMA

from tblctl.tableformat.errors import InvalidPredicateError
from tblctl.tableformat.model.schema.types import read_type
from tblctl.tableformat.model.statistics import ALL, NONE, ColumnStatistics
from tblctl.tableformat.predicate.match import match
from tblctl.tableformat.predicate.rows import filter_table
from tblctl.tableformat.predicate.sql.conditions import parse_where


class Given:
    def __init__(self, rows, **columns):
        self.row_count, self._columns = np.asarray(rows), columns

    def column(self, leaf):
        return self._columns.get(leaf.name)


ALPHABET = ("\\", "%", "_", ".", "\n", "a")
ANY, ONE = object(), object()


def words(longest):
    return ["".join(chars) for length in range(longest + 1) for chars in product(ALPHABET, repeat=length)]


def pieces_of(pattern, escape):
    """Return characters and wildcards; None for what must be refused."""
    if not escape and ("\\%" in pattern or "\\_" in pattern):
        return None
    pieces, chars = [], iter(pattern)
    for char in chars:
        if char == escape:
            following = next(chars, None)
            if following is None:
                return None
            pieces.append(following)
        else:
            pieces.append({"%": ANY, "_": ONE}.get(char, char))
    return tuple(pieces)


@functools.cache
def texts_like(pieces, longest):
    """Return which of `words(longest)` match; they come by length, and hold their own ends."""
    if not pieces:
        return {""}
    first, behind = pieces[0], texts_like(pieces[1:], longest)
    found = set()
    for text in words(longest):
        if first is ANY:
            matches = text in behind or (text != "" and text[1:] in found)
        else:
            matches = text[:1] == first or (first is ONE and text != "")
            matches = matches and text[1:] in behind
        if matches:
            found.add(text)
    return found


@pytest.mark.parametrize("escape", ["", "\\", "a"])
def test_every_short_pattern_matches_in_rows_and_blocks_what_a_plain_matcher_says(escape):
    values = words(3)
    table = pa.table({"text": values})
    zeros = np.zeros(len(values), np.int64)
    bounds = ColumnStatistics(min=pa.array(values), max=pa.array(values), null_count=zeros)
    blocks = Given([1] * len(values), text=bounds)
    for pattern in words(4):
        text = f"text LIKE '{pattern}'" + (f" ESCAPE '{escape}'" if escape else "")
        pieces = pieces_of(pattern, escape)
        if pieces is None:
            with pytest.raises(InvalidPredicateError):
                parse_where(text, SCHEMA)
            continue
        expression, wanted = parse_where(text, SCHEMA), texts_like(pieces, 3)
        mask = filter_table(table, expression, SCHEMA).to_numpy(zero_copy_only=False)
        assert {values[i] for i in mask.nonzero()[0]} == wanted, text
        outcome = match(expression, blocks, SCHEMA).outcome
        assert (outcome == np.where(mask, ALL, NONE)).all(), text


@pytest.mark.parametrize("name", ["text", "large", "view", "dict"])
@pytest.mark.parametrize(
    "pattern",
    [
        "%\\%",
        "%\\",
        "%\\_",
        "_\\\\%",
        "%é_%",
        "%\0",
        "%\0%",
        "_\U0010ffff",
        "%(a|b)?",
        "%[a]{2}%",
        "%^$",
        "%+*_",
    ],
)
def test_a_pattern_takes_every_character_but_wildcards_for_itself(name, pattern):
    """Also the backslash: Arrow's match_like looks for two of them where `%` comes first."""
    values = [
        *(
            "\\",
            "\\\\",
            "a\\",
            "\\b",
            "a\\b\n",
            "a\\\\b",
            "é",
            "aéb",
            "é\0",
            "\0",
            "a\0\nb",
            "a\U0010ffff",
            "\n\U0010ffff",
        ),
        *("x(a|b)?", "a", "x[a]{2}y", "aa", "^$", "", "+*+", "\n+*é", None),
    ]
    kind = KINDS[name]
    table = pa.table({name: kind.build(values, read_type(kind.type))})
    wanted = re.compile(
        "".join({"%": ".*", "_": "."}.get(char, re.escape(char)) for char in pattern), re.DOTALL
    )
    expected = [None if value is None else wanted.fullmatch(value) is not None for value in values]
    found = filter_table(table, parse_where(f"{name} LIKE '{pattern}' ESCAPE '!'", SCHEMA), SCHEMA)
    assert found.to_pylist() == expected
    assert True in expected
