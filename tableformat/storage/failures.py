"""Classify a storage library's error, and turn it into a tblctl error. Pure: looks at exceptions only.

s3fs raises plain OSErrors whose `__cause__` is botocore's ClientError with the server's code. botocore's connection
errors are raised unchanged. Both are recognised by attributes and class names, so neither library need be installed for
local tables.
"""

from __future__ import annotations

import errno
from enum import Enum, auto
from typing import Any

from tblctl.tableformat.errors import (
    AccessDeniedError,
    InputError,
    ObjectNotFoundError,
    StorageError,
    TblctlError,
)
from tblctl.tableformat.storage.location import scrub


class Failure(Enum):
    """Kinds of failures, by what can be done about them."""

    MISSING = auto()  # no such object
    NO_BUCKET = auto()
    NOT_S3 = auto()  # a 404 without S3's error code: a wrong endpoint, or a proxy
    BAD_BUCKET = auto()  # its name breaks the rules of S3
    EXISTS = auto()  # the name of a create was taken
    CONFLICT = auto()  # another request on the same name was running (409): try again
    DENIED = auto()
    FULL = auto()
    NOT_SENT = auto()  # no connection was made, so the request certainly had no effect
    LOST = auto()  # sent, but no reply: it may have had its effect
    BUSY = auto()  # the server could not carry it out (5xx)
    SLOWED = auto()  # the server is up, but asks for fewer requests a second (503 Slow Down, 429)
    OTHER = auto()


RETRIED = frozenset({Failure.CONFLICT, Failure.NOT_SENT, Failure.LOST, Failure.BUSY, Failure.SLOWED})

_BY_CODE = {
    "NoSuchBucket": Failure.NO_BUCKET,
    "InvalidBucketName": Failure.BAD_BUCKET,
    "NoSuchKey": Failure.MISSING,
    "NoSuchVersion": Failure.MISSING,
    "NoSuchUpload": Failure.MISSING,
    "PreconditionFailed": Failure.EXISTS,
    "ConditionalRequestConflict": Failure.CONFLICT,
    "OperationAborted": Failure.CONFLICT,
    "RequestTimeout": Failure.BUSY,
    "SlowDown": Failure.SLOWED,
    "SlowDownRead": Failure.BUSY,  # of a MinIO that lost disks
    "SlowDownWrite": Failure.BUSY,
    "RequestLimitExceeded": Failure.SLOWED,
    "Throttling": Failure.SLOWED,
    "ThrottlingException": Failure.SLOWED,
    "TooManyRequests": Failure.SLOWED,
    "XMinioStorageFull": Failure.FULL,
    "QuotaExceeded": Failure.FULL,
    "XMinioAdminBucketQuotaExceeded": Failure.FULL,
    "InternalError": Failure.BUSY,
    "NotImplemented": Failure.OTHER,  # 501: asking again does not help
    "ServiceUnavailable": Failure.BUSY,
    "AccessDenied": Failure.DENIED,
    "AuthorizationHeaderMalformed": Failure.DENIED,
    "InvalidToken": Failure.DENIED,
    "ExpiredToken": Failure.DENIED,
}
_NOT_FOUND, _UNAVAILABLE = 404, 503
_BY_STATUS = {
    401: Failure.DENIED,
    403: Failure.DENIED,
    _NOT_FOUND: Failure.MISSING,
    408: Failure.BUSY,
    409: Failure.CONFLICT,
    412: Failure.EXISTS,
    429: Failure.SLOWED,
    507: Failure.FULL,
}
_CLIENT_ERROR, _SERVER_ERROR = 400, 500  # and above
_BY_CLASS_NAME = {  # botocore and aiohttp, by any base class of the error
    "NoCredentialsError": Failure.DENIED,
    "PartialCredentialsError": Failure.DENIED,
    "CredentialRetrievalError": Failure.DENIED,
    "ProfileNotFound": Failure.DENIED,
    "TokenRetrievalError": Failure.DENIED,
    "SSOError": Failure.DENIED,
    "SSLError": Failure.OTHER,
    "ConnectTimeoutError": Failure.NOT_SENT,
    "ProxyConnectionError": Failure.NOT_SENT,
    "ParamValidationError": Failure.BAD_BUCKET,
    "HTTPClientError": Failure.LOST,
    "ResponseParserError": Failure.LOST,
    "ClientPayloadError": Failure.LOST,
    "IncompleteReadError": Failure.LOST,
    "IncompleteRead": Failure.LOST,
    "FSTimeoutError": Failure.LOST,
}
_NO_CONNECTION = frozenset({"ClientConnectorError", "gaierror", "ConnectionRefusedError"})
# S3 codes of 5xx replies after which nothing was done. After a 4xx reply nothing was done either.
_HARMLESS_CODES = frozenset(
    {code for code, failure in _BY_CODE.items() if failure is Failure.SLOWED}
    | {"ServiceUnavailable", "XMinioStorageFull", "NotImplemented"}
)
_HARMLESS_CLASSES = frozenset(  # raised before anything is sent
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ProfileNotFound",
        "TokenRetrievalError",
        "SSOError",
        "ParamValidationError",
    }
)
_BY_ERRNO = {
    errno.ENOENT: Failure.MISSING,
    errno.ENOTDIR: Failure.MISSING,
    errno.EISDIR: Failure.MISSING,
    errno.ENAMETOOLONG: Failure.MISSING,
    errno.EACCES: Failure.DENIED,
    errno.EPERM: Failure.DENIED,
    errno.EROFS: Failure.DENIED,
    errno.ENOSPC: Failure.FULL,
    errno.EDQUOT: Failure.FULL,
}


