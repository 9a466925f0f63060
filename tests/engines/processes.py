"""Engines that `make test-trino` runs, on 127.0.0.1 and free ports: Trino, and Nessie as a REST catalog.

scripts/install_trino.sh puts both into ~/.cache/tblctl.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from servers import S3Server, free_port

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tblctl"
TRINO = CACHE / "trino-server-476"
NESSIE = CACHE / "nessie-quarkus-0.99.0-runner.jar"
NEEDED_JAVA = 24
READY_SECONDS = 180.0
OF_TEST_TRINO = pytest.mark.skipif(
    os.environ.get("TBLCTL_TEST_ENGINES") != "1", reason="part of make test-trino"
)


def require(program: Path) -> Path:
    """Return the home of a Java that runs a program; skip the test where one of both is missing."""
    if not program.exists():
        pytest.skip(f"{program.name} is not installed: run scripts/install_trino.sh")
    homes = [os.environ.get("JAVA_HOME", ""), *map(str, Path("/usr/lib/jvm").glob("*"))]
    for home in filter(None, homes):
        with contextlib.suppress(OSError):
            version = re.search(r'JAVA_VERSION="(\d+)', (Path(home) / "release").read_text())
            if version and int(version[1]) >= NEEDED_JAVA:
                return Path(home)
    pytest.skip(f"no Java {NEEDED_JAVA} or newer in JAVA_HOME or /usr/lib/jvm")


@contextlib.contextmanager
def running(words: list[str], folder: Path, ready_url: str, **variables: str) -> Iterator[None]:
    """Run a server until its URL answers with 200 and `"starting":false`, where it says this; end it by its id."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(words, env=os.environ | variables, cwd=folder, stdout=log, stderr=log)
        try:
            give_up = time.monotonic() + READY_SECONDS
            while not _ready(ready_url):
                text = (folder / "server.log").read_text(errors="replace")[-3000:]
                assert process.poll() is None, text
                assert time.monotonic() < give_up, text
                time.sleep(0.2)
            yield
        finally:
            process.kill()
            process.wait()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return b'"starting":true' not in answer.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


class Trino:
    """A running Trino, its catalog of Iceberg, its schema `db`. `splits` is how many parts the last query had."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.splits = 0

    def sql(self, statement: str) -> list[list[Any]]:
        """Run a statement; return its rows as Trino's JSON has them."""
        names = {"User": "test", "Catalog": "ice", "Schema": "db", "Time-Zone": "UTC"}
        names["Client-Capabilities"] = "PARAMETRIC_DATETIME"  # else times are cut to milliseconds
        headers = {f"X-Trino-{name}": value for name, value in names.items()}
        request = urllib.request.Request(
            f"{self._address}/v1/statement", data=statement.encode(), headers=headers, method="POST"
        )
        rows: list[list[Any]] = []
        while True:
            with urllib.request.urlopen(request, timeout=300) as answer:
                found = json.load(answer)
            rows += found.get("data", ())
            assert "error" not in found, f"{statement}: {found['error']['message']}"
            if "nextUri" not in found:
                self.splits = found["stats"]["totalSplits"]
                return rows
            request = urllib.request.Request(found["nextUri"], headers=headers)

    def wait_for_nodes(self, statement: str) -> None:
        """Run a statement as soon as there is a node for it: the server answers before it knows its own."""
        give_up = time.monotonic() + READY_SECONDS
        while True:
            try:
                self.sql(statement)
            except AssertionError as error:
                if "No nodes available" not in str(error) or time.monotonic() > give_up:
                    raise
                time.sleep(0.1)
            else:
                return


@contextlib.contextmanager
def run_trino(folder: Path, catalog_uri: str, minio: S3Server) -> Iterator[Trino]:
    """Start Trino on a REST catalog whose tables are on MinIO."""
    java = require(TRINO)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    files: dict[str, Mapping[str, object] | str] = {
        "node.properties": {"node.environment": "test", "node.id": "one", "node.data-dir": folder / "data"},
        "jvm.config": "-Xmx2G\n-Djdk.attach.allowAttachSelf=true\n--add-modules=jdk.incubator.vector\n",
        "config.properties": {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": port,
            "node.internal-address": "127.0.0.1",
            "discovery.uri": address,
            "catalog.management": "static",
        },
        "catalog/ice.properties": {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": catalog_uri,
            "iceberg.expire-snapshots.min-retention": "0s",
            "iceberg.remove-orphan-files.min-retention": "0s",
            "fs.native-s3.enabled": "true",
            "s3.endpoint": minio.endpoint_url,
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
            "s3.aws-access-key": minio.key,
            "s3.aws-secret-key": minio.secret,
        },
    }
    for name, content in files.items():
        path = folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = content if isinstance(content, str) else "".join(f"{n}={v}\n" for n, v in content.items())
        path.write_text(lines)
    words = [str(TRINO / "bin" / "launcher"), "run", "--etc-dir", str(folder / "etc")]
    with running(words, folder, f"{address}/v1/info", JAVA_HOME=str(java)):
        yield Trino(address)


def value_of(name: str, value: Any) -> Any:
    """Return a value of a column of tests/iceberg/kinds.py, from Trino's JSON."""
    if value is None:
        return None
    if name in ("moment", "moment_utc", "at"):
        return datetime.datetime.fromisoformat(value.removesuffix(" UTC"))
    if name in ("number", "half"):
        return float(value)
    if name == "bytes":
        return base64.b64decode(value)
    if name == "nested":
        number, deep = value
        return {"x": number, "deep": deep and {"text": deep[0], "at": value_of("at", deep[1])}}
    if name == "structs":
        return [value_of("nested", item) for item in value]
    return value


@contextlib.contextmanager
def run_nessie(folder: Path, minio: S3Server) -> Iterator[str]:
    """Start Nessie with its tables on MinIO; return the address of its REST catalog."""
    java = require(NESSIE)
    port, management = free_port(), free_port()
    options = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": management,
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": f"s3://{minio.bucket}/nessie",
        f"{options}.endpoint": f"{minio.endpoint_url}/",
        f"{options}.region": "us-east-1",
        f"{options}.path-style-access": "true",
        f"{options}.request-signing-enabled": "false",
        f"{options}.access-key": "urn:nessie-secret:quarkus:my-secrets.s3-default",
        "my-secrets.s3-default.name": minio.key,
        "my-secrets.s3-default.secret": minio.secret,
    }
    words = [str(java / "bin" / "java"), "-Xmx1g", *(f"-D{name}={value}" for name, value in settings.items())]
    with running([*words, "-jar", str(NESSIE)], folder, f"http://127.0.0.1:{port}/iceberg/v1/config"):
        yield f"http://127.0.0.1:{port}/iceberg/main"
