"""Text on terminals and in pipes that cannot show all of it, such as those of latin-1."""

from __future__ import annotations

import codecs
import json
from typing import TextIO

_ALIKE = str.maketrans("█▁▂▃▄▅▆▇…·≤", "#_.,-=+*~.<")
"""What stands for the marks of our own: one character each, so that tables stay aligned."""


def write_any_text(stream: TextIO | None) -> None:
    r"""Let a stream write what its encoding lacks as `\uXXXX`, which is valid in JSON too, and our marks as others."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:  # a program may have put something else there
        reconfigure(errors=_NAME)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Handle an error of `codecs`: return what stands for the characters, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_plain(character) for character in text), error.end


def _plain(character: str) -> str:
    alike = character.translate(_ALIKE)
    return alike if alike != character else json.dumps(character)[1:-1]


_NAME = "tblctl.escaped"
codecs.register_error(_NAME, _escaped)
