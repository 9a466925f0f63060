"""Output for people: tables that fit, readable numbers, and no control characters from data."""

from __future__ import annotations

import pytest

from tblctl.cli.show import render


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (203_423_744, "194.0 MiB"), (2**40, "1.0 TiB")],
)
def test_sizes_have_binary_units(size_bytes: int, text: str) -> None:
    assert render.size(size_bytes) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.041, "0.04 s"), (12.34, "12.3 s"), (200, "3 min 20 s")])
def test_durations_have_units(seconds: float, text: str) -> None:
    assert render.duration(seconds) == text


def test_counts_have_a_plural() -> None:
    assert [render.count(n, "row") for n in (0, 1, 6_001_215)] == ["0 rows", "1 row", "6,001,215 rows"]


def test_a_table_aligns_numbers_to_the_right_and_leaves_no_blanks_at_line_ends() -> None:
    text, left_out = render.table(["n", "text"], [(1, "a"), (100, None), (20, "long")], width=None, right=[0])
    assert text.splitlines() == ["  n  text", "---  ----", "  1  a", "100  NULL", " 20  long"]
    assert left_out == ()


def test_columns_that_do_not_fit_go_missing_in_the_middle_and_are_named() -> None:
    names = [f"column{i}" for i in range(6)]
    text, left_out = render.table(names, [range(6)], width=30)
    assert left_out == ("column2", "column3", "column4")
    assert text.splitlines()[0] == "column0  column1  …  column5"
    assert all(render.text_width(line) <= 30 for line in text.splitlines())


@pytest.mark.parametrize("width", [1, 5, 10, 17, 18, 19, 40, 100])
def test_a_table_is_never_wider_than_the_terminal_unless_one_column_is(width: int) -> None:
    text, left_out = render.table(["a", "bcd", "ef"], [("x" * 9, "y", "z" * 4)], width=width)
    widest = max(render.text_width(line) for line in text.splitlines())
    assert widest <= width or len(left_out) == 2


def test_long_cells_are_cut_on_a_terminal_only() -> None:
    long = "x" * 100
    assert long in render.table(["a"], [(long,)], width=None)[0]
    assert ("x" * 47 + "…") in render.table(["a"], [(long,)], width=80)[0]


def test_data_cannot_steer_the_terminal() -> None:
    text, _ = render.table(
        ["a\x1b[2J"], [("\x1b]0;title\x07",), ("two\nlines",), ("right\u202eleft",)], width=None
    )
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert r"two\nlines" in text
    assert len(text.splitlines()) == 5


def test_wide_characters_take_two_columns() -> None:
    assert render.text_width("日本") == 4
    assert render.shorten("日本語", 5) == "日本…"
    text, _ = render.table(["a", "b"], [("日本", 1), ("x", 2)], width=None)
    assert text.splitlines()[2:] == ["日本  1", "x     2"]


def test_nested_values_are_shown_as_json() -> None:
    assert render.cell([1, {"a": None}]) == '[1, {"a": null}]'
    assert [render.cell(value) for value in (True, False, None, "NULL")] == ["true", "false", "NULL", "NULL"]
