"""An object that goes to S3 in parts while it is still being written.

A part is sent as soon as it is full, beside the writer, so that a task with one thread does not wait for the network,
and memory holds parts instead of the object. Up to `WHOLE_BYTES` an object is one PUT: an upload in parts takes two
requests more, and requests that write cost twelve times those that read.

A process that dies in the middle leaves parts that nobody sees but that are billed: a lifecycle rule of the bucket
(AbortIncompleteMultipartUpload, one day) removes them; MinIO does by itself.
"""

from __future__ import annotations

import io
import logging
from concurrent.futures import Future
from typing import Any, Protocol

from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.storage.failures import Failure, classify
from tblctl.tableformat.storage.output import Guard

_logger = logging.getLogger(__name__)

PART_BYTES = 16 << 20
WHOLE_BYTES = 24 << 20
PARTS_UNDER_WAY = 2


class Client(Protocol):
    """What an upload needs of the backend; requests are sent again after errors that pass."""

    def begin(self, method: str, name: str, **arguments: Any) -> Future[Any]:
        """Begin a request of S3's for one object."""

    def put(self, name: str, data: bytes) -> None:
        """Write an object with one request."""


class S3Upload(io.RawIOBase):
    """See `Output`. Memory: up to 24 MiB that are waiting, and two parts of 16 MiB under way."""

    def __init__(self, client: Client, name: str, guard: Guard) -> None:
        import pyarrow as pa

        super().__init__()
        self._client = client
        self._name = name
        self._guard = guard
        self._waiting = bytearray()
        self._size_bytes = 0
        self._upload: dict[str, str] | None = None  # which one, as botocore wants it
        self._parts: list[Future[Any]] = []
        self.sink = pa.PythonFile(self, mode="w")

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, data: Any) -> int:
        """Take some bytes; waits while as many parts as may be are under way."""
        self._waiting += data
        self._size_bytes += len(data)
        if len(self._waiting) > WHOLE_BYTES:
            self._guard(self._send_full_parts)
        return len(data)

    def _send_full_parts(self) -> None:
        if self._upload is None:
            begun = self._client.begin("create_multipart_upload", self._name).result()
            self._upload = {"UploadId": begun["UploadId"]}
        while len(self._waiting) >= PART_BYTES:
            self._send(PART_BYTES)

    def _send(self, size_bytes: int) -> None:
        for part in self._parts[: 1 - PARTS_UNDER_WAY]:
            part.result()
        body = bytes(memoryview(self._waiting)[:size_bytes])
        del self._waiting[:size_bytes]
        number = len(self._parts) + 1
        self._parts.append(self._ask("upload_part", PartNumber=number, Body=body))

    def _ask(self, method: str, **arguments: Any) -> Future[Any]:
        return self._client.begin(method, self._name, **(self._upload or {}), **arguments)

    def publish(self) -> None:
        """See `Output`."""
        self._guard(self._publish)
        self._upload = None

    def _publish(self) -> None:
        if self._upload is None:
            self._client.put(self._name, bytes(self._waiting))
            return
        if self._waiting:
            self._send(len(self._waiting))
        parts = [
            {"PartNumber": number, "ETag": part.result()["ETag"]}
            for number, part in enumerate(self._parts, start=1)
        ]
        try:
            self._ask("complete_multipart_upload", MultipartUpload={"Parts": parts}).result()
        except Exception as error:
            # A request whose reply was lost is sent again, and then the upload is no more: look for the object.
            if classify(error) is not Failure.MISSING or not self._is_there():
                raise

    def _is_there(self) -> bool:
        found = self._client.begin("head_object", self._name).result()
        return bool(found["ContentLength"] == self._size_bytes)

    def abort(self) -> None:
        """See `Output`."""
        if self._upload is None:
            return
        for part in self._parts:
            part.exception()  # a part that arrives later would stay
        try:
            self._guard(self._ask("abort_multipart_upload").result)
        except TblctlError as error:
            _logger.warning(
                "parts of an upload stay until the bucket's lifecycle rule removes them: %s", error
            )
        self._upload = None
