"""The library's texts in the words of the command: it names arguments of Python, for which people type flags."""

from __future__ import annotations

import re
import shlex

import click


def in_flags(text: str) -> str:
    """Return a text with the flags of the running command in place of the names of their arguments, and with its table.

    `max_bytes` becomes `--max-bytes`. A name that is a plain word, such as `days`, is replaced only where a problem
    begins with it. What is quoted, or a part of a path, stays: it is data.
    """
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return text
    text = located(text)
    flags = _flags(ctx)
    compound = [name for name in flags if "_" in name]
    words = [name for name in flags if "_" not in name]
    for names, begins, ends in ((compound, _APART, _ENDS), (words, _BEGINS, _JUDGED)):
        if names:
            either = "|".join(map(re.escape, names))
            text = re.sub(f"{begins}({either}){ends}", lambda found: flags[found.group(1)], text)
    return text


def located(text: str) -> str:
    """Return a text with the table of the running command in place of LOC in commands to type next.

    Such a command stands between backticks: `tblctl recluster LOC --final`. With no table, or several, LOC stays.
    """
    found = _LOC.search(text)
    place = None if found is None else _location()
    return text if place is None else _LOC.sub(lambda match: match[1] + place, text)


def _location() -> str | None:
    """Return the one table that the running command names, as a word for a shell and without secrets."""
    ctx = click.get_current_context(silent=True)
    given = () if ctx is None else (ctx.params.get("location"), *(ctx.params.get("locations") or ()))
    places = [item for item in given if item]
    if len(places) != 1:
        return None
    from tblctl.warehouse import shown

    return shlex.quote(shown(places[0]))


_LOC = re.compile(r"(`tblctl [a-z]+ )LOC\b")


def _flags(ctx: click.Context) -> dict[str, str]:
    """Return the flags of a command by the names of their arguments: found once, since a plan may have many texts."""
    found = ctx.meta.get(_KEPT)
    if found is None or found[0] is not ctx.command:
        flags = {
            str(param.name): param.opts[0]
            for param in ctx.command.get_params(ctx)
            if isinstance(param, click.Option) and param.opts[0].startswith("--")
        }
        found = ctx.meta[_KEPT] = (ctx.command, flags)
    return found[1]


_KEPT = f"{__name__}.flags"
_APART, _ENDS = r"""(?<![\w/.'"`-])""", r"""(?![\w/'"`=-]|\.\w)"""
_BEGINS, _JUDGED = r"(?:(?<=; )|^)", r"(?= is |: expected )"
