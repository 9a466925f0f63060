"""Objects on S3 and servers with its protocol (MinIO), through s3fs.

Only this layer retries. Retries of s3fs and botocore are switched off, unless the caller's `config_kwargs` say
otherwise: together they make 5 x 5 tries with waits, so a server that is down would take minutes. aiohttp's resending
is also switched off. When a kept connection is cut, aiohttp would silently send a PUT again, and a create must know
whether a request may have been carried out. Listings and file contents are never cached. s3fs runs its requests on
fsspec's one event-loop thread, which it starts and never ends.

A server may ignore the condition of a create (`If-None-Match`; old MinIO and Ceph do) and replace the object. Then two
writers would both believe in their commit. So the server is tested before the first create of a process.
"""

# ruff: noqa: SLF001 (fsspec's coroutines are its documented asynchronous interface, and start with an underscore)

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import CommitOutcomeUnknownError, InvalidOptionError, UnsupportedBackendError
from tblctl.tableformat.storage.backend import Contents, Names, ObjectInfo, Times
from tblctl.tableformat.storage.failures import (
    RETRIED,
    Failure,
    classify,
    error_code,
    surely_without_effect,
)
from tblctl.tableformat.storage.location import scrub, secrets_in
from tblctl.tableformat.storage.names import name_problem
from tblctl.tableformat.storage.s3_parts import WHOLE_BYTES, PartsUpload, put_in_parts
from tblctl.tableformat.storage.uploads import Upload

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs

T = TypeVar("T")
_logger = logging.getLogger(__name__)

