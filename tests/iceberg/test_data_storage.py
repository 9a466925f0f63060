"""Storages of data files by URI, and credentials that a catalog vends."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest

from tblctl import errors
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.iceberg.data_storage import DataStorage, s3_options, split_uri


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://b/a/c.parquet", ("s3://b", "a/c.parquet")),
        ("s3a://b/a", ("s3://b", "a")),
        ("S3N://b/a%20b", ("s3://b", "a%20b")),
        ("/tmp/x/a b", ("file:///", "tmp/x/a b")),
        ("file:/tmp/x", ("file:///", "tmp/x")),
        ("file:///tmp/x%2Fy", ("file:///", "tmp/x%2Fy")),
        ("gs://b/a", ("gs://b", "a")),
    ],
)
def test_a_uri_is_a_storage_and_a_name(uri: str, expected: tuple[str, str]) -> None:
    assert split_uri(uri) == expected


def test_local_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"1")
    storages = DataStorage({})
    storage, name = storages.place_of(f"file://{tmp_path}/a/x")
    assert storage.read(name) == b"1"
    assert [item.name for item in storages.folder(str(tmp_path)).list()] == ["a/x"]


@pytest.mark.parametrize(
    "properties", [{"s3.signer": "S3V4RestSigner"}, {"s3.remote-signing-enabled": "true"}]
)
def test_remote_signing_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(errors.InvalidOptionError, match="vended credentials"):
        DataStorage(properties).place_of("s3://b/a")


def test_options_of_s3() -> None:
    found = s3_options(
        {
            "s3.endpoint": "http://127.0.0.1:9",
            "s3.access-key-id": "k",
            "s3.secret-access-key": "s",
            "s3.session-token": "t",
            "client.region": "eu-west-1",
            "s3.sse-kms-key-id": "kms",
        }
    )
    assert found == {
        "endpoint_url": "http://127.0.0.1:9",
        "key": "k",
        "secret": "s",
        "token": "t",
        "client_kwargs": {"region_name": "eu-west-1"},
        "s3_additional_kwargs": {"SSEKMSKeyId": "kms"},
    }


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("stated", [True, False])
def test_vended_credentials_are_renewed(stated: bool) -> None:
    clock, asked = Clock(), []
    env = dataclasses.replace(SYSTEM, now=clock, elapsed=clock)

    def vend() -> dict[str, str]:
        asked.append(1)
        found = {"s3.access-key-id": f"k{len(asked)}", "s3.session-token": "t"}
        return (
            {**found, "s3.session-token-expires-at-ms": str(int(clock.seconds + 3600) * 1000)}
            if stated
            else found
        )

    storages = DataStorage(vend(), vend, env)
    first, _ = storages.place_of("s3://b/a")
    clock.seconds += 500
    assert storages.place_of("s3://b/c")[0] is first
    clock.seconds += 3000
    second, _ = storages.place_of("s3://b/a")
    assert second is not first
    assert len(asked) == 2
    clock.seconds += 5000
    shipped = pickle.loads(pickle.dumps(storages))
    assert len(asked) == 3
    assert shipped._properties["s3.access-key-id"] == "k3"
    clock.seconds += 9000
    shipped.place_of("s3://b/a")
    assert len(asked) == 3  # workers ask nobody


def test_credentials_are_asked_for_at_once_where_the_storage_denied_them() -> None:
    asked = []
    storages = DataStorage({"s3.session-token": "t0"}, lambda: asked.append(1) or {"s3.session-token": "t1"})
    first, _ = storages.place_of("s3://b/a")
    assert storages.renew()
    assert storages.place_of("s3://b/a")[0] is not first
    storages.take({"s3.session-token": "t2"})
    assert storages._properties == {"s3.session-token": "t2"}
    assert len(asked) == 1
    own = DataStorage({"s3.access-key-id": "k"}, lambda: pytest.fail("asked"))
    own.take({"s3.access-key-id": "other"})
    assert not own.renew()
    assert own._properties == {"s3.access-key-id": "k"}
    assert not pickle.loads(pickle.dumps(storages)).renew()  # a worker can ask nobody


def test_keys_of_one_s_own_are_not_renewed() -> None:
    clock = Clock()
    env = dataclasses.replace(SYSTEM, now=clock, elapsed=clock)
    storages = DataStorage({"s3.access-key-id": "k"}, lambda: pytest.fail("asked"), env)
    clock.seconds += 10**6
    storages.place_of("s3://b/a")


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(DataStorage({"s3.secret-access-key": "hidden"}))
