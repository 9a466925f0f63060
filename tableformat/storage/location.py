"""Parse a table's URL: its backend, its place there, and how to print it without secrets. Pure, except for '~'."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from tblctl.tableformat.errors import InputError

_LOCAL = ("file", "local")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(://|::)")
_USERINFO = re.compile(r"(://)(?:[^/@\s'\"]*|[^/@\s'\":]*:[^\s'\"]*)@")
"""If there is a colon, it reaches to the last @: passwords may contain @ and /, as secret keys of AWS do. It also
removes lookalikes in paths (`http://h:80/a@b`): removing too much is better than too little."""
_CHAIN = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*(?:://|::))")
_QUERY = re.compile(r"(://[^?#\s'\"]*)[?#][^\s'\")]*")
_MISTYPED = re.compile(r"[^\s/]*@|[?#].*", re.DOTALL)
_SEPARATOR = re.compile(r"[/:@?#]")
_SECRET_OPTION = re.compile(
    r"key|secret|token|pass|credential|sas|auth|user|connection.?string", re.IGNORECASE
)
_SECRET_PART = re.compile(
    r"(?:AccountKey|SharedAccessKey|SharedAccessSignature)\s*=\s*([^;]*)", re.IGNORECASE
)
_SIGNED = re.compile(
    r"\?(?=[^\s/]*(?:sig|key|secret|token|pass|credential|auth)[^=&\s/]*=).*", re.IGNORECASE | re.DOTALL
)
_WEB = re.compile(r"\bhttps?://", re.IGNORECASE)
_WEB_QUERY = re.compile(r"[?#].*", re.DOTALL)
_MIN_SECRET_CHARS = 6  # shorter ones would hide ordinary words


@dataclass(frozen=True, kw_only=True)
class Location:
    """A table's root.

    Attributes:
        kind: which backend serves it.
        shown: the URL for messages, logs and reprs; without user info and query.
        path: absolute path (local), "/path" (memory), "bucket" or "bucket/key" (s3), the URL itself (other).
    """

    kind: Literal["local", "memory", "s3", "other"]
    shown: str
    path: str

    @property
    def absolute_url(self) -> str:
        """The URL of the same root for processes with another working folder."""
        scheme = {"local": "file://", "memory": "memory:/", "s3": "s3://", "other": ""}[self.kind]
        return scheme + self.path


def parse_location(url: str) -> Location:
    """Return the location of `url`: a path, `file://`, `memory://`, `s3://` or `s3a://`, or any other fsspec URL.

    Raises:
        InputError: the URL is empty, names no bucket, or has credentials.
    """
    if not url or "\0" in url:
        raise InputError(
            "a table's location is empty or has a NUL: give a path, or a URL such as s3://bucket/table"
        )
    scheme = _SCHEME.match(url)
    if scheme is None:
        return _local(url)
    protocol, rest = scheme.group(1).lower(), url[scheme.end() :]
    if scheme.group(2) == "://":
        if protocol in _LOCAL:
            return _local(local_path(url))
        if protocol == "memory":
            path = "/" + rest.strip("/")
            return Location(kind="memory", shown=f"memory:/{path}", path=path)
        if protocol in {"s3", "s3a"}:
            return _s3(rest, url)
    return Location(kind="other", shown=shown_url(url), path=url)


def local_path(url: str) -> str:
    """Return the path of a `file://` URL; other text as it is."""
    scheme = _SCHEME.match(url)
    if scheme is None or scheme.group(2) != "://" or scheme.group(1).lower() not in _LOCAL:
        return url
    rest = url[scheme.end() :]
    return rest.removeprefix("localhost") if rest.startswith("localhost/") else rest


def _local(path: str) -> Location:
    absolute = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 (strings: names are joined a lot)
    return Location(kind="local", shown=absolute, path=absolute)


def _s3(rest: str, url: str) -> Location:
    bucket, _, key = rest.partition("/")
    if "@" in bucket or (_has_password(rest) and not rest.startswith("arn:")):
        shown = shown_url(url)
        raise InputError(
            f"{shown}: credentials do not belong in the URL; give them as storage options or to boto"
        )
    if not bucket:
        raise InputError(f"{without_credentials(url)} names no bucket: expected s3://bucket/table")
    path = f"{bucket}/{key.strip('/')}".rstrip("/")
    return Location(kind="s3", shown=without_credentials(f"s3://{path}"), path=path)


def without_credentials(text: str) -> str:
    """Return `text` with the user info and the query of every URL in it removed."""
    return _QUERY.sub(r"\1", _USERINFO.sub(r"\1", text))


def shown_url(url: str) -> str:
    """Return one URL, which may have blanks and quotes in it, without user info and query."""
    for userinfo in _userinfos(url):
        url = url.replace(f"://{userinfo}@", "://")
    chain, colons, last = without_credentials(url).rpartition("::")
    if (colons or last.startswith("//")) and "://" not in last:
        last = _MISTYPED.sub(
            "", last
        )  # `simplecache::s3;//user:password@host/x?token=..`, `//user:password@host/x`
    return chain + colons + last


def _has_password(rest: str) -> bool:
    """Return whether the text after `://` begins with a user and a password: only these have a colon before an @."""
    return ":" in rest.rpartition("@")[0]


def _userinfos(url: str) -> Iterator[str]:
    """Yield the user info of each URL of a chain such as `simplecache::s3://..`."""
    for part in _CHAIN.split(url):
        _, found, rest = part.partition("://")
        before = rest.rpartition("@")[0] if found else ""
        if ":" not in before:
            before = rest.partition("/")[0].rpartition("@")[0]
        if before:
            yield before


def has_userinfo(url: str) -> bool:
    """Return whether a location's URL has a user name or a password in it."""
    return any(_userinfos(url))