TRIES = 6
LEAST_TRIES = 3
RETRY_SECONDS = 8.0  # no more tries after this long: a server that is down is reported within about 10 s
CONNECT_TIMEOUT_SECONDS = 3
READ_TIMEOUT_SECONDS = 15
SLOWED_TRIES = 40
SLOWED_SECONDS = (
    60.0  # the same for a server that is up and asks for fewer requests: it may have many clients
)
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 3.2
_PARALLEL_REQUESTS = 32
_DELETED_AT_ONCE = 1000  # S3's limit
_ONE_PUT_BYTES = 5 * 2**30  # S3's limit for a PUT without parts; only such a PUT is conditional everywhere
_CONFIG = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "read_timeout": READ_TIMEOUT_SECONDS,
    "max_pool_connections": _PARALLEL_REQUESTS,
    "retries": {"total_max_attempts": 1},
}


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The clock of retries. Tests pass one whose waits end at once.

    Attributes:
        elapsed: seconds on a clock that never goes back.
        sleep: waits for a number of seconds on the event loop.
    """

    elapsed: Callable[[], float] = SYSTEM.elapsed
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


CLOCK = Clock()
# Endpoint and bucket of the servers that passed the test of creates in this process.
_PROVEN: set[tuple[str, str]] = set()


def wait_seconds(tries_done: int, random: float) -> float:
    """Return the wait before the next try: it doubles from 0.1 s to 3.2 s, shortened by up to a half at random."""
    seconds = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0 ** (tries_done - 1))
    return seconds * (0.5 + 0.5 * random)


class S3Backend:
    """See `Backend`; `root` is "bucket" or "bucket/key"."""

    time_step_seconds = 1.0  # HEAD shows whole seconds, a listing of MinIO milliseconds

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        self._root = root
        self._bucket, _, key = root.partition("/")
        self._key = f"{key}/" if key else ""
        self._options = options
        self._opened: tuple[int, Any] | None = None  # process id, filesystem

    def read(self, name: str) -> bytes:
        return self._run(self._read, name)

    async def _read(self, name: str) -> bytes:
        path, filesystem = f"{self._root}/{name}", self._filesystem()
        return bytes(await _patiently(lambda: filesystem._cat_file(path, **in_one_request())))

    def read_many(self, names: Sequence[str]) -> Contents:
        return self._run(_in_parallel, self._read_or_none, names)

    async def _read_or_none(self, name: str) -> bytes | None:
        try:
            return await self._read(name)
        except Exception as error:
            if classify(error) is Failure.MISSING:
                return None
            raise

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self._run(self._write, name, data)

    async def _write(self, name: str, data: bytes | pa.Buffer) -> None:
        ask = functools.partial(self._ask, name)
        if len(data) <= WHOLE_BYTES:
            await ask("put_object", Body=_as_bytes(data))
            return

        abandoned = functools.partial(self._abandoned, name)
        await put_in_parts(ask, memoryview(data), abandoned=abandoned)

    def _abandoned(self, name: str, error: Exception) -> None:
        text = scrub(str(error), secrets_in(self._options))[:500]
        _logger.warning("parts of an upload of %s stay in s3://%s: %s", name, self._root, text)

    def begin(self, name: str) -> Upload:
        loop = self._filesystem().loop
        return PartsUpload(
            lambda work: asyncio.run_coroutine_threadsafe(_awaited(work), loop),
            functools.partial(self._ask, name),
            lambda data: self.write(name, data),
            functools.partial(self._abandoned, name),
        )

    async def _ask(self, name: str, method: str, **arguments: Any) -> Any:
        """Send a request about one object. Retry after transient errors."""
        filesystem, place = self._filesystem(), {"Bucket": self._bucket, "Key": self._key + name}
        return await _patiently(lambda: filesystem._call_s3(method, **place, **arguments))

    def create(self, name: str, data: bytes | pa.Buffer) -> bool:
        return self._run(self._create, name, _as_bytes(data))

    async def _create(self, name: str, data: bytes) -> bool:
        """Put if absent. After a failure that may have had its effect, look for the object: False if it is there.

        If it is not there, the outcome stays open: a lost request may still be running.
        """
        await self._test_create()
        path, filesystem = f"{self._root}/{name}", self._filesystem()
        patience, in_doubt = Patience(least_tries=1), False
        while True:
            try:
                await filesystem._pipe_file(path, data, chunksize=_ONE_PUT_BYTES, mode="create")
            except Exception as error:
                failure = classify(error)
                if failure is Failure.EXISTS:
                    return False
                if self._resends or not surely_without_effect(error):
                    in_doubt = True
                    # Without a connection, looking is useless: the next try will show.
                    if failure is not Failure.NOT_SENT and await self._look(name):
                        return False
                wait = patience.wait_seconds(failure)
                if wait is None:
                    if in_doubt:
                        raise self._unknown(name, error) from None
                    raise
                await CLOCK.sleep(wait)
            else:
                return True

    async def _test_create(self) -> None:
        """Test, once per process, endpoint and bucket, that the server refuses to create an existing object.

        Three small requests: create an object of a new name twice, then delete it. It is named like a leftover, so that
        gc removes it if the delete fails.

        Raises:
            UnsupportedBackendError: the server replaced the object, or does not know the condition.
        """
        filesystem = self._filesystem()
        endpoint = str(filesystem._s3.meta.endpoint_url)
        if (endpoint, self._bucket) in _PROVEN:
            return
        name = f"metadata/.tmp-probe-{SYSTEM.new_id()}"
        path = f"{self._root}/{name}"
        try:
            for content in (b"first", b"second"):
                await _patiently(functools.partial(filesystem._pipe_file, path, content, mode="create"))
        except Exception as error:
            if error_code(error) == "NotImplemented":
                raise self._unsafe(endpoint, "does not know conditional writes (If-None-Match)") from None
            # A refused first create is fine too: the name is new, so an earlier try stored it and its reply was lost.
            if classify(error) is not Failure.EXISTS:
                raise
        else:
            raise self._unsafe(endpoint, "replaces objects although asked to create them (If-None-Match)")
        finally:
            await self._sweep(name)
        _PROVEN.add((endpoint, self._bucket))

    async def _sweep(self, name: str) -> None:
        """Try once to delete the object."""
        try:
            await self._filesystem()._call_s3("delete_object", Bucket=self._bucket, Key=self._key + name)
        except Exception as error:  # noqa: BLE001 (gc deletes it one day)
            text = scrub(str(error), secrets_in(self._options))[:500]
            _logger.debug("%s stays in s3://%s: %s", name, self._root, text)

    def _unsafe(self, endpoint: str, problem: str) -> UnsupportedBackendError:
        url, server = f"s3://{self._root}", scrub(endpoint, secrets_in(self._options))
        msg = (
            f"cannot commit to {url}: the S3 server {server} {problem}, so of two writers one could lose its rows; "
            "upgrade the server or put the table on another one. Nothing was changed"
        )
        return UnsupportedBackendError(msg, url=url, endpoint=server)

    async def _look(self, name: str) -> bool | None:
        """Return whether the object is there, None if the server cannot be asked right now."""
        try:
            await self._filesystem()._call_s3("head_object", Bucket=self._bucket, Key=self._key + name)
        except Exception as error:  # noqa: BLE001 (whatever it is, the answer is "cannot tell")
            return False if classify(error) is Failure.MISSING else None
        return True

    def _unknown(self, name: str, error: Exception) -> CommitOutcomeUnknownError:
        url = f"s3://{self._root}"
        text = scrub(str(error), secrets_in(self._options))[:500]
        msg = (
            f"it is unknown whether {name} was created in {url}: there was no clear reply, and the object is not "
            f"visible ({text}); when the storage is up again, read the object back before trying again"
        )
        return CommitOutcomeUnknownError(msg, name=name, url=url)

    @property
    def _resends(self) -> bool:
        """Whether lower layers may resend a request. Then its last failure says nothing about earlier tries."""
        config = self._config()
        own = config.get("http_session_cls")
        return config.get("retries") != _CONFIG["retries"] or own is None or own is not _session_class()

    def delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETED_AT_ONCE):
            self._delete_keys([self._key + name for name in names[start : start + _DELETED_AT_ONCE]])

    def _delete_keys(self, keys: Sequence[str]) -> None:
        self._run(_patiently, lambda: self._delete_once(keys))

    async def _delete_once(self, keys: Sequence[str]) -> None:
        # Not s3fs's rm: it drops the list of objects that could not be deleted.
        request = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        reply = await self._filesystem()._call_s3("delete_objects", Bucket=self._bucket, Delete=request)
        for problem in reply.get("Errors", []):
            if problem.get("Code") != "NoSuchKey":
                raise RefusedDeleteError(problem)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for page in self._pages(self._key + prefix):
            for item in page:
                name = item["Key"][len(self._key) :]
                if name_problem(name) is None:
                    seconds = item["LastModified"].timestamp()
                    yield ObjectInfo(name=name, size_bytes=item["Size"], modified_seconds=seconds)

    def folders(self, folder: str) -> Names:
        return [
            item["Prefix"][len(self._key) :]
            for answer in self._answers(self._key + folder, Delimiter="/")
            for item in answer.get("CommonPrefixes", [])
        ]

    def _pages(self, prefix: str) -> Iterator[Sequence[dict[str, Any]]]:
        for answer in self._answers(prefix):
            yield answer.get("Contents", [])

    def _answers(self, prefix: str, **settings: str) -> Iterator[dict[str, Any]]:
        more: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Bucket=self._bucket, Prefix=prefix, **settings, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def modified(self, names: Sequence[str]) -> Times:
        return self._run(_in_parallel, self._modified_or_none, names)

    async def _modified_or_none(self, name: str) -> float | None:
        try:
            found = await self._ask(name, "head_object")
        except Exception as error:
            if classify(error) is Failure.MISSING:
                return None
            raise
        return float(found["LastModified"].timestamp())

    def is_empty(self) -> bool:
        # Consoles make an object named like a folder for "new folder". It holds nothing.
        return not any(not item["Key"].endswith("/") for page in self._pages(self._key) for item in page)

    def delete_all(self) -> None:
        for page in self._pages(self._key):
            if page:
                self._delete_keys([item["Key"] for item in page])

    def open_input(self, name: str, size_bytes: int | None) -> pa.NativeFile:
        from tblctl.tableformat.storage.ranges import RangedInput, RangeFile

        if size_bytes is None:
            answer = self._run(_for_readers, self._ask(name, "head_object"))
            size_bytes = int(answer["ContentLength"])
        ranges = RangeFile(size_bytes, lambda start, end: self._begin_range(name, start, end))
        return RangedInput(ranges, mode="r")

    def _begin_range(self, name: str, start: int, end: int) -> Future[bytes]:
        path, filesystem = f"{self._root}/{name}", self._filesystem()
        request = _for_readers(_patiently(lambda: filesystem._cat_file(path, start=start, end=end)))
        return asyncio.run_coroutine_threadsafe(request, filesystem.loop)

    def arrow_filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        from tblctl.tableformat.storage.arrow import filesystem_over

        return filesystem_over(self._filesystem(), self._root, self), self._root

    def _call(self, method: str, **arguments: Any) -> Any:
        filesystem = self._filesystem()
        return self._run(_patiently, lambda: filesystem._call_s3(method, **arguments))

    def _run(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run a coroutine on fsspec's event loop and wait for it."""
        from fsspec.asyn import sync

        result: T = sync(self._filesystem().loop, function, *arguments)
        return result

    def _filesystem(self) -> Any:
        """Return s3fs's filesystem, opened once per process: it does not survive a fork.

        Two threads may each open one at first. Both work, and the later one is kept.
        """
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), self._open())
        return self._opened[1]

    def _open(self) -> Any:
        try:
            import s3fs
            from fsspec.asyn import sync
        except ImportError as error:
            msg = f"s3://{self._root} needs s3fs ({error}): install the extra s3, pip install '.[s3]' in the checkout"
            raise UnsupportedBackendError(msg, url=f"s3://{self._root}") from None
        defaults = {"use_listings_cache": False, "skip_instance_cache": True, "default_cache_type": "none"}
        try:
            filesystem = s3fs.S3FileSystem(**(defaults | self._options | {"config_kwargs": self._config()}))
            filesystem.retries = 1
            sync(filesystem.loop, filesystem.set_session)
        except (TypeError, KeyError, ValueError) as error:
            text = scrub(str(error), secrets_in(self._options))
            msg = f"s3fs does not understand the storage options for s3://{self._root}: {text}"
            raise InvalidOptionError(msg, url=f"s3://{self._root}") from None
        return filesystem

    def _config(self) -> dict[str, Any]:
        """Return botocore's settings. The caller's override those of fsspec's configuration; these override ours."""
        from fsspec.config import conf

        configured: dict[str, Any] = conf.get("s3", {}).get("config_kwargs", {})
        own: dict[str, Any] = self._options.get("config_kwargs") or {}
        session = _session_class()
        quiet = {} if session is None else {"http_session_cls": session}
        return {**_CONFIG, **quiet, **configured, **own}


