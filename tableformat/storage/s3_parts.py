"""Upload large objects to S3 in parts, several at once. An object appears whole or not at all.

Up to `WHOLE_BYTES` an object is one PUT. Most blocks are: 128 MiB of lineitem rows are 16 MiB in a file. An upload in
parts takes two more requests, and requests that write cost twelve times as much as requests that read. But one
connection to S3 carries only some 80 MiB/s, and a lost part can be sent again alone.

A process that dies during an upload leaves parts that are invisible but billed. A lifecycle rule of the bucket
(AbortIncompleteMultipartUpload after a day) removes them. MinIO removes them by itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from tblctl.tableformat.storage.failures import Failure, classify

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
