"""How a file's end is verified before it is parsed."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_BYTES = 12
"""The magic, the footer's length, and some footer."""


@dataclass(frozen=True, kw_only=True)
class Seal:
    """Size and checksum of a Parquet file's end, stored outside the file: all bytes after its last column chunk.

    Attributes:
        footer_bytes: the number of these bytes.
        footer_checksum: their XXH3-64.
    """

    footer_bytes: int
    footer_checksum: int

    def __post_init__(self) -> None:
        if self.footer_bytes < _LEAST_BYTES or not 0 <= self.footer_checksum < 1 << 64:
            msg = f"a footer of {self.footer_bytes} bytes with the checksum {self.footer_checksum}"
            raise ValueError(msg)

    @classmethod
    def of(cls, footer_bytes: int | None, footer_checksum: int | None) -> Seal | None:
        """Return the seal of these figures; None if neither is known.

        Raises:
            ValueError: one of the two is missing, or they are out of bounds.
        """
        if footer_bytes is None and footer_checksum is None:
            return None
        if footer_bytes is None or footer_checksum is None:
            msg = (
                f"footer_bytes is {footer_bytes} and footer_checksum {footer_checksum}: give both or neither"
            )
            raise ValueError(msg)
        return cls(footer_bytes=footer_bytes, footer_checksum=footer_checksum)
