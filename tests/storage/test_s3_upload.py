"""Objects that go to S3 in parts: whole or not at all, whatever happens on the way, and few requests."""

from __future__ import annotations

import os

import pytest

from tblctl.tableformat.errors import AccessDeniedError, StorageError
from tblctl.tableformat.storage import s3_upload
from tblctl.tableformat.storage.s3_upload import PART_BYTES, WHOLE_BYTES

MIB = 1 << 20
NAME = "data/a.parquet"
LARGE = os.urandom(MIB) * 50
CREATE, PART_2, COMPLETE = ("POST", "uploads"), ("PUT", "partNumber=2&|partNumber=2$"), ("POST", "uploadId")


def write_little_by_little(storage, data, *, publish=True):
    output = storage.open_output(NAME)
    try:
        for start in range(0, len(data), 3 * MIB):
            output.sink.write(data[start : start + 3 * MIB])
        assert output.sink.tell() == len(data)
        if publish:
            output.publish()
    except Exception:
        output.abort()
        raise
    return output


def write_at_once(storage, data):
    storage.write(NAME, data)


WAYS = pytest.mark.parametrize("write", [write_little_by_little, write_at_once])


def unfinished(storage):
    """Return the uploads of the object that were neither completed nor aborted."""
    backend = storage._backend
    reply = backend._call("list_multipart_uploads", Bucket=backend._bucket, Prefix=backend._key + NAME)
    return reply.get("Uploads", [])


def kinds(proxy):
    return [(item.method, item.request_bytes) for item in proxy.exchanges]


@WAYS
def test_a_large_object_goes_in_parts_and_is_seen_whole_or_not_at_all(proxy, proxied, write):
    storage = proxied.storage()
    write(storage, LARGE)
    sent = [item.request_bytes for item in proxy.exchanges if item.method == "PUT"]
    assert sum(sent) == len(LARGE)
    assert max(sent) <= WHOLE_BYTES
    assert [item.method for item in proxy.exchanges].count("POST") == 2
    assert storage.read(NAME) == LARGE
    assert unfinished(storage) == []


@WAYS
def test_an_object_that_is_not_large_is_one_request(proxy, proxied, write):
    storage = proxied.storage()
    write(storage, LARGE[:WHOLE_BYTES])
    assert kinds(proxy) == [("PUT", WHOLE_BYTES)]
    assert storage.read(NAME) == LARGE[:WHOLE_BYTES]


def test_parts_are_sent_while_the_object_is_being_written(proxy, proxied):
    output = proxied.storage().open_output(NAME)
    output.sink.write(LARGE)
    output.sink.write(LARGE)
    assert [item.method for item in proxy.exchanges if item.status == 200].count("PUT") >= 3
    output.abort()


def test_memory_holds_a_bounded_number_of_parts(proxy, proxied, monkeypatch):
    under_way = []
    honest = s3_upload.S3Upload._ask

    def ask(upload, method, **arguments):
        under_way.append(sum(not part.done() for part in upload._parts) + (method == "upload_part"))
        return honest(upload, method, **arguments)

    monkeypatch.setattr(s3_upload.S3Upload, "_ask", ask)
    proxy.latency_seconds = 0.05
    write_at_once(proxied.storage(), LARGE * 2)
    assert max(under_way) == s3_upload.PARTS_UNDER_WAY


@pytest.mark.parametrize("location", ["local", "memory", "moto", "minio"], indirect=True)
@pytest.mark.parametrize("size", [5, PART_BYTES + 5, WHOLE_BYTES + 5])
def test_an_aborted_object_leaves_nothing_and_a_published_one_replaces_what_was_there(location, size):
    storage = location.storage()
    write_little_by_little(storage, LARGE[:size], publish=False).abort()
    assert storage.is_empty()
    if location.kind in {"moto", "minio"}:
        assert unfinished(storage) == []
    storage.write(NAME, b"before")
    write_little_by_little(storage, LARGE[:size]).abort()
    assert storage.read(NAME) == LARGE[:size]


@WAYS
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
def test_each_request_of_an_upload_is_sent_again_after_errors_that_pass(
    proxy, proxied, write, method, path, fault
):
    storage = proxied.storage()
    proxy.on(method, path, **fault)
    write(storage, LARGE)
    assert storage.read(NAME) == LARGE
    assert sum(item.action != "forward" for item in proxy.exchanges) == fault.get("times", 1)


def test_a_completion_that_fails_with_status_200_is_sent_again(proxy, proxied):
    proxy.on(*COMPLETE, action="reply", status=200, code="InternalError")
    storage = proxied.storage()
    write_at_once(storage, LARGE)
    assert storage.read(NAME) == LARGE


@WAYS
@pytest.mark.parametrize(("method", "path"), [CREATE, PART_2, COMPLETE])
def test_an_error_that_does_not_pass_is_not_repeated_and_nothing_stays(proxy, proxied, write, method, path):
    storage = proxied.storage()
    proxy.on(method, path, action="reply", status=403, code="AccessDenied", times=1000)
    with pytest.raises(AccessDeniedError, match=NAME):
        write(storage, LARGE)
    assert sum(item.action == "reply" for item in proxy.exchanges) == 1
    proxy.clear()
    assert storage.is_empty()
    assert unfinished(storage) == []


def test_an_upload_that_somebody_else_ended_is_an_error(proxy, proxied):
    proxy.on(*COMPLETE, action="reply", status=404, code="NoSuchUpload", times=1000)
    storage = proxied.storage()
    with pytest.raises(StorageError, match=NAME):
        write_at_once(storage, LARGE)
    assert storage.try_read(NAME) is None
