"""A standalone cluster of our own: a master and two workers, each with an address and folders that no other has."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .conftest import free_port, unmarked_environment

READY_SECONDS = 120.0
WORKER_HOSTS = {"worker-1": "127.0.0.1", "worker-2": "127.0.0.2"}
REGISTERED = "Successfully registered with master"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster. `workers` are the folders of its two workers, by process id."""

    url: str
    workers: dict[int, Path]

    def executors(self) -> list[Path]:
        """Return the working folders of all executors so far, of any application."""
        return sorted(path for folder in self.workers.values() for path in folder.glob("work/app-*/*"))

    def running_executors(self) -> list[int]:
        """Return the process ids of the executors that run, of any application."""
        children = [process for worker in self.workers for process in _children(worker)]
        return [process for process in children if _is_executor(process)]

    def kill_an_executor(self) -> Path:
        """Kill the process of an executor that runs; return its working folder."""
        process = self.running_executors()[0]
        folder = Path(f"/proc/{process}/cwd").readlink()
        os.kill(process, signal.SIGKILL)
        return folder


def _is_executor(process: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def _children(parent: int) -> list[int]:
    threads = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(word) for path in threads for word in path.read_text().split()]


def home() -> Path:
    """Return Spark's folder: that of the package."""
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a master and two workers of one core each, below `folder`; stopped by their process ids."""
    port, web_port = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        words = ("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
        running.enter_context(_daemon(words, folder / "master"))
        _wait(lambda: _listens(port), "the master does not listen")
        workers = {}
        for name, host in WORKER_HOSTS.items():
            own = folder / name
            words = (
                "worker.Worker",
                "--host",
                host,
                "-c",
                "1",
                "-m",
                "1500M",
                "-d",
                f"{own}/work",
                url,
            )
            process = running.enter_context(_daemon(words, own))
            workers[process.pid] = own
        for own in workers.values():
            _wait(lambda own=own: REGISTERED in (own / "log").read_text(), f"{own.name} did not register")
        yield Cluster(url=url, workers=workers)


@contextmanager
def _daemon(words: tuple[str, ...], own: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Spark process. Its temporary files, and those of its children, are below `own`."""
    for name in ("tmp", "local"):
        (own / name).mkdir(parents=True)
    variables = unmarked_environment() | {
        "SPARK_HOME": str(home()),
        "SPARK_LOCAL_DIRS": str(own / "local"),
        "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={own}/tmp",
        "TMPDIR": str(own / "tmp"),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=own, env=variables, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            for child in _children(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)
            process.terminate()
            process.wait(READY_SECONDS)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _wait(until: object, otherwise: str) -> None:
    give_up = time.monotonic() + READY_SECONDS
    while not until():  # type: ignore[operator]
        assert time.monotonic() < give_up, otherwise
        time.sleep(0.1)
