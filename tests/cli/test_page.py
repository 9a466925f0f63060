"""Lines of a page: depths as bars, paragraphs that fit, colours by depth."""

from __future__ import annotations

import pytest

from tblctl.cli.show import page, render


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([], ""),
        ([None, None], "··"),
        ([0.0, None, 0.0], "▁·▁"),
        ([0.0, 35.0, None, 70.0, 1.0], "▁▅·█▁"),
    ],
)
def test_a_sparkline_goes_from_zero_to_the_greatest_with_dots_for_gaps(
    values: list[float | None], marks: str
) -> None:
    assert page.sparkline(values) == marks


@pytest.mark.parametrize(
    ("depth", "style"), [(0, "green"), (2, "green"), (2.1, "yellow"), (16, "yellow"), (17, "red")]
)
def test_colours_tell_shallow_from_deep(depth: float, style: str) -> None:
    assert page.depth_style(depth) == style


def test_a_paragraph_is_wrapped_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page.put_paragraph("1. one two three four\x1b[31m", indent=3)
    assert capsys.readouterr().out == "1. one two three four\\x1b[31m\n"
    monkeypatch.setattr(render, "terminal_width", lambda: 12)
    page.put_paragraph("1. one two three four", indent=3)
    assert capsys.readouterr().out == "1. one two\n   three\n   four\n"
