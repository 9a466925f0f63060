"""What tells objects from all others, by whatever name of their place: for comparing, never for messages.

Different objects have different identities, and one object has one, whichever way its location is written: by a link, a
path or a `file://` URL, by any name of its scheme, through a cache. It has no credentials, so that it may be kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tblctl.tableformat.storage.location import Location

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
"""Names of a scheme, and the one that stands for them. fsspec opens them alike."""

_CACHES = re.compile(r"(?:(?:simplecache|filecache|blockcache|cached)::)+", re.IGNORECASE)
_LINK = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*(?:://|::))")
_WEB = ("http", "https")
_WEB_QUERY = r"[?#].*"
_PARAMETERS = re.compile(r"\?[^/?=]*=.*", re.DOTALL)
"""Of other schemes: a `?` alone may be a part of a key."""

_ACCOUNT = re.compile(r"(?:^|;)\s*AccountName=([^;]*)", re.IGNORECASE)


def root_identity(location: Location, options: Mapping[str, Any]) -> str:
    """Return the identity of a root, with a slash at the end: with an object's name it is that of the object.

    Links on local disk are followed. A bucket or a container is a part of it, and the account of a container, from the
    URL or `options`. The endpoint of S3 is none: its names differ from one network to the next.
    """
    if location.kind == "local":
        found = os.path.realpath(location.path)
    elif location.kind == "other":
        found = "::".join(_plain(link, options) for link in _LINK.split(_CACHES.sub("", location.path)))
    else:
        found = location.absolute_url
    return found.rstrip("/") + ("//" if found == "memory://" else "/")


def scheme_of(url: str) -> str:
    """Return the scheme of a URL by the one name that stands for all of its names; "file" for a path."""
    scheme, found, _ = url.partition("://")
    return _SCHEMES.get(scheme.lower(), scheme.lower()) if found else "file"


def identities(root: str, names: pa.Array) -> pa.Array:
    """Return the identities of objects below a root with an identity, as large strings. O(n), without objects."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if root.startswith(tuple(f"{scheme}://" for scheme in _WEB)):  # after `?` there may be a signature
        names = pc.replace_substring_regex(names, f"(?s){_WEB_QUERY}", "")
    return pc.binary_join_element_wise(
        pa.scalar(root, pa.large_string()), names, pa.scalar("", pa.large_string())
    )


def _plain(url: str, options: Mapping[str, Any]) -> str:
    """Return one URL of a chain, or a path in it, without what does not tell it from others.

    User info ends at the first slash, as drivers read it. A location that is cut elsewhere cannot be listed. Before the
    @ of abfs is a container, before that of github an organisation and its repository.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    scheme = _SCHEMES.get(scheme.lower(), scheme.lower())
    if scheme in {"file", "local"}:
        return f"file://{os.path.realpath(rest)}"
    rest = re.sub(_WEB_QUERY, "", rest, flags=re.DOTALL) if scheme in _WEB else _PARAMETERS.sub("", rest)
    host, slash, path = rest.partition("/")
    before, _, place = host.rpartition("@")
    if before and (scheme == "github" or (scheme == "abfs" and ":" not in before)):
        place = f"{before}@{place.replace('.blob.', '.dfs.')}"
    elif scheme == "abfs" and (account := _account(options)):
        place = f"{place}@{account}.dfs.core.windows.net"
    return f"{scheme}://{place}{slash}{path}"


def _account(options: Mapping[str, Any]) -> str | None:
    found = _ACCOUNT.search(str(options.get("connection_string", "")))
    return options.get("account_name") or (found and found[1])
