"""Objects written piece by piece: whole or not there, on every backend, with bounded memory on S3."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases
from servers import Location

from tblctl.tableformat.storage.s3_parts import PART_BYTES, WHOLE_BYTES, PartsUpload

PIECE = os.urandom(1 << 20)


@pytest.mark.parametrize("pieces", [0, 1, 3], ids=["empty", "one piece", "three pieces"])
def test_an_object_appears_whole_at_the_end(location: Location, pieces: int) -> None:
    storage = location.storage()
    upload = storage.begin("data/x")
    for _ in range(pieces):
        upload.write(PIECE)
    assert storage.try_read("data/x") is None
    upload.finish()
    assert storage.read("data/x") == PIECE * pieces
    upload.abandon()  # does nothing any more
    assert storage.read("data/x") == PIECE * pieces


def test_an_abandoned_one_leaves_nothing(location: Location) -> None:
    storage = location.storage()
    upload = storage.begin("data/x")
    upload.write(PIECE)
    upload.abandon()
    assert list(storage.list()) == []


def test_an_object_is_replaced_at_the_end_only(location: Location) -> None:
    storage = location.storage()
    storage.write("x", b"old")
    upload = storage.begin("x")
    upload.write(b"new")
    assert storage.read("x") == b"old"
    upload.finish()
    assert storage.read("x") == b"new"


def test_a_large_object_goes_to_s3_in_parts(s3_location: Location) -> None:
    storage = s3_location.storage()
    upload = storage.begin("large")
    data = PIECE * 57  # three parts and a bit
    for begin in range(0, len(data), 3_000_001):
        upload.write(data[begin : begin + 3_000_001])
    upload.finish()
    assert storage.read("large") == data


def test_an_abandoned_large_object_leaves_no_parts(s3_location: Location) -> None:
    storage = s3_location.storage()
    upload = storage.begin("large")
    for _ in range(40):
        upload.write(PIECE)
    upload.abandon()
    assert list(storage.list()) == []


class Server:
    """Answers the requests of an upload in this thread."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.objects: list[bytes] = []
        self.aborted = False

    async def ask(self, method: str, **arguments):
        if method == "create_multipart_upload":
            return {"UploadId": "u"}
        if method == "upload_part":
            self.parts[arguments["PartNumber"]] = arguments["Body"]
            return {"ETag": str(arguments["PartNumber"])}
        if method == "complete_multipart_upload":
            numbers = [part["PartNumber"] for part in arguments["MultipartUpload"]["Parts"]]
            self.objects.append(b"".join(self.parts[number] for number in numbers))
        elif method == "abort_multipart_upload":
            self.aborted = True
        return {}

    def start(self, work):
        import asyncio
        from concurrent.futures import Future

        done: Future = Future()
        done.set_result(asyncio.run(_awaited(work)))
        return done

    def upload(self) -> PartsUpload:
        return PartsUpload(self.start, self.ask, self.objects.append, lambda error: None)


async def _awaited(work):
    return await work


@given(sizes=st.lists(st.integers(0, 3 * PART_BYTES), max_size=6))
@settings(max_examples=cases(10))
def test_parts_are_of_one_size_but_the_last_and_hold_all_bytes(sizes):
    server = Server()
    upload = server.upload()
    for size in sizes:
        upload.write(bytes(size))
        assert len(upload._rest) <= WHOLE_BYTES
    upload.finish()
    assert [len(data) for data in server.objects] == [sum(sizes)]
    if sum(sizes) <= WHOLE_BYTES:
        assert not server.parts
    else:
        assert {len(server.parts[number]) for number in sorted(server.parts)[:-1]} == {PART_BYTES}
        assert 0 < len(server.parts[max(server.parts)]) <= PART_BYTES
