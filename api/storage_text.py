"""Storage options written as text, by the command line and by Spark: what fsspec takes of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tblctl.tableformat.errors import InvalidOptionError


def read_storage_options(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return what fsspec takes.

    `a.b` nests, `true` and `false` are booleans, and what starts with `{` or `[` is JSON. Everything else stays
    text: a secret may well be made of digits only.

    Raises:
        InvalidOptionError: a key nests into another's value, or a value is not JSON. It shows no value.
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
        except ValueError as error:
            raise InvalidOptionError(f"the value of {key!r} is not JSON: {error}") from error
    return text
