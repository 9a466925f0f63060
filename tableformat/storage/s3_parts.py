"""Upload large objects to S3 in parts, several at once. An object appears whole or not at all.

Up to `WHOLE_BYTES` an object is one PUT. Most blocks are: 128 MiB of lineitem rows are 16 MiB in a file. An upload in
parts takes two more requests, and requests that write cost twelve times as much as requests that read. But one
connection to S3 carries only some 80 MiB/s, and a lost part can be sent again alone.

A process that dies during an upload leaves parts that are invisible but billed. A lifecycle rule of the bucket
(AbortIncompleteMultipartUpload after a day) removes them. MinIO removes them by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from tblctl.tableformat.storage.failures import Failure, classify

if TYPE_CHECKING:
    import pyarrow as pa

PART_BYTES = 16 << 20
WHOLE_BYTES = 24 << 20
PARTS_AT_ONCE = 2


class Ask(Protocol):
    """Sends an S3 request about one object, and retries after transient errors."""

    def __call__(self, method: str, **arguments: Any) -> Awaitable[Any]: ...


async def put_in_parts(ask: Ask, data: memoryview, *, abandoned: Callable[[Exception], None]) -> None:
    """Write an object. Memory: a copy of two parts.

    Args:
        ask: sends requests about the object.
        data: its bytes.
        abandoned: called with the error if parts could not be deleted after a failure. The failure is then raised.
    """
    upload = (await ask("create_multipart_upload"))["UploadId"]
    turn = asyncio.Semaphore(PARTS_AT_ONCE)

    async def send(number: int) -> dict[str, Any]:
        async with turn:
            body = bytes(data[(number - 1) * PART_BYTES : number * PART_BYTES])
            reply = await ask("upload_part", UploadId=upload, PartNumber=number, Body=body)
        return {"PartNumber": number, "ETag": reply["ETag"]}

    numbers = range(1, math.ceil(len(data) / PART_BYTES) + 1)
    try:
        # Wait for all of them, even after a failure: a part that arrives later would stay.
        parts = _unless_failed(await asyncio.gather(*map(send, numbers), return_exceptions=True))
        await _complete(ask, upload, parts, len(data))
    except BaseException:
        try:
            await ask("abort_multipart_upload", UploadId=upload)
        except Exception as error:  # noqa: BLE001 (what is raised is the failure before)
            abandoned(error)
        raise


class PartsUpload:
    """An `Upload` to S3: one PUT if it is small, else in parts, one of them on its way while the next one is made.

    Memory: two parts, and what is not yet a part.

    Args:
        start: runs a coroutine on the event loop.
        ask: sends requests about the object.
        whole: writes a small object.
        abandoned: called with the error if parts could not be deleted.
    """

    def __init__(
        self,
        start: Callable[[Awaitable[Any]], Future[Any]],
        ask: Ask,
        whole: Callable[[bytes], None],
        abandoned: Callable[[Exception], None],
    ) -> None:
        self._start = start
        self._ask = ask
        self._whole = whole
        self._abandoned = abandoned
        self._rest = bytearray()
        self._size = 0
        self._upload: str | None = None
        self._sending: Future[Any] | None = None
        self._parts: list[dict[str, Any]] = []

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append bytes, and send the parts that are full."""
        view = memoryview(data)
        self._rest += view
        self._size += view.nbytes
        while len(self._rest) > (WHOLE_BYTES if self._upload is None else PART_BYTES):
            self._send(bytes(self._rest[:PART_BYTES]))
            del self._rest[:PART_BYTES]

    def finish(self) -> None:
        """Send the rest, and make the object appear."""
        if self._upload is None:
            self._whole(bytes(self._rest))
            return
        if self._rest:
            self._send(bytes(self._rest))
        self._wait()
        upload, self._upload = self._upload, None
        try:
            self._start(_complete(self._ask, upload, self._parts, self._size)).result()
        except BaseException:
            self._upload = upload
            raise

    def abandon(self) -> None:
        """Delete the parts, after the one that is on its way: it would stay."""
        self._rest.clear()
        if self._upload is None:
            return
        try:
            with contextlib.suppress(Exception):
                self._wait()
            self._start(self._ask("abort_multipart_upload", UploadId=self._upload)).result()
        except Exception as error:  # noqa: BLE001 (there is nothing more to do)
            self._abandoned(error)
        self._upload = None

    def _send(self, body: bytes) -> None:
        if self._upload is None:
            self._upload = self._start(self._ask("create_multipart_upload")).result()["UploadId"]
        self._wait()
        number = len(self._parts) + 1
        self._sending = self._start(
            self._ask("upload_part", UploadId=self._upload, PartNumber=number, Body=body)
        )

    def _wait(self) -> None:
        """Wait for the part on its way."""
        sending, self._sending = self._sending, None
        if sending is not None:
            reply = sending.result()
            self._parts.append({"PartNumber": len(self._parts) + 1, "ETag": reply["ETag"]})


def _unless_failed(sent: Sequence[dict[str, Any] | BaseException]) -> list[dict[str, Any]]:
    """Return the sent parts; raise the first failure instead, if there is one."""
    parts = []
    for item in sent:
        if isinstance(item, BaseException):
            raise item
        parts.append(item)
    return parts


async def _complete(ask: Ask, upload: str, parts: list[dict[str, Any]], size_bytes: int) -> None:
    try:
        await ask("complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": parts})
    except Exception as error:
        # After a lost reply the request is sent again, and the upload no longer exists: look for the object.
        if (
            classify(error) is not Failure.MISSING
            or (await ask("head_object"))["ContentLength"] != size_bytes
        ):
            raise
