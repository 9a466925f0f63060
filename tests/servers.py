"""S3 servers for tests, on 127.0.0.1 and a free port, and the locations on them."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tblctl.tableformat.storage import Storage

READY_SECONDS = 60.0
STOP_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Location:
    """A place for a test's tables. `kind` is local, memory, moto or minio."""

    kind: str
    url: str
    storage_options: dict[str, Any] = field(default_factory=dict)

    def storage(self, **more_options: Any) -> Storage:
        return Storage(self.url, self.storage_options | more_options)


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """A running server with one bucket. `storage_options` hold its endpoint and credentials."""

    kind: str
    host: str
    port: int
    key: str
    secret: str
    bucket: str = "tblctl-tests"

    @property
    def endpoint_url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "secret": self.secret,
            "endpoint_url": self.endpoint_url,
            "client_kwargs": {"region_name": "us-east-1"},
        }

    @property
    def catalog_options(self) -> dict[str, str]:
        """What PyIceberg's catalogs ask for."""
        return {
            "s3.endpoint": self.endpoint_url,
            "s3.access-key-id": self.key,
            "s3.secret-access-key": self.secret,
            "s3.region": "us-east-1",
        }

    def location(self) -> Location:
        """Return a fresh, empty location in the bucket."""
        url = f"s3://{self.bucket}/{uuid.uuid4().hex}/table"
        return Location(kind=self.kind, url=url, storage_options=self.storage_options)

    def make_bucket(self, name: str) -> None:
        import s3fs

        s3fs.S3FileSystem(skip_instance_cache=True, **self.storage_options).call_s3(
            "create_bucket", Bucket=name
        )


class SkippingClock:
    """The clock of requests to S3 whose waits end at once: each moves the clock forward instead."""

    def __init__(self) -> None:
        self.waited_seconds = 0.0

    def elapsed(self) -> float:
        return time.perf_counter() + self.waited_seconds

    async def sleep(self, seconds: float) -> None:
        self.waited_seconds += seconds


def find_minio() -> str | None:
    """Return the MinIO binary from PATH, or where scripts/install_minio.sh puts it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "tblctl" / "bin" / "minio"
    return shutil.which("minio") or (str(built) if os.access(built, os.X_OK) else None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def missing_server(reason: str) -> Any:
    """Skip the test, or fail it where all servers are promised (CI=true)."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; with CI=true every server must be there")
    pytest.skip(reason)


class SharedServers:
    """MinIO for every process of a test session: the first that needs it starts it, the session's own process stops it.

    The environment, which xdist's workers inherit, has the folder where the server records itself.
    """

    _VARIABLE = "TBLCTL_TESTS_SERVERS"

    def begin(self) -> None:
        """Make the folder; for the session's own process."""
        os.environ[self._VARIABLE] = tempfile.mkdtemp(prefix="tblctl-minio-")

    def minio(self) -> S3Server:
        """Return the session's MinIO. The first caller starts it."""
        folder = Path(os.environ[self._VARIABLE])
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = folder / "minio.json"
            if not known.exists():
                server, self._process = _start_minio(folder / "objects")
                described = {"server": dataclasses.asdict(server), "process_id": self._process.pid}
                known.write_text(json.dumps(described))
            return S3Server(**json.loads(known.read_text())["server"])

    def end(self) -> None:
        """Stop what runs, by its process id, and remove the folder; for the session's own process."""
        folder = Path(os.environ.pop(self._VARIABLE))
        known = folder / "minio.json"
        if known.exists():
            described = json.loads(known.read_text())
            _stop(S3Server(**described["server"]), described["process_id"])
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def run_minio() -> Iterator[S3Server]:
    """Start MinIO on an empty folder; stopped by its process id, the folder removed."""
    with tempfile.TemporaryDirectory(prefix="tblctl-minio-") as folder:
        server, process = _start_minio(Path(folder))
        try:
            yield server
        finally:
            _stop(server, process.pid)
            process.wait()


def _start_minio(folder: Path) -> tuple[S3Server, subprocess.Popen[bytes]]:
    """Start MinIO on an empty folder."""
    binary = find_minio()
    if binary is None:
        missing_server("MinIO is not installed: run scripts/install_minio.sh (needs Go)")
    server = S3Server(
        kind="minio", host="127.0.0.1", port=free_port(), key="tblctl-user", secret="tblctl-password"
    )
    settings = {"MINIO_ROOT_USER": server.key, "MINIO_ROOT_PASSWORD": server.secret}
    address = f"{server.host}:{server.port}"
    process = subprocess.Popen(
        [str(binary), "server", str(folder), "--address", address, "--quiet"],
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_ready(f"{server.endpoint_url}/minio/health/ready", process)
        server.make_bucket(server.bucket)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return server, process


def _stop(server: S3Server, process_id: int) -> None:
    """End a server's process, possibly another process's child. It has ended when nothing listens any more."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, kind)
        give_up = time.monotonic() + STOP_SECONDS
        while time.monotonic() < give_up:
            try:
                socket.create_connection((server.host, server.port), timeout=1).close()
            except OSError:
                return
            time.sleep(0.02)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + READY_SECONDS
    while time.monotonic() < give_up:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(url, timeout=2).close()
            return
        time.sleep(0.05)
    raise AssertionError(f"{url} did not answer within {READY_SECONDS} s")


@contextlib.contextmanager
def run_moto() -> Iterator[S3Server]:
    """Start moto's server in a thread of this process."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        missing_server(f"moto's server is not installed ({error}): pip install 'moto[server]'")
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        server = S3Server(kind="moto", host=host, port=port, key="moto-user-key", secret="moto-password")
        server.make_bucket(server.bucket)
        yield server
    finally:
        moto.stop()
