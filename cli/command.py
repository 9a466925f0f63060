"""The base of all commands: common options, help with examples, errors as one message, exit codes.

Exit codes: see `failures.py`. `recluster --watch` ends with 0 where others are interrupted or terminated: it is meant
to be ended so.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from tblctl import errors
from tblctl.cli import config, log
from tblctl.cli.arguments import common
from tblctl.cli.failures import DONE, NO_READER, Failure, Terminated, failure_of
from tblctl.cli.show.flags import in_flags, located
from tblctl.cli.show.render import printable

HELP = ("-h", "--help")


class _Helped(click.Command):
    """A command or group with the help options of all."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return them, whatever the context: click keeps the option that it makes for the first one."""
        del ctx
        return list(HELP)


class Command(_Helped):
    """A command with the common options, an example, and the shape of its JSON in its help.

    Args:
        example: of a call.
        json_shape: what `--json` prints; empty for a command without it.
        writes: it writes files that no table has yet, so an interrupt may leave some.
        of_tables: it needs Arrow and a storage.
        settings: of click.
    """

    def __init__(
        self, *, example: str, json_shape: str, writes: bool = False, of_tables: bool = True, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.example = example
        self.json_shape = json_shape
        self.writes = writes
        self.of_tables = of_tables
        self.more_help: Callable[[], str] | None = None
        self.params += common.common_options(of_tables=of_tables, has_json=bool(json_shape))

    def invoke(self, ctx: click.Context) -> Any:
        if self.of_tables and ctx.obj is not None:  # the process is the command's alone, see `cli/main.py`
            ctx.obj()
        try:
            if self.of_tables:
                config.add_to(ctx.params)
            return super().invoke(ctx)
        except (KeyboardInterrupt, Terminated) as error:
            if self.writes:
                error.add_note(what_is_left(ctx))
            raise
        except (
            errors.InvalidOptionError,
            errors.EngineError,
        ) as error:  # others tell of data, which has names too
            error.message = in_flags(error.message)
            raise
        except errors.InvalidKeyError as error:
            error.message = located(error.message)
            if option := error.details.get("option"):
                error.message = error.message.replace(option, f"--{option.replace('_', '-')}", 1)
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        if self.more_help is not None:
            write_block(formatter, "Settings", self.more_help())
        if self.json_shape:
            write_block(formatter, "With --json, standard output is one", self.json_shape)
        write_block(formatter, "Example", self.example)


class Application(_Helped, click.Group):
    """The group: suggests commands for misspelt ones, and turns every error into one message and an exit code."""

    def __init__(self, *, example: str, **settings: Any) -> None:
        super().__init__(context_settings={"help_option_names": list(HELP)}, **settings)
        self.example = example
        self.params += [common.version_option(), *common.shared_options()]

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.commands, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the group. Settings of the user are the defaults of options."""
        profile = config.read_profile(args, os.environ)
        extra = {"default_map": profile.defaults(tuple(self.commands)), **extra}
        ctx = super().make_context(info_name, args, parent, **extra)
        config.remember(ctx, profile)
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # click would write an empty line first
            raise click.Abort from error
        except BrokenPipeError:  # click would exit with 1
            ctx.exit(NO_READER)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        write_block(formatter, "Example", self.example)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **settings: Any) -> NoReturn:
        """Run `args` (default: those of this process) and exit with the outcome's code."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words
        settings = {"prog_name": "tblctl", **settings, "standalone_mode": False}
        try:
            if debug:
                log.log_from("debug")
            run = super().main
            sys.exit(guarded(lambda: run(words, *rest, **settings), debug=debug, as_json="--json" in words))
        finally:
            log.as_before()


def what_is_left(ctx: click.Context) -> str:
    """Return where to look after a command that writes was stopped."""
    location = shlex.quote(str(ctx.params.get("location") or (*ctx.params.get("locations", ()), "LOC")[0]))
    return (
        f"`tblctl history {location}` lists what is committed; files of what is not were deleted, or are left for "
        f"`tblctl gc {location}`"
    )


def write_block(formatter: click.HelpFormatter, title: str, text: str) -> None:
    """Write `text` as it is, not wrapped, under a heading."""
    with formatter.section(title):
        formatter.write(textwrap.indent(textwrap.dedent(text).strip("\n"), "  ") + "\n")


def command(
    name: str, *, example: str, json_shape: str, kind: type[Command] = Command, **settings: bool
) -> Callable[[Callable[..., None]], Command]:
    """Make a function a command; its docstring is the help. `json_shape` begins with `object` or `list`.

    `settings`: the other arguments of `Command`.
    """

    def wrap(function: Callable[..., None]) -> Command:
        made: Command = click.command(name, cls=kind, example=example, json_shape=json_shape, **settings)(
            function
        )
        return made

    return wrap


def guarded(work: Callable[[], Any], *, debug: bool, as_json: bool = False) -> int:
    """Do `work`, report errors on stderr, and return the exit code."""
    try:
        result = work()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`). Python flushes again at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except (Exception, KeyboardInterrupt, Terminated) as error:  # noqa: BLE001 (the last resort)
        found = failure_of(error, debug=debug)
        if (
            debug
            and isinstance(error, Exception)
            and not isinstance(error, click.ClickException | click.Abort)
        ):
            say(traceback.format_exc())
        report(found, as_json=as_json)
        return found.exit_code
    return result if isinstance(result, int) else DONE


def report(found: Failure, *, as_json: bool) -> None:
    """Write a failure to stderr. In JSON each is one line."""
    say(found.json() if as_json else found.text())


def terminated(*_: object) -> None:
    """Handle SIGTERM once. Further ones are ignored, so that they do not interrupt the clean-up.

    Raises:
        Terminated: always.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def interrupted(*_: object) -> None:
    """Handle SIGINT: say at once that it was heard, since cleaning up may take a while.

    Raises:
        KeyboardInterrupt: always.
    """
    with contextlib.suppress(OSError):
        os.write(_STDERR, b"tblctl: stopping ...\n")  # no buffer, which the signal may have interrupted
    raise KeyboardInterrupt


_STDERR = 2


def with_notes(text: str, error: BaseException) -> str:
    """Return the text followed by the error's notes, such as what was committed in spite of the error."""
    return "\n".join([text, *getattr(error, "__notes__", ())])


def say(text: str) -> None:
    """Write to stderr, with what controls a terminal escaped: names are others' data. Ignore a closed stderr."""
    try:
        click.echo("\n".join(map(printable, text.split("\n"))), err=True)
    except OSError:
        return