def secrets_of(url: str) -> tuple[str, ...]:
    """Return the user names and passwords in a location's URL, as written and decoded; the longest first.

    Their pieces are included: drivers cut a URL at the first separator, and repeat the part before or after it.
    """
    found: set[str] = set()
    for userinfo in _userinfos(url):
        user, _, password = userinfo.partition(":")
        texts = {form for text in (userinfo, user, password) for form in (text, unquote(text))}
        forms = {form for text in texts for form in _pieces(text)}
        forms |= {unquote(form) for form in forms}
        forms |= {form.lower() for form in forms}  # host names are shown in lower case
        found |= {form for form in forms if len(form) >= _MIN_SECRET_CHARS or form == userinfo}
    return tuple(sorted(found, key=len, reverse=True))


def _pieces(text: str) -> Iterator[str]:
    """Yield `text`, and the parts between, before and after its separators."""
    yield text
    yield from _SEPARATOR.split(text)
    for separator in _SEPARATOR.finditer(text):
        yield text[: separator.start()]
        yield text[separator.end() :]


def secrets_in(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of storage options that must never be printed, nested ones too; the longest first."""
    return tuple(sorted(set(_secrets(options.items())), key=len, reverse=True))


def _secrets(items: Iterable[tuple[str, Any]]) -> Iterable[str]:
    for name, value in items:
        if isinstance(value, Mapping):
            yield from _secrets(value.items())
        elif isinstance(value, str) and (is_secret_option(str(name)) or has_secret_part(value)):
            found = (value, *_SECRET_PART.findall(value))  # drivers repeat a key alone
            yield from (text for text in found if len(text) >= _MIN_SECRET_CHARS)


def is_secret_option(name: str) -> bool:
    """Return whether a storage option's value may be a secret, by its name."""
    return _SECRET_OPTION.search(name) is not None


def has_secret_part(value: str) -> bool:
    """Return whether an option's value, whatever its name, is a connection string with a key or a signature."""
    return _SECRET_PART.search(value) is not None


def shown_name(url: str, name: str) -> str:
    """Return an object's name or pattern below `url` for messages: without a query that may sign it.

    Of other backends than the web only a query with a word for a secret counts: `?` may be a part of a key or a glob.
    """
    return (_WEB_QUERY if _WEB.search(url) else _SIGNED).sub("", name)


def shown_path(path: str) -> str:
    """Return the path or URL of a file for messages."""
    return shown_url(path) if "://" in path else path


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Return `text` for a message: without credentials in URLs and without secret values."""
    text = without_credentials(text)
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
