"""JSON objects that end with a checksum of all their bytes before it.

    {"format_version":1,...,"checksum":"0123456789abcdef"}

The checksum has a fixed place, so it is verified before anything is parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tblctl.tableformat.parquet.checksum import checksum_text

_CHECKSUM = re.compile(rb',"checksum":"([0-9a-f]{16})"\}\Z')
_CHECKSUM_BYTES = 31


def with_checksum(document: Mapping[str, Any]) -> bytes:
    """Return the object's content."""
    body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()[:-1]
    return body + f',"checksum":"{checksum_text(body)}"}}'.encode()


def has_checksum(data: bytes) -> bool:
    """Return whether `data` ends with a correct checksum; False if it ends without one.

    Raises:
        ValueError: the checksum is wrong.
    """
    found = _CHECKSUM.search(data, max(0, len(data) - _CHECKSUM_BYTES))
    if found is None:
        return False
    if found.group(1).decode() != checksum_text(data[: found.start()]):
        msg = "its bytes do not match the checksum at its end"
        raise ValueError(msg)
    return True
