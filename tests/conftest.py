"""Fixtures that every area's tests may use.

    location      (parametrised) an empty Location on local disk, memory, moto and MinIO in turn: `.url`,
                  `.storage_options`, `.kind`, `.storage()`; `storage_url` is the same under another name
    s3_location   (parametrised) moto and MinIO only
    minio, moto   a running server, MinIO one per session, moto one per process of it: `.endpoint_url`, `.key`,
                  `.secret`, `.bucket`, `.storage_options`, `.location()` for a fresh empty Location
    postgres      a running PostgreSQL, one per process of the session; tests that use it are in the xdist_group
                  "postgres"
    s3_table_url  a function that returns a fresh empty Location on MinIO
    memory_url    a fresh memory:// URL
    s3_clock      the clock of requests to S3 that are sent again: their waits end at once, `.waited_seconds` in sum
    proxy         a CuttingProxy (tests/proxy.py) in front of MinIO; `proxied` is a fresh Location through it. It brings
                  s3_clock: what the proxy breaks is tried again without waiting

Helpers beside this file are imported by name: `from faults import Faults, inject`, `from proxy import CuttingProxy`.
"""

# ruff: noqa: E402 (the environment is set before the libraries that read it are imported)

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

# Tests never depend on the user's credentials or settings: set before anything imports fsspec or botocore.
for _name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
    del os.environ[_name]
os.environ |= {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "FSSPEC_CONFIG_DIR": os.devnull,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}

# A commit flushes several files, and each waits milliseconds for a disk: a third of the time of many tests. In memory
# the calls are the same, and nothing waits. Only where there is room (containers often have 64 MB), and nobody chose.
_MEMORY = Path("/dev/shm")
_LEAST_BYTES = 4 << 30
_IS_THERE = "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK)
if _IS_THERE and shutil.disk_usage(_MEMORY).free >= _LEAST_BYTES:
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None  # looked up anew

import hypothesis
import pytest
from postgres import PostgresServer, run_postgres
from profiles import PROFILE
from proxy import CuttingProxy
from servers import Location, S3Server, SharedServers, SkippingClock, run_moto

# Failures print a blob that repeats them (`@reproduce_failure`); no deadline, since machines differ.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
# CI judges a commit by the same cases as its author: new ones are drawn by `make test` elsewhere, and by `thorough`.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=80)
hypothesis.settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=4_800)
hypothesis.settings.load_profile(PROFILE)


SERVERS = SharedServers()


def is_worker(config: pytest.Config) -> bool:
    """Return whether this is a process of xdist's, which the session's own one started."""
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if not is_worker(config):
        SERVERS.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not is_worker(config):
        SERVERS.end()


def pytest_collection_finish() -> None:
    """Keep Python's collector from looking at all modules and thousands of tests again and again: they stay."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Restore the library's loggers after each test: `--debug` of a command in this process sets them for good."""
    logger = logging.getLogger("tblctl")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def minio() -> S3Server:
    return SERVERS.minio()


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    with run_moto() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture(params=["local", "memory", "moto", "minio"])
def location(request: pytest.FixtureRequest) -> Location:
    if request.param == "local":
        return Location(kind="local", url=str(request.getfixturevalue("tmp_path") / "table"))
    if request.param == "memory":
        return Location(kind="memory", url=request.getfixturevalue("memory_url"))
    return request.getfixturevalue(request.param).location()


@pytest.fixture
def storage_url(location: Location) -> Location:
    return location


@pytest.fixture(params=["moto", "minio"])
def s3_location(request: pytest.FixtureRequest) -> Location:
    return request.getfixturevalue(request.param).location()


@pytest.fixture
def s3_table_url(minio: S3Server) -> Callable[[], Location]:
    return minio.location


@pytest.fixture
def memory_url() -> Iterator[str]:
    from fsspec.implementations.memory import MemoryFileSystem

    name = uuid.uuid4().hex
    yield f"memory://{name}/table"
    for path in [path for path in MemoryFileSystem.store if path.startswith(f"/{name}/")]:
        del MemoryFileSystem.store[path]


@pytest.fixture
def s3_clock(monkeypatch: pytest.MonkeyPatch) -> SkippingClock:
    from tblctl.tableformat.storage import s3

    clock = SkippingClock()
    monkeypatch.setattr(s3, "CLOCK", s3.Clock(elapsed=clock.elapsed, sleep=clock.sleep))
    return clock


@pytest.fixture
def proxy(minio: S3Server, s3_clock: SkippingClock) -> Iterator[CuttingProxy]:
    with CuttingProxy(minio.host, minio.port) as running:
        yield running


@pytest.fixture
def proxied(minio: S3Server, proxy: CuttingProxy) -> Location:
    direct = minio.location()
    options = direct.storage_options | {"endpoint_url": proxy.endpoint_url}
    return Location(kind="minio", url=direct.url, storage_options=options)
