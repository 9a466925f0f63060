"""The demo on Iceberg tells its story to the end, on a tiny table."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent.parent / "scripts"


def test_the_demo_on_iceberg_runs_without_a_server(tmp_path: Path) -> None:
    """`SF=0.001 BATCHES=6 make demo-iceberg`, in a folder of its own."""
    (tmp_path / "scripts").mkdir()
    for path in SCRIPTS.glob("demo*"):
        shutil.copy(path, tmp_path / "scripts")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SF": "0.001",
        "BATCHES": "6",
        "XDG_CACHE_HOME": str(tmp_path / "no MinIO here"),
    }
    command = ["bash", "scripts/demo_iceberg.sh"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "appended 6,005 rows in 6 commits" in done.stdout
    assert "$ tblctl recluster iceberg://demo/tpch.lineitem" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert (tmp_path / "demo-data" / "iceberg" / "catalog.db").exists()
