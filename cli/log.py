"""The library's log on standard error, as far as the user asks for it."""

from __future__ import annotations

import logging

from tblctl.cli.show.render import printable

LEVELS = ("debug", "info", "warning", "error")

_LOGGER = logging.getLogger("tblctl")


class _Formatter(logging.Formatter):
    """Escapes what controls a terminal, line breaks of a message among it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        return printable(super().formatMessage(record))


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """The handler of the command, apart from those that a program has set."""


def log_from(level: str) -> None:
    """Write what is of `level` or above to standard error."""
    as_before()
    handler = _Handler()
    handler.setFormatter(_Formatter("%(relativeCreated)7d ms %(levelname)s %(name)s: %(message)s"))
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(level.upper())


def as_before() -> None:
    """Take back what `log_from` did."""
    for handler in [item for item in _LOGGER.handlers if isinstance(item, _Handler)]:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(logging.NOTSET)
