"""The zip with tblctl for workers: complete, the same for the same sources, and writable by its user only."""

from __future__ import annotations

import importlib
import os
import py_compile
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from tblctl.merger.engines.spark import shipping, workers
from tblctl.spark.code import CODE
from tblctl.tableformat.errors import EngineError, InternalError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_every_module_of_the_packages_is_in_the_zip_and_no_other(temporary: Path) -> None:
    names = zipfile.ZipFile(BytesIO(shipping.zip_content(CODE))).namelist()
    found = {name for name in names if not name.endswith(".pyc")}
    folders = {name: name for name in ("merger", "metrics", "selector", "tableformat")}
    folders |= {name: f"api/{name}" for name in ("maintain", "spark", "workload")}
    assert found == {f"tblctl/{name}" for name in CODE.modules} | {
        f"tblctl/{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for package, folder in folders.items()
        for path in (ROOT / folder).rglob("*.py")
    }


def test_a_session_takes_one_choice_of_code_only(temporary: Path) -> None:
    class Session:
        conf = SimpleNamespace(get=lambda *_: "2")

    session = Session()
    workers._PREPARED[session] = CODE
    workers.prepare(session, CODE)
    with pytest.raises(InternalError, match="would hide"):
        workers.prepare(session, replace(CODE, modules=("__init__.py",)))


def test_tasks_run_from_the_zip_alone(temporary: Path) -> None:
    program = (
        "import sys\n"
        "sys.meta_path[:] = [finder for finder in sys.meta_path if 'editable' not in repr(finder)]\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import tblctl.merger.engines.spark.on_worker, tblctl.tableformat.native.block_io\n"
        "import tblctl.maintain.pending, tblctl.maintain.recluster, tblctl.maintain.after_write\n"
        "print({module.__file__.split('.zip/')[0] for name, module in sys.modules.items()"
        " if name.split('.')[0] == 'tblctl'} == {sys.argv[1].removesuffix('.zip')}, 'pyspark' in sys.modules)"
    )
    path = shipping.stored_zip(CODE)
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, cwd=temporary
    )
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_bytecode_of_the_same_source_is_taken_and_no_other(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers import it from the zip, although the sources there have no time."""
    path = temporary / "tblctl_told.py"
    path.write_text("place = __file__\n")
    assert shipping._bytecode(path, path.read_bytes()) is None
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    bytecode = shipping._bytecode(path, path.read_bytes())
    assert bytecode is not None
    with zipfile.ZipFile(temporary / "code.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("tblctl_told.py", shipping._EPOCH), path.read_bytes())
        archive.writestr("tblctl_told.pyc", bytecode)
    monkeypatch.syspath_prepend(temporary / "code.zip")
    monkeypatch.delitem(sys.modules, "tblctl_told", raising=False)
    assert importlib.import_module("tblctl_told").place.endswith(".pyc")
    path.write_text("place = 1\n")
    assert shipping._bytecode(path, path.read_bytes()) is None


def test_bytecode_of_another_python_is_passed_over(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(temporary / "other.zip", "w") as archive:
        archive.writestr("tblctl_other.py", "place = __file__\n")
        archive.writestr("tblctl_other.pyc", b"\x00\x00\r\n" + bytes(12) + b"no code")
    monkeypatch.syspath_prepend(temporary / "other.zip")
    monkeypatch.delitem(sys.modules, "tblctl_other", raising=False)
    assert importlib.import_module("tblctl_other").place.endswith(".py")


def test_the_same_sources_make_the_same_zip_in_the_same_place(temporary: Path) -> None:
    content, path = shipping.zip_content(CODE), shipping.stored_zip(CODE)
    shipping.zip_content.cache_clear()
    assert shipping.zip_content(CODE) == content
    assert shipping.stored_zip(CODE) == path
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert "tblctl/merger/task/merge.py" in zipfile.ZipFile(BytesIO(content)).namelist()


@pytest.mark.parametrize("content", [b"", b"planted"])
def test_a_zip_with_other_content_is_written_anew(temporary: Path, content: bytes) -> None:
    path = shipping.stored_zip(CODE)
    path.write_bytes(content)
    assert shipping.stored_zip(CODE).read_bytes() == shipping.zip_content(CODE)


def test_the_folder_is_closed_to_others(temporary: Path) -> None:
    assert shipping.stored_zip(CODE).parent.stat().st_mode & 0o777 == 0o700


def test_a_place_that_cannot_be_written_is_named(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with pytest.raises(EngineError, match=rf"{temporary}/missing/tblctl-.*TMPDIR"):
        shipping.stored_zip(CODE)


def test_a_folder_that_others_may_change_is_refused(temporary: Path) -> None:
    folder = temporary / f"tblctl-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(EngineError, match="other users could change it"):
        shipping.stored_zip(CODE)


def test_a_link_in_the_folders_place_is_refused(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir(mode=0o700)
    (temporary / f"tblctl-{os.getuid()}").symlink_to(temporary / "elsewhere")
    with pytest.raises(EngineError, match="remove it"):
        shipping.stored_zip(CODE)
    assert not list((temporary / "elsewhere").iterdir())


def test_a_file_in_the_folders_place_is_refused(temporary: Path) -> None:
    (temporary / f"tblctl-{os.getuid()}").touch()
    with pytest.raises(EngineError, match="remove it"):
        shipping.stored_zip(CODE)
