"""Storage options as text: parsed into those of fsspec, and shown without secrets. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tblctl.tableformat.errors import InvalidOptionError


def read_storage_options(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return the options for fsspec.

    `a.b` nests, `true` and `false` are booleans, and text that starts with `{` or `[` is JSON. Everything else stays
    text, since a secret may consist of digits only.

    Raises:
        InvalidOptionError: a key nests into another's value, or a value is not JSON. The message shows no value.
    """
    options: dict[str, Any] = {}
    for key, text in pairs.items():
        *outer, last = key.split(".")
        target = options
        for name in outer:
            target = target.setdefault(name, {})
            if not isinstance(target, dict):
                raise InvalidOptionError(f"{key!r} nests into {name!r}, which has a value of its own")
        target[last] = _value(key, text)
    return options


def _value(key: str, text: str) -> Any:
    if text in {"true", "false"}:
        return text == "true"
    if text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidOptionError(f"the value of {key!r} is not JSON: {error}") from error
    return text


def is_secret_option(name: str) -> bool:
    """Return whether an option's value may be a secret, by its name."""
    from tblctl.tableformat.storage import location  # it loads fsspec

    return location.is_secret_option(name)


def has_secret_part(value: str) -> bool:
    """Return whether an option's value, whatever its name, is a connection string with a key or a signature."""
    from tblctl.tableformat.storage import location

    return location.has_secret_part(value)


def scheme_of(url: str) -> str:
    """Return the scheme of a URL by the one name that stands for all of its names; "file" for a path."""
    from tblctl.tableformat.storage import identity

    return identity.scheme_of(url)


def without_credentials(text: str) -> str:
    """Return a text without the credentials of URLs in it."""
    from tblctl.tableformat.storage import location

    return location.without_credentials(text)
