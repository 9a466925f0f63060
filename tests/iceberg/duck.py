"""DuckDB with its iceberg extension, in an environment of its own, as a third reader.

`make .venv-duckdb/.installed` makes it, and `make test` does: the extensions are of one version of DuckDB, and not of
the one that tests use.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers import missing_server

FOLDER = Path(__file__).resolve().parents[2] / ".venv-duckdb"
INSTALLED = FOLDER / ".installed"

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
database.execute("SET TimeZone = 'UTC'")
for line in sys.stdin:
    try:
        answer = {"rows": database.execute(json.loads(line)).fetchall()}
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), flush=True)
"""


class Duck:
    """A running DuckDB. Skips the test, or fails it with CI=true, where its environment is missing."""

    def __init__(self) -> None:
        if not INSTALLED.exists():
            missing_server("DuckDB's environment is missing: make .venv-duckdb/.installed")
        words = [str(FOLDER / "bin" / "python"), "-c", PROGRAM]
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

    def named(self, statement: str, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of a query by the names of its columns."""
        return [dict(zip(names, row, strict=True)) for row in self.sql(statement)]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