class RefusedDeleteError(OSError):
    """The server did not delete one of several objects. `response` is as in botocore's ClientError."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(f"{problem.get('Key')}: {problem.get('Message') or problem.get('Code')}")
        self.response = {"Error": problem, "ResponseMetadata": {}}


@functools.cache
def in_one_request() -> dict[str, int]:
    """Return arguments for `_cat_file`: s3fs from 2026.3 on asks for the size first, and older ones never do."""
    import s3fs

    known = inspect.signature(s3fs.S3FileSystem._cat_file).parameters
    return {"max_concurrency": 1} if "max_concurrency" in known else {}


@functools.cache
def _session_class() -> type | None:
    """Return aiobotocore's HTTP session with aiohttp's resending off; None for versions where that is impossible.

    aiohttp sends idempotent requests (such as PUT) again on a new connection if a kept one breaks
    (`ClientSession._retry_connection`, which has no public switch).
    """
    import aiohttp
    from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
    from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]

    takes_class = "http_session_cls" in inspect.signature(AioConfig.__init__).parameters
    switch_known = "_retry_connection" in getattr(aiohttp.ClientSession, "ATTRS", ())
    if not (takes_class and switch_known and hasattr(AIOHTTPSession, "_get_session")):
        return None

    class SendsOnce(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False
            return session

    return SendsOnce


def _as_bytes(data: bytes | pa.Buffer) -> bytes:
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def is_worth_a_try(
    failure: Failure, tries_done: int, seconds: float, *, least_tries: int = LEAST_TRIES
) -> bool:
    """Return whether to try again `seconds` after the first try began: 6 times, or for 8 seconds, if it is transient.

    At least `least_tries` are made, because a hanging server is only noticed after 15 seconds. A server that asks for
    fewer requests gets a minute: a job has many tasks, and all their requests must succeed.
    """
    if failure is Failure.SLOWED:
        return tries_done < SLOWED_TRIES and seconds <= SLOWED_SECONDS
    if failure not in RETRIED or tries_done >= TRIES:
        return False
    return seconds <= RETRY_SECONDS or tries_done < least_tries


class Patience:
    """The tries of one request. Tries that the server refused as too fast are counted separately."""

    def __init__(self, *, least_tries: int = LEAST_TRIES) -> None:
        self._least_tries = least_tries
        self._began = CLOCK.elapsed()  # start of the current try
        self._done: dict[
            bool, tuple[int, float]
        ] = {}  # number and start of tries, by whether the server slowed them

    def wait_seconds(self, failure: Failure) -> float | None:
        """Return how long to wait after a failed try; None to give up."""
        is_slowed = failure is Failure.SLOWED
        tries_done, since = self._done.get(is_slowed, (0, self._began))
        self._done[is_slowed] = tries_done + 1, since
        now = CLOCK.elapsed()
        if not is_worth_a_try(failure, tries_done + 1, now - since, least_tries=self._least_tries):
            return None
        wait = wait_seconds(tries_done + 1, SYSTEM.random())
        self._began = now + wait
        return wait


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """Run `attempt`, and retry while `is_worth_a_try` says so."""
    patience = Patience()
    while True:
        try:
            return await attempt()
        except Exception as error:
            wait = patience.wait_seconds(classify(error))
            if wait is None:
                raise
        await CLOCK.sleep(wait)


async def _for_readers(request: Awaitable[T]) -> T:
    """Await a request of a file's reader, which knows errors of the system only. botocore's of connections are none."""
    try:
        return await request
    except Exception as error:
        if isinstance(error, OSError) or classify(error) not in RETRIED:
            raise
        raise ConnectionError(str(error)) from error


async def _in_parallel(function: Callable[[str], Awaitable[T]], names: Sequence[str]) -> list[T]:
    """Run `function` for all names, 32 at a time. Return the results in order. A failure stops the others."""
    turn = asyncio.Semaphore(_PARALLEL_REQUESTS)

    async def one(name: str) -> T:
        async with turn:
            return await function(name)

    requests = [asyncio.ensure_future(one(name)) for name in names]
    try:
        return list(await asyncio.gather(*requests))
    except BaseException:
        for request in requests:
            request.cancel()
        raise
