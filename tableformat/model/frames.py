"""The index of a pandas frame: its Arrow stream leaves it out, so columns in it would be lost without a word."""

from __future__ import annotations

from typing import Any


def with_index(data: Any) -> Any:
    """Return a pandas frame with the named parts of its index as columns, before the others; anything else as it is.

    What has no name (row numbers mostly) is no column. A column of the same name goes before a part of the index.
    """
    if type(data).__module__.partition(".")[0] != "pandas" or not hasattr(data, "reset_index"):
        return data
    columns = set(getattr(data, "columns", ()))
    names = [name for name in data.index.names if name is not None and name not in columns]
    return data.reset_index(level=names) if names else data
