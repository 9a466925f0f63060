"""The options that every command has: form of the output, colours, the log, progress."""

from __future__ import annotations

from typing import Any, NoReturn

import click
from click.core import ParameterSource

import tblctl
from tblctl.cli import log
from tblctl.cli.arguments.params import read_storage_options

QUIET = "tblctl.quiet"
_SAID = "tblctl.log"
"""Keys of a context's `meta`, which a command shares with the group above it."""

_COLORS = {"auto": None, "always": True, "never": False}


def common_options(*, of_tables: bool = True, has_json: bool = True) -> list[click.Parameter]:
    """Return the options of a command. `of_tables`: it reaches a storage."""
    return [
        *([_storage_option()] if of_tables else []),
        *([_json_option()] if has_json else []),
        *shared_options(),
    ]


def shared_options() -> list[click.Parameter]:
    """Return the options that may stand before the name of a command too."""
    return [
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=lambda ctx, _param, asked: _log_at(ctx, "--verbose", "info" if asked else None),
            help="Log what is done to standard error.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=lambda ctx, _param, asked: _be_quiet(ctx) if asked else None,
            help="Show no progress and no warnings. Errors and results are shown all the same.",
        ),
        click.Option(
            ["--log-level"],
            metavar="LEVEL",
            type=click.Choice(log.LEVELS, case_sensitive=False),
            expose_value=False,
            callback=lambda ctx, _param, level: _log_at(ctx, "--log-level", level),
            help=f"Log from this level on: {', '.join(log.LEVELS)}.",
        ),
        click.Option(
            ["--color"],
            metavar="WHEN",
            type=click.Choice(tuple(_COLORS)),
            expose_value=False,
            callback=_set_color,
            help="auto (default), always or never. auto: on a terminal, unless NO_COLOR is set.",
        ),
        click.Option(
            ["--profile"],
            metavar="NAME",
            expose_value=False,
            help="The profile of ~/.config/tblctl.toml; `tblctl config show` shows what it sets.",
        ),  # it is looked up before the words are parsed, since it gives defaults
        debug_option(),
    ]


def is_typed(name: str) -> bool:
    """Return whether an option of the running command was typed, rather than set by a profile or by default."""
    ctx = click.get_current_context(silent=True)
    return ctx is None or ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def is_quiet() -> bool:
    """Return whether the user wants to see no progress."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(QUIET))


def _be_quiet(ctx: click.Context) -> None:
    _log_at(ctx, "--quiet", "error")
    ctx.meta[QUIET] = True


def _log_at(ctx: click.Context, flag: str, level: str | None) -> None:
    """Log from a level on; None leaves the log as it is. Two different wishes contradict each other."""
    if level is None:
        return
    before = ctx.meta.get(_SAID)
    if flag == "--log-level" and ctx.get_parameter_source("log_level") is not ParameterSource.COMMANDLINE:
        if before is None:
            log.log_from(level)  # a wish of the user's settings, which a flag may overrule
        return
    if before is not None and before != (flag, level):
        _refuse(ctx, f"{before[0]} and {flag} exclude each other")
    ctx.meta[_SAID] = (flag, level)
    log.log_from(level)


def _refuse(ctx: click.Context, problem: str) -> NoReturn:
    raise click.UsageError(problem, ctx)


def _set_color(ctx: click.Context, _param: click.Parameter, word: str | None) -> None:
    if word is not None:
        ctx.color = _COLORS[word]


def _storage_option() -> click.Option:
    return click.Option(
        ["--storage-option", "storage_options"],
        metavar="KEY=VALUE",
        multiple=True,
        callback=lambda _ctx, _param, pairs: read_storage_options(pairs),
        help="An option of the storage's fsspec driver, such as endpoint_url=http://127.0.0.1:9000; a dot nests: "
        "client_kwargs.region_name=eu-west-1. Repeatable.",
    )


def _json_option() -> click.Option:
    return click.Option(
        ["--json", "as_json"],
        is_flag=True,
        help="Print JSON, and nothing else, on standard output; an error is JSON on standard error.",
    )


def debug_option() -> click.Option:
    """Return `--debug`. It is looked up before the words are parsed, since parsing may fail too."""
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        help="Log each step to standard error, and show the traceback of an error.",
    )


def version_option() -> click.Option:
    """Return `--version`."""

    def show(ctx: click.Context, _param: click.Parameter, asked: Any) -> None:
        if asked:
            click.echo(f"tblctl {tblctl.__version__}")
            ctx.exit()

    return click.Option(
        [
            "--version",
            "show_version",
        ],  # (a command is named version: click keeps defaults of both in one map)
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Print the version; `tblctl version` prints more.",
    )
