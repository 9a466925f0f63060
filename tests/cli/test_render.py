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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.041, "0.04 s"),
        (12.34, "12.3 s"),
        (200, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (133_859, "37 h 11 min"),
    ],
)
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


SENTENCE = "a sentence of seven words, for people"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_sentences_are_wrapped_and_never_cut(width: int) -> None:
    rows = [("name", 7, SENTENCE, "--first --second --third"), ("other", 12_345, "", "--fourth")]
    text, left_out = render.table(["a", "number", "what", "more"], rows, width=width, right=(1,), text=(2, 3))
    lines = text.splitlines()
    assert left_out == ()
    assert all(render.text_width(line) <= width for line in lines)
    words = " ".join(text.split())
    for word in (*SENTENCE.split(), "--first", "--second", "--third", "--fourth"):
        assert word in words.split()
    assert len(lines) == 4 or width < 100


def test_sentences_go_below_their_rows_where_columns_leave_no_room() -> None:
    text, _ = render.table(["name", "what"], [("n" * 20, SENTENCE), ("m", "short")], width=40, text=(1,))
    assert text.splitlines() == [
        "name",
        "-" * 20,
        "n" * 20,
        "    a sentence of seven words, for",
        "    people",
        "m",
        "    short",
    ]


def test_columns_that_say_nothing_make_room_for_sentences_and_data_keeps_its_columns() -> None:
    rows = [("n" * 20, "", SENTENCE)]
    for width in (48, 60):
        text, left_out = render.table(["name", "nothing", "what"], rows, width=width, text=(2,))
        assert ("nothing" in text, left_out) == (False, ())
    assert "nothing" in render.table(["name", "nothing", "what"], rows, width=None, text=(2,))[0]
    assert "nothing" in render.table(["name", "nothing", "what"], rows, width=30)[1]


def test_a_word_that_is_wider_than_its_column_is_broken() -> None:
    assert render.wrapped("abcdefgh ij", 3) == ["abc", "def", "gh", "ij"]
    assert render.wrapped("日本語", 4) == ["日本", "語"]
    assert render.wrapped("", 4) == []


def test_room_is_shared_by_need_first() -> None:
    assert render.shared([5, 50, 60], 65) == [5, 30, 30]
    assert render.shared([5, 6], 65) == [5, 6]
