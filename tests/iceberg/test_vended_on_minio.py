"""Whole commands with credentials that a REST catalog vends, on a MinIO that refuses those that are over.

They are session credentials of MinIO's STS. Each was granted to a user, and ends with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hostile.test_secrets import assert_hidden
from minio import MinioAdmin
from minio.credentials import AssumeRoleProvider, StaticProvider
from proxy import CuttingProxy, Rule
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from servers import S3Server
from tables import objects_of

from .lake import fields
from .rest_catalog import RestCatalog

PARTITIONS = 4
IDS = list(range(400))


class Sts:
    """Vends session credentials, the same until they are revoked."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._admin = MinioAdmin(
            endpoint=f"{server.host}:{server.port}",
            credentials=StaticProvider(server.key, server.secret),
            secure=False,
        )
        self._lock = threading.Lock()
        self.users: list[str] = []
        self.secrets: list[str] = []
        self._granted: dict[str, str] | None = None

    def __call__(self) -> dict[str, str]:
        with self._lock:
            if self._granted is None:
                self._granted = self._grant()
            return self._granted

    def _grant(self) -> dict[str, str]:
        user, password = f"vended-{uuid.uuid4().hex[:12]}", f"password-{uuid.uuid4().hex}"
        self._admin.user_add(user, password)
        self._admin.policy_set("readwrite", user=user)
        found = AssumeRoleProvider(
            sts_endpoint=self._server.endpoint_url, access_key=user, secret_key=password
        ).retrieve()
        self.users.append(user)
        self.secrets += [password, found.secret_key, str(found.session_token)]
        return {
            "s3.access-key-id": found.access_key,
            "s3.secret-access-key": found.secret_key,
            "s3.session-token": str(found.session_token),
        }

    def revoke(self) -> bool:
        """Remove the user, and with it what was granted to it: the next who asks gets credentials of another.

        Return false if nobody has asked since the last time.
        """
        with self._lock:
            if self._granted is None:
                return False
            self._granted = None
            self._admin.user_remove(self.users.pop())
            return True

    def end(self) -> None:
        self.revoke()


class Revoking(CuttingProxy):
    """Revokes credentials before some of the uploads of data files go on: each time before another one.

    Args:
        server: that requests go to.
        sts: whose credentials.
        uploads: the numbers of these uploads, from 1; or of the next ones after credentials were asked for.
    """

    def __init__(self, server: S3Server, sts: Sts, uploads: set[int]) -> None:
        super().__init__(server.host, server.port)
        self._sts, self._uploads = sts, sorted(uploads)
        self._one_by_one = threading.Lock()
        self.seen = 0

    def _due(self, method: str, path: str) -> Rule | None:
        if method == "PUT" and "/data/" in path and "-probe" not in path:
            with self._one_by_one:
                self.seen += 1
                if self._uploads and self.seen >= self._uploads[0] and self._sts.revoke():
                    self._uploads.pop(0)
        return super()._due(method, path)


@pytest.fixture
def sts(minio: S3Server) -> Iterator[Sts]:
    made = Sts(minio)
    yield made
    made.end()


