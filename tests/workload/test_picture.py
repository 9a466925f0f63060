"""What a table was asked, over time and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked_tables import table_of
from click.testing import CliRunner
from query_logs import put

import tblctl
from tblctl import errors
from tblctl.cli.main import application
from tblctl.pictures.asked import MOST_COLUMNS, asked_picture, write_asked
from tblctl.tableformat.workload.lines import encode_query
from tblctl.workload.report import STRETCHES, over_time

ODD = "s in ('user-0001', 'with \x1b[31m an odd text')"


def invoke(*words: str) -> Any:
    return CliRunner().invoke(application, [*words], catch_exceptions=False)


def asked(location: str) -> tblctl.Table:
    """Return a table whose queries ask by `a` at first, then by `t`, after a time without any; one is odd."""
    table = table_of(location)
    port = table._port
    wheres = [(hour, "a between 100 and 140") for hour in range(48)] + [(90, ODD), (96, "t >= 700")]
    lines = [
        encode_query(tblctl.Query(time=1.7e9 + hour * 3600.0, where=where, columns=("a",)))
        for hour, where in wheres
    ]
    put(port.log_place(), port.env.now(), *lines, table_id=port.newest().table_id)
    return table


def test_stretches_of_time_are_of_one_length_and_know_what_was_tested() -> None:
    found = over_time([(0.0, 1.0, ["a"]), (1.0, 3.0, ["a", "b"]), (10.0, 2.0, [])])
    assert [(item.start, item.weight, dict(item.shares)) for item in found] == [
        (0.0, 4.0, {"a": 1.0, "b": 0.75}),
        (pytest.approx(10 / 3), 0.0, {}),
        (pytest.approx(20 / 3), 2.0, {}),
    ]
    assert over_time([]) == ()
    assert [item.weight for item in over_time([(5.0, 1.0, ["a"])] * 3)] == [3.0]
    assert len(over_time([(float(time), 1.0, []) for time in range(999)])) == STRETCHES


def test_a_picture_shows_columns_over_time_and_hot_ranges_without_control_characters(tmp_path: Path) -> None:
    report = asked(str(tmp_path / "t")).workload()
    picture = asked_picture(report, "t")
    assert picture.columns == ("a", "s", "t")
    assert picture.shares.shape == (3, STRETCHES)
    assert picture.shares[0, 0] == 1.0
    assert picture.shares[2, -1] == 1.0
    assert np.isnan(picture.shares[:, 30]).all()
    assert (0, "100..140", pytest.approx(0.96)) in picture.hot
    assert all(text.isprintable() for _, text, _ in picture.hot)
    assert len(picture.columns) <= MOST_COLUMNS


def test_the_command_draws_svg_and_png_and_the_same_each_time(tmp_path: Path) -> None:
    location, file = str(tmp_path / "t"), tmp_path / "asked.svg"
    asked(location)
    done = invoke("workload", location, "--picture", str(file))
    assert done.exit_code == 0
    assert f"picture: {file}" in done.stdout.replace("\n", "")
    first = file.read_bytes()
    assert b"asked for over time" in first
    assert b"100..140" in first
    assert b"\x1b" not in first
    assert invoke("workload", location, "--picture", str(file), "--json").exit_code == 0
    assert file.read_bytes() == first
    write_asked(tblctl.open(location).workload(), location, tmp_path / "asked.png")
    assert (tmp_path / "asked.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    table = table_of(location)
    for words, message in (
        (("--picture", str(tmp_path / "a.html")), "ends with .svg or .png"),
        (("--picture", str(tmp_path / "no" / "a.svg")), "there is no folder"),
        (("import", "q.sql", "--picture", "a.svg"), "--picture is for what is shown"),
    ):
        done = invoke("workload", location, *words)
        assert done.exit_code == 2
        assert message in done.stderr
    with pytest.raises(errors.InvalidOptionError, match="nothing to draw"):
        write_asked(table.workload(), location, tmp_path / "a.svg")
    assert not list(tmp_path.glob("*.svg"))
