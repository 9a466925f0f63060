"""The storages of an Iceberg table's data files, which lie at absolute URIs anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.storage import Storage

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/(.*)", re.DOTALL)
_S3_SCHEMES = ("s3", "s3a", "s3n")

_CLIENT = {
    "endpoint_url": ("s3.endpoint",),
    "region_name": ("s3.region", "client.region"),
}
_CREDENTIALS = {
    "key": ("s3.access-key-id", "client.access-key-id"),
    "secret": ("s3.secret-access-key", "client.secret-access-key"),
    "token": ("s3.session-token", "client.session-token"),
    "profile": ("s3.profile-name", "client.profile-name"),
}
SESSION = "s3.session-token"
"""The property with the token of vended credentials: these expire."""

_SESSION_EXPIRES = "s3.session-token-expires-at-ms"
_AHEAD_SECONDS = 300.0
_RENEW_SECONDS = 600.0  # where the catalog does not say when they expire: the least that AWS grants is 900
_TRUE = frozenset({"true", "t", "1", "on", "y", "yes"})


class DataStorage:
    """Finds the storage of a data file by its URI. Pickles, secrets included: never show or log that.

    Credentials that a catalog vends expire. Where `renew` is given, on the driver, they are asked for again before
    that, and a pickle has those of its time.

    Args:
        properties: of the table's FileIO, as PyIceberg names them.
        renew: returns the properties anew; None if they do not expire.
        env: clocks.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        renew: Callable[[], Mapping[str, str]] | None = None,
        env: Environment = SYSTEM,
    ) -> None:
        self._properties = dict(properties)
        self._renew = renew if SESSION in properties else None
        self._env = env
        self._asked = env.elapsed()
        self._roots: dict[str, Storage] = {}
        self._lock = Lock()

    def place_of(self, uri: str) -> tuple[Storage, str]:
        """Return the storage of a file, and the file's name in it.

        Raises:
            InvalidOptionError: requests are signed by another service (`s3.signer`).
            UnsupportedBackendError: from the storage's calls: there is no driver for the scheme.
        """
        root, name = split_uri(uri)
        with self._lock:
            self._renew_if_due()
            storage = self._roots.get(root)
            if storage is None:
                options = s3_options(self._properties) if root.startswith("s3://") else {}
                storage = self._roots[root] = Storage(root, options)
        return storage, name

    def renew(self) -> bool:
        """Ask for credentials now; return false if they do not expire, or nobody can be asked."""
        if self._renew is None:
            return False
        with self._lock:
            self._take(self._renew())
        return True

    def take(self, properties: Mapping[str, str]) -> None:
        """Use other properties from now on: those of a table that was just loaded, if its credentials expire."""
        if self._renew is not None and SESSION in properties:
            with self._lock:
                self._take(properties)

    def _take(self, properties: Mapping[str, str]) -> None:
        self._asked = self._env.elapsed()
        if dict(properties) != self._properties:
            self._properties = dict(properties)
            self._roots.clear()

    def _renew_if_due(self) -> None:
        if self._renew is None:
            return
        until = self._properties.get(_SESSION_EXPIRES, "")
        if until.isdecimal():
            due = self._env.now() > int(until) / 1000 - _AHEAD_SECONDS
        else:
            due = self._env.elapsed() - self._asked > _RENEW_SECONDS
        if due:
            self._take(self._renew())

    def folder(self, uri: str) -> Storage:
        """Return the storage of what lies below a folder."""
        root, name = split_uri(uri)
        storage, _ = self.place_of(uri)
        return storage.elsewhere(f"/{name}" if root == "file:///" else f"{root}/{name}")

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            self._renew_if_due()
            return (type(self), (self._properties,))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def split_uri(uri: str) -> tuple[str, str]:
    """Return the root of a file's storage (`s3://bucket`, `file:///`) and its name below the root.

    A path without a scheme is one of this machine. Names are taken as written, as by PyIceberg and Hadoop: `%2F` in the
    folder of a partition is no slash.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        path = uri.removeprefix("file:") if uri.startswith("file:/") else uri
        return "file:///", path.lstrip("/")
    scheme, host, name = found[1].lower(), found[2], found[3]
    if scheme in _S3_SCHEMES:
        return f"s3://{host}", name
    if scheme == "file":
        return "file:///", name
    return f"{scheme}://{host}", name


def s3_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of the storage from properties of the FileIO.

    Raises:
        InvalidOptionError: requests are to be signed remotely: that works for whole files only.
    """
    signer = properties.get("s3.signer")
    remote = properties.get("s3.remote-signing-enabled", "").lower() in _TRUE
    if signer or remote:
        msg = (
            "the catalog signs requests to S3 remotely (s3.signer), which tblctl does not support: ask it for vended "
            "credentials (header.X-Iceberg-Access-Delegation=vended-credentials), or give keys of your own"
        )
        raise InvalidOptionError(msg)
    found: dict[str, Any] = {
        name: value for name, keys in _CREDENTIALS.items() if (value := _first(properties, keys))
    }
    client = {name: value for name, keys in _CLIENT.items() if (value := _first(properties, keys))}
    endpoint = client.pop("endpoint_url", None)
    if endpoint:
        found["endpoint_url"] = endpoint
    if client:
        found["client_kwargs"] = client
    config: dict[str, Any] = {}
    if proxy := properties.get("s3.proxy-uri"):
        config["proxies"] = {"http": proxy, "https": proxy}
    if properties.get("s3.force-virtual-addressing", "").lower() in _TRUE:
        config["s3"] = {"addressing_style": "virtual"}
    for name, key in (("connect_timeout", "s3.connect-timeout"), ("read_timeout", "s3.request-timeout")):
        if seconds := properties.get(key):
            config[name] = float(seconds)
    if config:
        found["config_kwargs"] = config
    if properties.get("s3.anonymous", "").lower() in _TRUE:
        found["anon"] = True
    encryption = {
        name: properties[key]
        for name, key in (
            ("ServerSideEncryption", "s3.server-side-encryption"),
            ("SSEKMSKeyId", "s3.sse-kms-key-id"),
        )
        if key in properties
    }
    if encryption:
        found["s3_additional_kwargs"] = encryption
    return found


def _first(properties: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    return next((properties[key] for key in keys if properties.get(key)), None)
