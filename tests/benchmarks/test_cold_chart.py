"""The README's chart is drawn from the result files as they are."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("cold_chart", ROOT / "scripts" / "cold_chart.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_chart_has_the_figures_of_the_last_run(script):
    assert script.chart(script.groups()) == script.CHART.read_text(encoding="utf-8")


def test_the_readme_says_what_the_chart_shows(script):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if "docs/pictures/cold.svg" in line)
    for bars in script.groups().values():
        for bar in bars:
            assert f" {bar.seconds:.1f}" in line


def test_a_figure_that_is_missing_is_an_error(script):
    with pytest.raises(ValueError, match=r"small\.txt has no line 'tblctl merge' under '22 MB'"):
        script.measured("small.txt", "22 MB", "tblctl merge")