@pytest.fixture
def catalog(minio: S3Server, tmp_path: Path) -> Catalog:
    """A catalog with the table `db.t` of four partitions, of two files each that overlap; it keeps its own keys."""
    made = load_catalog(
        "lake",
        **{
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"s3://{minio.bucket}/{uuid.uuid4().hex}",
            **minio.catalog_options,
        },
    )
    made.create_namespace("db")
    table = made.create_table(
        "db.t",
        fields(id=LongType(), part=LongType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")),
        properties={"commit.retry.min-wait-ms": "1"},
    )
    for first in (0, 1):
        ids = IDS[first::2]
        table.append(pa.table({"id": ids, "part": [id_ // 100 for id_ in ids]}))
    return made


def run(server: RestCatalog, proxy: CuttingProxy, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the table through a REST catalog, its requests to S3 through a proxy."""
    options = {"type": "rest", "uri": server.uri, "s3.endpoint": proxy.endpoint_url, "s3.region": "us-east-1"}
    given = [word for key, value in options.items() for word in ("--catalog-option", f"{key}={value}")]
    command = [sys.executable, "-m", "tblctl.cli", words[0], "iceberg://rest/db.t", *words[1:], *given]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def stored(catalog: Catalog, minio: S3Server) -> dict[str, bytes]:
    return objects_of(catalog.load_table("db.t").location(), minio.storage_options)


def ids_of(catalog: Catalog) -> list[int]:
    return sorted(catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist())


def denied(proxy: CuttingProxy) -> int:
    return sum(exchange.status == 403 for exchange in proxy.exchanges)


@pytest.mark.parametrize("uploads", [{1}, {2, 4}])
def test_a_command_whose_credentials_end_in_mid_merge_goes_on_with_fresh_ones(
    catalog: Catalog, minio: S3Server, sts: Sts, tmp_path: Path, uploads: set[int]
) -> None:
    """Before the first upload; or before the second, and before another one again. Secrets are nowhere."""
    plan = tmp_path / "plan.json"
    with RestCatalog(catalog, config=sts) as server, Revoking(minio, sts, uploads) as proxy:
        planned = run(server, proxy, "plan", "--cluster-by", "id", "--policy", "full", "--output", str(plan))
        assert planned.returncode == 0, planned.stderr
        assert (proxy.seen, denied(proxy)) == (0, 0)
        done = run(server, proxy, "recluster", "--cluster-by", "id", "--plan", str(plan), "--json", "--debug")
        assert done.returncode == 0, done.stderr
        assert denied(proxy) >= len(uploads)
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert (outcome["committed_groups"], outcome["failed_groups"]) == (PARTITIONS, 0)
    assert "run again with fresh credentials" in done.stderr
    assert len(sts.secrets) == 3 * (len(uploads) + 1)
    assert ids_of(catalog) == IDS
    assert len(list(catalog.load_table("db.t").scan().plan_files())) == PARTITIONS
    texts: list[str | bytes] = [
        *(planned.stdout, planned.stderr, done.stdout, done.stderr, plan.read_bytes()),
        *stored(catalog, minio).values(),
    ]
    for text in texts:
        for secret in sts.secrets:
            assert_hidden(text, secret)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        (["info", "--columns", "id"], "s3.secret-access-key"),
        (["recluster", "--cluster-by", "id"], "s3.session-token"),
    ],
)
def test_wrong_credentials_are_refused_by_the_server_and_shown_nowhere(
    catalog: Catalog, minio: S3Server, sts: Sts, command: list[str], wrong: str
) -> None:
    before = stored(catalog, minio)
    secret = f"wrong{uuid.uuid4().hex}"
    with (
        RestCatalog(catalog, config=lambda: sts() | {wrong: secret}) as server,
        CuttingProxy(minio.host, minio.port) as proxy,
    ):
        done = run(server, proxy, *command, "--debug")
        assert denied(proxy)
    assert done.returncode == 1, done.stderr
    assert "denied" in done.stderr
    for hidden in (*sts.secrets, secret):
        assert_hidden(done.stdout + done.stderr, hidden)
    assert stored(catalog, minio) == before


@pytest.mark.parametrize(
    "said", [{"s3.signer": "S3V4RestSigner"}, {"s3.remote-signing-enabled": "true"}], ids=str
)
def test_remote_signing_is_refused_before_any_work(
    catalog: Catalog, minio: S3Server, sts: Sts, said: dict[str, str]
) -> None:
    """`info` and plans read with whatever else there is: here the keys that the catalog vends beside."""
    before = stored(catalog, minio)
    with (
        RestCatalog(catalog, config=lambda: sts() | said | {"s3.signer.uri": "http://127.0.0.1:9"}) as server,
        CuttingProxy(minio.host, minio.port) as proxy,
    ):
        done = run(server, proxy, "recluster", "--cluster-by", "id", "--policy", "full")
        assert not [exchange for exchange in proxy.exchanges if exchange.method not in ("GET", "HEAD")]
        assert not [exchange for exchange in proxy.exchanges if "/data/" in exchange.path]
        dry = run(server, proxy, "recluster", "--cluster-by", "id", "--policy", "full", "--dry-run")
        info = run(server, proxy, "info", "--columns", "id", "--json")
    assert done.returncode == 2, done.stderr
    for text in ("signs requests to S3 remotely", "ask it for vended credentials", "vended-credentials"):
        assert text in done.stderr
    assert stored(catalog, minio) == before
    assert (dry.returncode, info.returncode) == (0, 0), dry.stderr + info.stderr
    assert json.loads(info.stdout)["total_block_count"] == 2 * PARTITIONS
