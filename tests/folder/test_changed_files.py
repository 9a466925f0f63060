"""Source files that were written again after an import took them: reported until somebody settles it."""

from __future__ import annotations

from click.testing import CliRunner
from tables import assert_sound

import tblctl
from tblctl.cli.main import application

from .files import interleaved, write
from .test_import import bring, ids


def test_changed_files_can_be_settled_and_are_reported_again_once_they_change_again(tmp_path):
    folder = interleaved(tmp_path / "in", count=2, rows=2)
    target = tmp_path / "t"
    bring(folder, target)
    path = write(folder, "part-1.parquet", {"at": [5], "id": [500]})
    write(folder, "new.parquet", {"at": [9], "id": [9]})
    settled = bring(folder, target, accept_changed=True)
    assert (settled.files_changed, settled.files_taken) == ((str(path),), 1)
    after = bring(folder, target, accept_changed=True)
    assert (after.files_changed, after.files_known, after.snapshot) == ((), 3, None)
    assert ids(target) == [0, 1, 2, 3, 9]
    newest = next(iter(tblctl.open(target).history()))
    assert newest.detail["import"] == {"from": str(folder), "files": 0, "accepted": 1}
    write(folder, "part-1.parquet", {"at": [5, 6], "id": [500, 600]})
    assert bring(folder, target).files_changed == (str(path),)
    assert bring(folder, target).files_changed == (str(path),)
    assert_sound(tblctl.open(target))


def test_the_command_says_how_to_settle_it_and_what_that_did(tmp_path):
    folder, target = interleaved(tmp_path / "in", count=1, rows=2), tmp_path / "t"
    words = ["import", str(folder), str(target)]
    assert CliRunner().invoke(application, words).exit_code == 0
    write(folder, "part-0.parquet", {"at": [5], "id": [500]})
    said = " ".join(CliRunner().invoke(application, words).stdout.split())
    assert "1 file was taken before and written again since, and not taken again" in said
    assert "`import --accept-changed` ends this report" in said
    said = " ".join(CliRunner().invoke(application, [*words, "--accept-changed"]).stdout.split())
    assert "Their rows in the table stay; from now on they count as taken as they are" in said
    assert "written again" not in CliRunner().invoke(application, words).stdout
