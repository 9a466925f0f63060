"""S3 servers for tests, on 127.0.0.1 and a free port, and the locations on them."""

from __future__ import annotations

import contextlib
import os
import shutil
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


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where a test may put a table. `kind` is local, memory, moto or minio."""

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

    def location(self) -> Location:
        """Return a fresh, empty location in the bucket."""
        url = f"s3://{self.bucket}/{uuid.uuid4().hex}/table"
        return Location(kind=self.kind, url=url, storage_options=self.storage_options)

    def make_bucket(self, name: str) -> None:
        import s3fs

        s3fs.S3FileSystem(skip_instance_cache=True, **self.storage_options).call_s3(
            "create_bucket", Bucket=name
        )


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


@contextlib.contextmanager
def run_minio() -> Iterator[S3Server]:
    """Start MinIO on an empty folder; stopped by its process id, the folder removed."""
    binary = find_minio()
    if binary is None:
        missing_server("MinIO is not installed: run scripts/install_minio.sh (needs Go)")
    server = S3Server(
        kind="minio", host="127.0.0.1", port=free_port(), key="tblctl-user", secret="tblctl-password"
    )
    with tempfile.TemporaryDirectory(prefix="tblctl-minio-") as folder:
        settings = {"MINIO_ROOT_USER": server.key, "MINIO_ROOT_PASSWORD": server.secret}
        address = f"{server.host}:{server.port}"
        process = subprocess.Popen(
            [str(binary), "server", folder, "--address", address, "--quiet"],
            env=os.environ | settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_ready(f"{server.endpoint_url}/minio/health/ready", process)
            server.make_bucket(server.bucket)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


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
