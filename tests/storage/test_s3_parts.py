"""Uploads to S3 in parts: an object appears whole or not at all, also after failures, with few requests."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from tblctl.tableformat.errors import AccessDeniedError, StorageError
from tblctl.tableformat.storage.s3_parts import PART_BYTES, PARTS_AT_ONCE, WHOLE_BYTES

MIB = 1 << 20
NAME = "data/a.parquet"
LARGE = os.urandom(MIB) * 50
CREATE, PART_2, COMPLETE = ("POST", "uploads"), ("PUT", "partNumber=2&|partNumber=2$"), ("POST", "uploadId")


def unfinished(storage):
    """Return the uploads of the object that were neither completed nor aborted."""
    backend = storage._backend
    reply = backend._call("list_multipart_uploads", Bucket=backend._bucket, Prefix=backend._key + NAME)
    return reply.get("Uploads", [])


def kinds(proxy):
    return [(item.method, item.request_bytes) for item in proxy.exchanges]


def test_a_large_object_goes_in_parts_and_is_seen_whole_or_not_at_all(proxy, proxied):
    storage = proxied.storage()
    storage.write(NAME, LARGE)
    sent = [item.request_bytes for item in proxy.exchanges if item.method == "PUT"]
    assert sum(sent) == len(LARGE)
    assert max(sent) == PART_BYTES
    assert [item.method for item in proxy.exchanges].count("POST") == 2
    assert storage.read(NAME) == LARGE
    assert unfinished(storage) == []


def test_an_object_that_is_not_large_is_one_request(proxy, proxied):
    storage = proxied.storage()
    storage.write(NAME, LARGE[:WHOLE_BYTES])
    assert kinds(proxy) == [("PUT", WHOLE_BYTES)]
    assert storage.read(NAME) == LARGE[:WHOLE_BYTES]


def test_a_bounded_number_of_parts_is_under_way(proxy, proxied):
    proxy.latency_seconds = 0.05
    proxied.storage().write(NAME, LARGE * 2)
    assert proxy.most_at_once == PARTS_AT_ONCE


@pytest.mark.parametrize("size", [WHOLE_BYTES, WHOLE_BYTES + 5])
def test_a_large_object_replaces_what_was_there(s3_location, size):
    storage = s3_location.storage()
    storage.write(NAME, b"before")
    storage.write(NAME, pa.py_buffer(LARGE[:size]))
    assert storage.read(NAME) == LARGE[:size]


@pytest.mark.parametrize(("method", "path"), [CREATE, PART_2, COMPLETE])
@pytest.mark.parametrize(
    "fault",
    [
        {"action": "reply", "status": 503, "times": 2},
        {"action": "reply", "status": 500, "code": "InternalError"},
        {"action": "drop", "times": 2},
        {"action": "reset"},
    ],
    ids=["503 twice", "500", "cut twice", "reset after it was done"],
)
def test_each_request_of_an_upload_is_sent_again_after_errors_that_pass(proxy, proxied, method, path, fault):
    storage = proxied.storage()
    proxy.on(method, path, **fault)
    storage.write(NAME, LARGE)
    assert storage.read(NAME) == LARGE
    assert sum(item.action != "forward" for item in proxy.exchanges) == fault.get("times", 1)


def test_a_completion_that_fails_with_status_200_is_sent_again(proxy, proxied):
    proxy.on(*COMPLETE, action="reply", status=200, code="InternalError")
    storage = proxied.storage()
    storage.write(NAME, LARGE)
    assert storage.read(NAME) == LARGE


@pytest.mark.parametrize(("method", "path"), [CREATE, PART_2, COMPLETE])
def test_an_error_that_does_not_pass_is_not_repeated_and_nothing_stays(proxy, proxied, method, path):
    storage = proxied.storage()
    proxy.on(method, path, action="reply", status=403, code="AccessDenied", times=1000)
    with pytest.raises(AccessDeniedError, match=NAME):
        storage.write(NAME, LARGE)
    assert sum(item.action == "reply" for item in proxy.exchanges) == 1
    proxy.clear()
    assert storage.is_empty()
    assert unfinished(storage) == []


def test_an_upload_that_somebody_else_ended_is_an_error(proxy, proxied):
    proxy.on(*COMPLETE, action="reply", status=404, code="NoSuchUpload", times=1000)
    storage = proxied.storage()
    with pytest.raises(StorageError, match=NAME):
        storage.write(NAME, LARGE)
    assert storage.try_read(NAME) is None
