"""Apache Hudi's clustering procedure; it needs Spark 3.5, so an environment of its own (`make .venv-hudi`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import ROOT
from benchmarks.merging.contender import KEY, PROCESSES, Job, MissingError

_PYTHON = ROOT / ".venv-hudi" / "bin" / "python"
_SERVER = Path(__file__).with_name("hudi_server.py")


class Clustering:
    """Schedule and execute, of a copy-on-write table with one file for each of the job's."""

    def __init__(self, job: Job, folder: Path) -> None:
        if not _PYTHON.exists():
            msg = "it needs an environment with Spark 3.5, which `make .venv-hudi` makes"
            raise MissingError(msg)
        with (folder / "spark.log").open("w") as log:
            self._server = subprocess.Popen(
                [_PYTHON, "-P", _SERVER],  # -P: modules beside it are not the standard library's
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
            )
        self._log = folder / "spark.log"
        self._ask(
            files=job.files, key=KEY, output_bytes=job.output_bytes, processes=PROCESSES, folder=str(folder)
        )

    def reset(self) -> None:
        self._ask(do="reset")

    def run(self) -> None:
        self._ask(do="run")

    def output(self) -> Sequence[str]:
        return self._ask(do="output")

    def _ask(self, **request: object):
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            last = self._log.read_text().strip().splitlines()[-1:]
            msg = f"the process with Spark 3.5 ended with {self._server.wait()}: {' '.join(last)}"
            raise MissingError(msg)
        return json.loads(answer)
