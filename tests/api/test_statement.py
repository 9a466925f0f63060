"""The statement of the RFC: how it is parsed, where its errors point, and what `execute` does."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

import tblctl
from tblctl.conditions import resolved
from tblctl.errors import InvalidPredicateError, InvalidStatementError, TableNotFoundError
from tblctl.statement import Statement, execute, parse_statement


def said(text: str) -> tuple[str, bool, bool, str | None]:
    found = parse_statement(text)
    return found.name, found.if_exists, found.final, found.where


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alter table t recluster", ("t", False, False, None)),
        ("ALTER TABLE t RECLUSTER;", ("t", False, False, None)),
        ("Alter Table If Exists t Recluster Final", ("t", True, True, None)),
        ("optimize table t recluster ", ("t", False, True, None)),
        ("OPTIMIZE TABLE IF EXISTS a.b RECLUSTER WHERE x = 1", ("a.b", True, True, "x = 1")),
        ("OPTIMIZE TABLE t RECLUSTER FINAL", ("t", False, True, None)),
        ("ALTER TABLE a.b.c RECLUSTER FINAL WHERE x > 'y';", ("a.b.c", False, True, "x > 'y'")),
        ("\n ALTER /* now */ TABLE t -- soon\nRECLUSTER ;; ", ("t", False, False, None)),
    ],
)
def test_every_form_of_the_rfc_is_read_in_any_case(
    text: str, expected: tuple[str, bool, bool, str | None]
) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    ("written", "parts", "name"),
    [
        ("lake.lineitem", ("lake", "lineitem"), "lake.lineitem"),
        ('"lake".lineitem', ("lake", "lineitem"), "lake.lineitem"),
        ('"a b".c', ("a b", "c"), "a b.c"),
        ('"a.b".c', ("a.b", "c"), '"a.b".c'),
        ('a."b.c"', ("a", "b.c"), 'a."b.c"'),
        ('"a""b"', ('a"b',), '"a""b"'),
        ("`a.b`.`c``d`", ("a.b", "c`d"), '"a.b".c`d'),
        ("größe", ("größe",), "größe"),
        (
            "order.final.recluster.where",
            ("order", "final", "recluster", "where"),
            "order.final.recluster.where",
        ),
        ("if", ("if",), "if"),
    ],
)
def test_a_path_of_identifiers_is_a_name_and_no_two_paths_are_the_same_text(
    written: str, parts: tuple[str, ...], name: str
) -> None:
    found = parse_statement(f"ALTER TABLE {written} RECLUSTER")
    assert (found.parts, found.name, found.is_location) == (parts, name, False)


@pytest.mark.parametrize(
    ("written", "location"),
    [
        ("'lake/lineitem'", "lake/lineitem"),
        ("'s3://bucket/a b;c'", "s3://bucket/a b;c"),
        ("'it''s RECLUSTER FINAL WHERE'", "it's RECLUSTER FINAL WHERE"),
    ],
)
def test_a_string_is_a_location_whatever_it_holds(written: str, location: str) -> None:
    found = parse_statement(f"ALTER TABLE {written} RECLUSTER")
    assert (found.parts, found.is_location, found.final, found.where) == ((location,), True, False, None)


@pytest.mark.parametrize(
    "condition",
    [
        "l_shipdate >= '1998-01-01'",
        "a = 'FINAL WHERE ; RECLUSTER' and  b\t=\n'it''s'",
        '"where" = 1 or "final" is null',
        "show = 1",
        "not even SQL ((",
    ],
)
def test_the_condition_is_passed_on_verbatim_with_its_place(condition: str) -> None:
    text = f"ALTER TABLE t RECLUSTER FINAL WHERE\n  {condition} ; -- the end"
    found = parse_statement(text)
    assert found.where == condition
    assert found.where_position == text.index(condition)
    assert said(f"OPTIMIZE TABLE t RECLUSTER WHERE {condition}")[2:] == (True, condition)


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("", "", "expected ALTER TABLE ... RECLUSTER or OPTIMIZE TABLE ... RECLUSTER, but the text ends"),
        ("SELECT 1", "SELECT", "not 'SELECT'"),
        ("SHOW TABLES", "SHOW", "expected ALTER TABLE ... RECLUSTER"),
        ("ALTER t RECLUSTER", "t RECLUSTER", "expected TABLE, not 't'"),
        ("ALTER TABLE", "", "expected a table's name such as a.b"),
        ("ALTER TABLE '' RECLUSTER", "''", "expected a table's name"),
        ('ALTER TABLE "" RECLUSTER', '""', "expected a table's name"),
        ("ALTER TABLE 12 RECLUSTER", "12", "expected a table's name"),
        ("ALTER TABLE a. RECLUSTER x", "x", "expected RECLUSTER"),
        ("ALTER TABLE IF NOT EXISTS t RECLUSTER", "NOT", "expected RECLUSTER, not 'NOT'"),
        ("ALTER TABLE lake /t RECLUSTER", "/t", "expected RECLUSTER, not '/'"),
        (
            "ALTER TABLE my-t RECLUSTER",
            "-t",
            "expected RECLUSTER, or single quotes around the whole name, not '-'",
        ),
        ("ALTER TABLE lake/(t) RECLUSTER", "/(t)", "or single quotes around the whole name, not '/'"),
        ("ALTER TABLE lake/'t' RECLUSTER", "'t'", "or single quotes around the whole name, not"),
        ("ALTER TABLE `t RECLUSTER", "`t", "` is never closed"),
        ("ALTER TABLE 't RECLUSTER", "'t", "' is never closed"),
        ("ALTER TABLE t", "", "expected RECLUSTER, but the text ends"),
        ("ALTER TABLE t DROP COLUMN c", "DROP", "expected RECLUSTER, not 'DROP'"),
        ('ALTER TABLE t "RECLUSTER"', '"RECLUSTER"', "expected RECLUSTER"),
        ("ALTER TABLE t RECLUSTER FULL", "FULL", "expected FINAL, WHERE or the end, not 'FULL'"),
        ("ALTER TABLE t RECLUSTER FINAL FINAL", "FINAL", "expected WHERE or the end, not 'FINAL'"),
        ("ALTER TABLE t RECLUSTER WHERE", "", "expected a condition, but the text ends"),
        ("ALTER TABLE t RECLUSTER WHERE ;", "", "expected a condition"),
        ("ALTER TABLE t RECLUSTER; DROP TABLE t", "; DROP", "one statement is expected"),
        ("ALTER TABLE t RECLUSTER WHERE a = 'x", "'x", "' is never closed"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_what_was_expected(
    text: str, marked: str, message: str
) -> None:
    with pytest.raises(InvalidStatementError) as caught:
        parse_statement(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("cannot read the statement at ")
    position = caught.value.details["position"]
    assert text[position:].startswith(marked)
    assert position == (text.rindex(marked) if marked else len(text.rstrip(" ;")))
    assert pickle.loads(pickle.dumps(caught.value)).details == caught.value.details


@pytest.mark.parametrize(
    "location",
    [
        "lake/lineitem",
        "/data/t",
        "./t",
        "../final/where",
        "s3://b-1/x.y/day=2020-01-01/1e5",
        "file:///a~b/0x12/%20+@",
    ],
)
def test_a_location_of_ordinary_characters_needs_no_quotes(location: str) -> None:
    for text in (
        f"ALTER TABLE {location} RECLUSTER",
        f"OPTIMIZE TABLE\n{location}\tRECLUSTER FINAL WHERE a/b = 1;",
    ):
        found = parse_statement(text)
        assert (found.parts, found.is_location, found.location) == ((location,), True, location)


class Recorded:
    """Fakes `tblctl.tables.open` and the table that it returns."""

    def __init__(self, existing: str, error: Exception | None = None) -> None:
        self.existing, self.error = existing, error
        self.opened: list[tuple[str, Any]] = []
        self.reclustered: dict[str, Any] = {}

    def open(self, location: str, *, storage_options: Any = None) -> Recorded:
        self.opened.append((location, storage_options))
        if location != self.existing:
            raise TableNotFoundError(f"there is no table at {location}")
        return self

    def recluster(self, **arguments: Any) -> str:
        self.reclustered = arguments
        if self.error:
            raise self.error
        return "outcome"


def recorded(
    monkeypatch: pytest.MonkeyPatch, existing: str = "s3://b/t", error: Exception | None = None
) -> Recorded:
    made = Recorded(existing, error)
    monkeypatch.setattr("tblctl.tables.open", made.open)
    return made


def test_execute_reclusters_the_table_that_the_name_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = recorded(monkeypatch)
    found = execute(
        "ALTER TABLE lake.t RECLUSTER FINAL WHERE x = 1;",
        resolve={"lake.t": "s3://b/t"}.get,
        storage_options={"key": "k"},
        engine="local",
        options={"threshold": 4},
    )
    assert found == "outcome"
    assert made.opened == [("s3://b/t", {"key": "k"})]
    assert made.reclustered == {
        "where": "x = 1",
        "final": True,
        "engine": "local",
        "options": {"threshold": 4},
    }


@pytest.mark.parametrize("written", ["'s3://b/t'", '"s3://b/t"'])
def test_without_resolve_the_name_is_the_location(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    made = recorded(monkeypatch)
    assert execute(f"ALTER TABLE {written} RECLUSTER") == "outcome"
    assert made.reclustered == {"where": None, "final": False}


def test_a_location_in_single_quotes_is_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch)

    def resolve(name: str) -> str:
        raise AssertionError(name)

    assert execute("ALTER TABLE 's3://b/t' RECLUSTER", resolve=resolve) == "outcome"


@pytest.mark.parametrize("resolve", [None, {"t": "elsewhere"}.get, {}.get])
def test_a_missing_table_is_an_error_unless_the_statement_says_if_exists(
    monkeypatch: pytest.MonkeyPatch, resolve: Any
) -> None:
    recorded(monkeypatch)
    with pytest.raises(TableNotFoundError):
        execute("ALTER TABLE t RECLUSTER", resolve=resolve)
    assert execute("ALTER TABLE IF EXISTS t RECLUSTER", resolve=resolve) is None


def test_an_error_of_the_condition_is_placed_in_the_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, error=InvalidPredicateError("unknown column y", position=4))
    text = "ALTER TABLE 's3://b/t' RECLUSTER WHERE not y = 1"
    with pytest.raises(InvalidPredicateError, match="unknown column y") as caught:
        execute(text)
    assert text[caught.value.details["position"] :] == "y = 1"


def test_a_statement_is_a_frozen_value() -> None:
    found = parse_statement("ALTER TABLE t RECLUSTER")
    assert found == Statement(
        parts=("t",), is_location=False, if_exists=False, final=False, where=None, where_position=None
    )
    assert tblctl.execute is execute


WORDS = "ALTER OPTIMIZE TABLE IF EXISTS a . 'b' \"c\" RECLUSTER FINAL WHERE = 1 ; /* -- ' \" ( SHOW"


@settings(max_examples=cases(170))
@given(st.text() | st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join))
def test_any_text_is_a_statement_or_the_one_error_with_a_place(text: str) -> None:
    position = 0
    try:
        assert all(parse_statement(text).parts)
    except InvalidStatementError as error:
        position = error.details["position"]
    assert 0 <= position <= len(text)


@settings(max_examples=cases(100))
@given(
    parts=st.lists(st.text(min_size=1).filter(lambda part: "\0" not in part), min_size=1, max_size=3),
    if_exists=st.booleans(),
    final=st.booleans(),
    optimize=st.booleans(),
)
def test_a_quoted_name_comes_back_as_it_is_and_its_text_stands_for_it_alone(
    parts: list[str], if_exists: bool, final: bool, optimize: bool
) -> None:
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    verb, exists, end = "OPTIMIZE" if optimize else "ALTER", "IF EXISTS " * if_exists, " FINAL" * final
    found = parse_statement(f"{verb} TABLE {exists}{quoted} RECLUSTER{end}")
    assert (found.parts, found.if_exists, found.final) == (tuple(parts), if_exists, final or optimize)
    assert not any("." in part for part in parts) or found.name != ".".join(parts)


def test_a_mapping_may_resolve_names() -> None:
    names: dict[str, str] = {}
    assert tblctl.execute("OPTIMIZE TABLE IF EXISTS lake.t RECLUSTER", resolve=names.__getitem__) is None
    with pytest.raises(TableNotFoundError, match="no table named lake"):
        tblctl.execute("OPTIMIZE TABLE lake.t RECLUSTER", resolve=names.__getitem__)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("(a, b) < (2, 1)", 2),
        ("(a = 1 OR b = 2) IS NOT TRUE", 7),
        ("s LIKE 'a!_%' ESCAPE '!'", 4),
        ("a NOT BETWEEN 2 AND NULL", 2),
        ("s IS NULL IS TRUE", 4),
        (f"a IN ({','.join(map(str, range(3000)))})", 8),
        ("NULL", 0),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_condition_of_any_form_can_be_given_wherever_there_is_one(
    memory_url: str, where: str, rows: int
) -> None:
    table = tblctl.create(memory_url, "a: int64, b: int64, s: string", cluster_by="a")
    for k in range(4):
        table.append(pa.table({"a": [k, k + 4, None], "b": [1, 2, None], "s": ["a_b", "ab%", None]}))
    assert table.scan(where).to_arrow().num_rows == rows
    read = table.scan(where).explain().blocks_read
    assert (read == 0) is (rows == 0)
    assert table.info(where=where).total_block_count == read
    assert [item.blocks_read for item in table.suggest([where]).predicates] == [read]
    assert pickle.loads(pickle.dumps(resolved(where, table._native.head().schema))) is not None
    plan = table.plan(where=where)
    assert type(plan).from_json(plan.to_json()).groups == plan.groups
    execute(f"ALTER TABLE '{memory_url}' RECLUSTER WHERE {where}")
    assert table.delete(where).rows_removed == rows
    assert table.scan(where).to_arrow().num_rows == 0
