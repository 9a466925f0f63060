"""Workers that cannot run tasks are noticed before any task, and the error says what to do."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from zipimport import zipimporter

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import xxhash

from tblctl.merger.engines.spark import frame, on_worker, shuffled, workers
from tblctl.spark.code import CODE
from tblctl.tableformat.errors import EngineError

from .conftest import python

ROOT = Path(__file__).resolve().parents[2]
FIT = {
    "host": "node1",
    "python": platform.python_version(),
    "pyarrow": pa.__version__,
    "numpy": np.__version__,
    "fsspec": fsspec.__version__,
    "xxhash": xxhash.VERSION,
    "tblctl": "/tmp/spark/tblctl-1.zip/tblctl/__init__.py",
}


class Session:
    """As much of a classic session as `prepare` uses."""

    def __init__(self, master: str, python: str) -> None:
        self.sparkContext = SimpleNamespace(master=master, pythonExec=python, defaultParallelism=2)
        self.conf = SimpleNamespace(get=lambda _name, default: default)

    def addArtifacts(self, *_paths: str, pyfile: bool) -> None:  # noqa: N802 (pyspark's name)
        assert pyfile


@pytest.mark.parametrize(
    ("master", "executable", "looks"),
    [
        ("local", sys.executable, 0),
        ("local[2]", sys.executable, 0),
        ("local[*]", "/usr/bin/python3.9", 1),
        ("local-cluster[2,1,1024]", sys.executable, 1),
        ("spark://host:7077", sys.executable, 1),
    ],
)
def test_workers_are_asked_unless_they_run_the_same_python_on_this_host(
    master: str, executable: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(workers, "look_at_workers", lambda _session, tasks: looked.append(tasks) or [])
    session = Session(master, executable)
    workers.prepare(session, CODE)
    workers.prepare(session, CODE)
    assert len(looked) == looks


def test_workers_like_the_driver_pass() -> None:
    minor = f"{pa.__version__.split('.')[0]}.99.0"
    workers.require_fit([FIT, FIT | {"host": "node2", "pyarrow": minor}], zip_name="tblctl-1.zip")


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({"python": "3.8.1"}, f"node2: python is 3.8.1, but {platform.python_version()}"),
        ({"pyarrow": "12.0.0"}, f"node2: pyarrow is 12.0.0, but {pa.__version__}"),
        (
            {"fsspec": "! ModuleNotFoundError: No module named 'fsspec'"},
            "node2: fsspec cannot be imported (Mod",
        ),
        ({"tblctl": "/usr/lib/tblctl/__init__.py"}, "node2: tblctl comes from /usr/lib/tblctl/__init__.py"),
    ],
)
def test_what_differs_is_named_with_its_host_and_what_to_do(differs: dict[str, str], expected: str) -> None:
    with pytest.raises(EngineError) as caught:
        workers.require_fit([FIT, FIT | {"host": "node2"} | differs], zip_name="tblctl-1.zip")
    assert expected in str(caught.value)
    assert "node1" not in str(caught.value)
    for advice in ("PYSPARK_PYTHON", "spark.archives", f"pyarrow {pa.__version__.split('.')[0]}"):
        assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("name", "found", "oldest"),
    [
        ("pyarrow", "22.0.0", "23"),
        ("numpy", "1.26.4", "2"),
        ("fsspec", "2025.2.0", "2025.3"),
        ("xxhash", "3.4.1", "3.5"),
    ],
)
def test_a_version_that_is_too_old_is_named_with_its_host_and_the_oldest_that_works(
    name: str, found: str, oldest: str
) -> None:
    with pytest.raises(
        EngineError, match=f"node2: {name} {found} is too old, tblctl needs {oldest} or newer"
    ):
        workers.require_fit([FIT, FIT | {"host": "node2", name: found}], zip_name="tblctl-1.zip")


def test_the_oldest_versions_of_workers_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for name, oldest in workers.NEEDED.items():
        assert f"{name}>={oldest}," in " ".join(declared)
        workers.require_fit(
            [FIT | {name: oldest if name != "pyarrow" else FIT[name]}], zip_name="tblctl-1.zip"
        )


BARE_WORKERS = """
import sys
from tblctl.merger.engines.spark.engine import SparkEngine
from tblctl.spark.code import CODE
from tblctl.merger.engines.spark.session import open_session
from tblctl.tableformat.errors import EngineError

with open_session(master="local[1]") as session:
    session.sparkContext.pythonExec = sys.argv[1]
    try:
        SparkEngine(session, CODE).run(None, [], print, title="none")
    except EngineError as error:
        print(error)
"""


@pytest.mark.parametrize("kind", ["without libraries", "missing"])
def test_workers_without_libraries_or_python_are_explained(java: None, tmp_path: Path, kind: str) -> None:
    bare = tmp_path / "bare" / "bin" / "python"
    if kind == "without libraries":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = python(BARE_WORKERS, words=(bare,), cwd=tmp_path)
    assert {
        "without libraries": "pyarrow cannot be imported (ModuleNotFoundError",
        "missing": f'Cannot run program "{bare}"',
    }[kind] in done.stdout, done.stderr
    assert "PYSPARK_PYTHON" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_task_leaves_no_zip_to_be_read_again_before_the_next(tmp_path: Path, monkeypatch) -> None:
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as archive:
        archive.writestr("tblctl_one.py", "")
        archive.writestr("tblctl_two.py", "")
    monkeypatch.syspath_prepend(str(tmp_path / "modules.zip"))
    for mapper in (
        frame._of_items(lambda pickled: [pickled]),
        frame._of_batches(lambda pickled: [pickled]),
        shuffled._sorter(b""),
        shuffled._merger(b"", 1, on_worker.run),
    ):
        assert importlib.util.find_spec("tblctl_one")
        assert _zips()
        assert list(mapper(iter([]))) == []
        assert not _zips()
    assert importlib.import_module("tblctl_two").__file__ == str(tmp_path / "modules.zip" / "tblctl_two.py")


def _zips() -> list[str]:
    return [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
