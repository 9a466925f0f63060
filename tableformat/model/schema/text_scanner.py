"""Reads one text from left to right: the base of the parsers for types and key terms."""

from __future__ import annotations

import re

from tblctl.tableformat.errors import InputError

_SHOWN_CHARS = 200
_BARE_NAME = re.compile(r"[^\W\d]\w*")
_QUOTED_NAME = re.compile(r'"(?:[^"]|"")*"')
_NUMBER = re.compile(r"-?\d{1,10}")
_BLANK = re.compile(r"\s*")


def quote_name(name: str) -> str:
    """Return a column's name as the parsers read it: bare if possible, else in double quotes."""
    return name if _BARE_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


class TextScanner:
    """Is at `offset` of `text`, always past blanks. Errors are of type `kind` and have a `position`."""

    def __init__(self, text: str, kind: type[InputError]) -> None:
        self.text = text
        self.offset = 0
        self._kind = kind
        self._skip_blanks()

    def at_end(self) -> bool:
        """Return whether nothing is left."""
        return self.offset >= len(self.text)

    def end(self) -> None:
        """Raise unless nothing is left."""
        if not self.at_end():
            raise self.error("expected nothing more")

    def at(self, mark: str) -> bool:
        """Return whether `mark` comes next."""
        return self.text.startswith(mark, self.offset)

    def take(self, mark: str) -> bool:
        """Step over `mark` if it comes next."""
        if not self.at(mark):
            return False
        self.offset += len(mark)
        self._skip_blanks()
        return True

    def expect(self, mark: str) -> None:
        """Step over `mark`, or raise."""
        if not self.take(mark):
            raise self.error(f"expected {mark}")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Step over the pattern's match here and return it, else None."""
        found = pattern.match(self.text, self.offset)
        if found is None:
            return None
        self.offset = found.end()
        self._skip_blanks()
        return found.group()

    def bare_name(self) -> str | None:
        """Step over an unquoted name."""
        return self.match(_BARE_NAME)

    def word(self, word: str) -> bool:
        """Step over `word`, in upper or lower case, if it comes next."""
        start = self.offset
        found = self.bare_name()
        if found is not None and found.lower() == word:
            return True
        self.offset = start
        return False

    def name(self) -> str:
        """Step over a name, bare or in double quotes, or raise."""
        start = self.offset
        if not self.at('"'):
            name = self.bare_name()
            if name is None:
                raise self.error("expected a column's name")
            return name
        found = self.match(_QUOTED_NAME)
        if found is None:
            raise self.error("this quote is never closed", start)
        return found[1:-1].replace('""', '"')

    def number(self, least: int, most: int) -> int:
        """Step over a whole number within bounds, or raise."""
        start = self.offset
        digits = self.match(_NUMBER)
        if digits is None or not least <= int(digits) <= most:
            raise self.error(f"expected a whole number from {least} to {most}", start)
        return int(digits)

    def error(self, problem: str, offset: int | None = None) -> InputError:
        """Return the error for a problem here, or at `offset`."""
        position = self.offset if offset is None else offset
        found = repr(self.text[position : position + 20]) if position < len(self.text) else "the end"
        text = self.text if len(self.text) <= _SHOWN_CHARS else self.text[:_SHOWN_CHARS] + "..."
        message = f"{problem} at position {position}, found {found}, in {text!r}"
        return self._kind(message, position=position)

    def _skip_blanks(self) -> None:
        blank = _BLANK.match(self.text, self.offset)
        assert blank is not None  # the pattern matches the empty text
        self.offset = blank.end()