def classify(error: BaseException) -> Failure:
    """Return the kind of `error`. A missing bucket differs from a missing object only if the server says so."""
    code, status, operation = _server_reply(error)
    if code in _BY_CODE:
        return _BY_CODE[code]
    if operation == "HeadObject" and status == _UNAVAILABLE:  # replies to HEAD have no body, so no code
        return Failure.SLOWED
    if status == _NOT_FOUND and operation != "HeadObject":
        return Failure.NOT_S3
    if status is not None:
        return _BY_STATUS.get(status, Failure.BUSY if status >= _SERVER_ERROR else Failure.OTHER)
    kinds = _class_names(error)
    if "EndpointConnectionError" in kinds:
        # aiobotocore also raises this for connections that were reset after the request: check the cause.
        return Failure.NOT_SENT if _never_connected(error) else Failure.LOST
    for kind in kinds:
        if kind in _BY_CLASS_NAME:
            return _BY_CLASS_NAME[kind]
    if isinstance(error, FileExistsError):
        return Failure.EXISTS
    if isinstance(error, FileNotFoundError):
        return Failure.MISSING
    if isinstance(error, PermissionError):
        return Failure.DENIED
    if isinstance(error, ConnectionRefusedError):
        return Failure.NOT_SENT
    if isinstance(error, (ConnectionError, TimeoutError)):
        return Failure.LOST
    return _BY_ERRNO.get(error.errno or 0, Failure.OTHER) if isinstance(error, OSError) else Failure.OTHER


def surely_without_effect(error: BaseException) -> bool:
    """Return whether the one request that ended with `error` certainly changed nothing on an S3 server.

    This is certain if no connection was made, if the request was refused on this side, or if an S3 server (a reply with
    S3's error code, not a proxy's page) refused it: 4xx, or 5xx with a code that says so. Anything else, also an
    unknown error, may have had its effect: a 500, 502 or 504 can follow a request that was carried out.
    """
    code, status, _operation = _server_reply(error)
    if status is not None or code:
        refused = status is not None and _CLIENT_ERROR <= status < _SERVER_ERROR
        return code in _HARMLESS_CODES or (refused and code != "" and not code.isdigit())
    return (
        classify(error) is Failure.NOT_SENT
        or _never_connected(error)
        or not _HARMLESS_CLASSES.isdisjoint(_class_names(error))
    )


def error_code(error: BaseException) -> str:
    """Return S3's error code, '' if the error has none."""
    return _server_reply(error)[0]


def _never_connected(error: BaseException) -> bool:
    """Return whether botocore's `error` wraps the failure to make a connection."""
    details: Any = getattr(error, "kwargs", None)
    inner = details.get("error") if isinstance(details, dict) else None
    return inner is not None and not _NO_CONNECTION.isdisjoint(_class_names(inner))


def _class_names(error: BaseException) -> tuple[str, ...]:
    """Return the names of the error's class and its bases, nearest first."""
    return tuple(kind.__name__ for kind in type(error).__mro__)


def _server_reply(error: BaseException) -> tuple[str, int | None, str]:
    """Return the server's error code, HTTP status and the operation, from the error or its cause."""
    for candidate in (error, error.__cause__):
        response: Any = getattr(candidate, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code") or "")
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status is None and code.isdigit():
                status = int(code)
            return code, status, str(getattr(candidate, "operation_name", ""))
    return "", None, ""


def explain(
    error: Exception, *, operation: str, name: str, url: str, secrets: tuple[str, ...]
) -> TblctlError:
    """Return the tblctl error for `error`. Its text names the object, the problem and what to do.

    `operation` is a verb ("read"), `name` the object, or '' for the whole table.
    """
    text = scrub(str(error) or type(error).__name__, secrets)[:500]
    where = f"{name} in {url}" if name and url != "/" else f"{url}{name}"
    intro = f"cannot {operation} {where}"
    details = {"operation": operation, "name": name, "url": url}
    failure = classify(error)
    if failure is Failure.MISSING:
        return ObjectNotFoundError(f"{intro}: there is no such object ({text})", **details)
    if failure in {Failure.NO_BUCKET, Failure.BAD_BUCKET}:
        bucket = url.partition("://")[2].partition("/")[0]
        problem = "does not exist" if failure is Failure.NO_BUCKET else "is not a valid bucket name"
        return InputError(
            f"{intro}: the bucket {bucket!r} {problem} ({text}); create it or correct the URL", **details
        )
    if failure is Failure.DENIED:
        advice = (
            "check the credentials and their permissions"
            if "://" in url
            else "check the folder's permissions"
        )
        return AccessDeniedError(f"{intro}: access denied ({text}); {advice}", **details)
    if failure is Failure.FULL:
        return StorageError(
            f"{intro}: the storage is full ({text}); free some space and try again", **details
        )
    if failure is Failure.NOT_S3:
        msg = f"{intro}: the reply is not from an S3 server ({text}); check the endpoint_url, and proxies"
        return StorageError(msg, **details)
    if failure is Failure.SLOWED:
        msg = (
            f"{intro}: the storage keeps asking for fewer requests ({text}); let fewer tasks or writers run at once, "
            "then try again"
        )
        return StorageError(msg, **details)
    if failure in RETRIED:
        msg = f"{intro}: the storage does not respond properly ({text}); check that it is up, then try again"
        return StorageError(msg, **details)
    return StorageError(f"{intro}: {text}", **details)
