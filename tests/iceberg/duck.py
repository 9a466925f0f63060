"""DuckDB with its iceberg extension, in an environment of its own, as a third reader.

Make one with `python3 -m venv .venv-duckdb` and `.venv-duckdb/bin/pip install duckdb==1.5.5
duckdb-extension-avro==1.5.5 duckdb-extension-iceberg==1.5.5`: the extensions are of one version of DuckDB, and not of
the one that tests use.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).resolve().parents[2] / ".venv-duckdb" / "bin" / "python"

PROGRAM = """
import json, sys
from importlib import import_module
from pathlib import Path
import duckdb

database = duckdb.connect()
for name in ("avro", "iceberg"):
    folder = Path(import_module(f"duckdb_extension_{name}").__file__).parent
    (path,) = folder.glob(f"extensions/*/{name}.duckdb_extension")
    database.execute(f"LOAD '{path}'")
for line in sys.stdin:
    try:
        answer = {"rows": database.execute(json.loads(line)).fetchall()}
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), flush=True)
"""


class Duck:
    """A running DuckDB."""

    def __init__(self) -> None:
        words = [str(PYTHON), "-c", PROGRAM]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def sql(self, statement: str) -> list[list[Any]]:
        """Return the rows of a query."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        rows: list[list[Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
