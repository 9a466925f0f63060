"""No parser does more with hostile input than raise its errors: no other error, no abort, no flood of memory or time.

Each parser of `parsers.py` is attacked in a process of its own, a fork of one that has loaded all of them
(`attack.py`, which says how a failure is repeated).
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.attack import CASES, judge
from hostile.parsers import PARSERS
from profiles import cases

TESTS = Path(__file__).parents[1]
SECONDS = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-X", "faulthandler", "-m", "hostile.attack"]
    folder = tmp_path_factory.mktemp("hostile")  # attacks end without removing what they made
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "TMPDIR": str(folder)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, env=environment, start_new_session=True) as running:
        yield running
        running.stdin.close()
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:  # an attack hangs
            os.killpg(running.pid, signal.SIGKILL)


@pytest.mark.timeout(2 * SECONDS + cases(100))
@pytest.mark.parametrize("name", PARSERS)
def test_hostile_input_is_refused_or_read_within_limits(
    name: str, server: subprocess.Popen[str], tmp_path: Path
) -> None:
    count, printed = cases(40), tmp_path / "printed"
    server.stdin.write(f"{name} {count} {printed}\n")
    server.stdin.flush()
    assert select.select([server.stdout], [], [], SECONDS + cases(count))[0], "it hangs"
    code = int(server.stdout.readline())
    lines = printed.read_text().splitlines()
    wrong = [line for line in lines if line.startswith("wrong")]
    assert code == 0, (wrong, lines[-20:])
    assert (
        sum(line.startswith("case ") for line in lines) >= 30
    )  # the smallest inputs may be fewer than asked for


def test_every_kept_case_belongs_to_a_parser() -> None:
    assert {path.name for path in CASES.iterdir()} <= PARSERS.keys()
    sizes = [path.stat().st_size for path in CASES.rglob("*") if path.is_file()]
    assert sum(sizes) < 60_000


SOURCES = Path(__file__).parents[2]
READS = re.compile(
    r"json\.loads?\(|pq\.(?:ParquetFile|read_metadata|read_schema|read_table)\(|ipc\.open_|read_struct\("
)
COVERED = {
    "api/storage_text.py": "storage-options",
    "api/workload/files.py": "query-log-parquet",
    "api/workload/importing.py": "spark-log",
    "cli/commands/change.py": "input-arrow",
    "cli/commands/recluster.py": "plan",
    "tableformat/iceberg/appending/lists.py": "import-property",
    "tableformat/iceberg/avro/container.py": "avro",
    "tableformat/iceberg/curves.py": "curve-property",
    "tableformat/folder/footers.py": "folder-footer",
    "tableformat/folder/kept.py": "kept-footers",
    "tableformat/iceberg/own_files.py": "footer-keys",
    "tableformat/iceberg/own_keys.py": "side-file",
    "tableformat/iceberg/publish/summary.py": "commit-detail",
    "tableformat/iceberg/reading/position_deletes.py": "delete-file",
    "tableformat/native/log/head.py": "hint",
    "tableformat/import_lists.py": "import-list",
    "tableformat/native/log/segment_reader.py": "segment",
    "tableformat/native/log/snapshot_file.py": "snapshot",
    "tableformat/native/write/input_rows.py": "input-parquet",
    "tableformat/parquet/checked_footer.py": "data-file-footer",
    "tableformat/parquet/footer.py": "footer",
    "tableformat/parquet/input_files.py": "input-parquet",
    "tableformat/pending.py": "pending-plan",
    "tableformat/workload/lines.py": "query-log-line",
    "tableformat/parquet/opened.py": "block",
    "tableformat/parquet/sealed.py": "block",
    # What these read was written by this process, or by a Spark worker for it.
    "merger/engines/spark/workers.py": "",
    "merger/presort/spill.py": "",
    "tableformat/iceberg/writing/outputs.py": "",
    "tableformat/parquet/block_writer.py": "",
    "tableformat/parquet/encodings.py": "",
}


def test_every_module_that_parses_bytes_has_a_parser_in_the_list() -> None:
    folders = ("api", "cli", "merger", "metrics", "selector", "tableformat")
    paths = [path for folder in folders for path in (SOURCES / folder).rglob("*.py")]
    found = {
        str(path.relative_to(SOURCES)) for path in paths if READS.search(path.read_text(encoding="utf-8"))
    }
    assert found - {"tableformat/parquet/thrift.py"} == COVERED.keys()
    assert {name for name in COVERED.values() if name} <= PARSERS.keys()


@pytest.mark.parametrize("name", ["where", "hint"])
def test_the_harness_notices_an_error_of_another_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = PARSERS[name]
    monkeypatch.setitem(parser.__dict__, "parse", lambda data: {}[data])
    with pytest.raises(Exception, match="it raised KeyError"):
        judge(parser, parser.valid()[0])


def test_the_harness_notices_a_flood_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    parser = PARSERS["hint"]
    monkeypatch.setitem(parser.__dict__, "parse", lambda _data: pa.allocate_buffer(300 << 20))
    with pytest.raises(Exception, match="Arrow held"):
        judge(parser, parser.valid()[0])
