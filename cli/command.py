"""The base of all commands: common options, help with examples, errors as one message, exit codes.

Exit codes: 0 done, 1 the operation failed, 2 wrong usage (the words of the command are at fault), 130 interrupted,
143 terminated. `recluster --watch` ends with 0 in the latter two cases: it is meant to be ended so.
"""

from __future__ import annotations

import difflib
import logging
import os
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from tblctl import errors
from tblctl.cli.arguments import params
from tblctl.cli.show.flags import in_flags
from tblctl.cli.show.render import printable
from tblctl.local_file import is_full

DONE = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
TERMINATED = 143

# Errors in the words of the command. A mismatch with the data or with the table's state is a failed operation.
WORDING_ERRORS = (
    errors.InvalidKeyError,
    errors.InvalidOptionError,
    errors.InvalidPredicateError,
    errors.InvalidSchemaError,
    errors.InvalidStatementError,
)


def exit_code(error: errors.TblctlError) -> int:
    """Return 2 if the words of the command are wrong, else 1."""
    if isinstance(error, WORDING_ERRORS) and not isinstance(error, errors.SchemaMismatchError):
        return WRONG_USAGE
    return FAILED


class Command(click.Command):
    """A command with the common options, an example, and the shape of its JSON in its help."""

    def __init__(self, *, example: str, json_shape: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.example = example
        self.json_shape = json_shape
        self.more_help: Callable[[], str] | None = None
        self.params += params.common_options()

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.obj is not None:  # the process is the command's alone, see `cli/main.py`
            ctx.obj()
        try:
            return super().invoke(ctx)
        except (
            errors.InvalidOptionError,
            errors.EngineError,
        ) as error:  # others tell of data, which has names too
            error.message = in_flags(error.message)
            raise
        except errors.InvalidKeyError as error:
            if option := error.details.get("option"):
                error.message = error.message.replace(option, f"--{option.replace('_', '-')}", 1)
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        if self.more_help is not None:
            write_block(formatter, "Settings", self.more_help())
        write_block(formatter, "With --json, standard output is one", self.json_shape)
        write_block(formatter, "Example", self.example)


class Application(click.Group):
    """The group: suggests commands for misspelt ones, and turns every error into one message and an exit code."""

    def __init__(self, *, example: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.example = example
        self.params += [params.version_option(), params.debug_option()]

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

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        write_block(formatter, "Example", self.example)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **settings: Any) -> NoReturn:
        """Run `args` (default: those of this process) and exit with the outcome's code."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words
        if debug:
            log_to_stderr()
        settings = {"prog_name": "tblctl", **settings, "standalone_mode": False}
        sys.exit(guarded(lambda: super(Application, self).main(words, *rest, **settings), debug=debug))


def write_block(formatter: click.HelpFormatter, title: str, text: str) -> None:
    """Write `text` as it is, not wrapped, under a heading."""
    with formatter.section(title):
        formatter.write(textwrap.indent(textwrap.dedent(text).strip("\n"), "  ") + "\n")


def command(
    name: str, *, example: str, json_shape: str, kind: type[Command] = Command
) -> Callable[[Callable[..., None]], Command]:
    """Make a function a command; its docstring is the help. `json_shape` begins with `object` or `list`."""

    def wrap(function: Callable[..., None]) -> Command:
        made: Command = click.command(name, cls=kind, example=example, json_shape=json_shape)(function)
        return made

    return wrap


def guarded(work: Callable[[], Any], *, debug: bool) -> int:
    """Do `work`, report errors on stderr, and return the exit code."""
    try:
        result = work()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`). Python flushes again at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Terminated as error:
        say(with_notes("tblctl: terminated", error))
        return TERMINATED
    except (KeyboardInterrupt, click.Abort) as error:
        say(with_notes("tblctl: interrupted", error.__cause__ or error))  # click makes an interrupt the cause
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        return WRONG_USAGE
    except click.UsageError as error:
        help_command = f"{error.ctx.command_path} --help" if error.ctx else "tblctl --help"
        say(f"tblctl: error: {error.format_message()}\nsee: {help_command}")
        return WRONG_USAGE
    except click.ClickException as error:
        say(f"tblctl: error: {error.format_message()}")
        return FAILED
    except errors.TblctlError as error:
        say_traceback(debug=debug)
        say(with_notes(f"tblctl: error: {error}", error))
        return exit_code(error)
    except Exception as error:  # noqa: BLE001 (the last resort: users see a traceback only on request)
        say_traceback(debug=debug)
        if is_full(error):  # storage and files have errors of their own
            say(f"tblctl: error: {what_is_full(error)}")
            return FAILED
        hint = "" if debug else "; add --debug for the traceback"
        say(f"tblctl: error: {errors.problem_of(error)}{hint}")
        return FAILED
    return result if isinstance(result, int) else DONE


def what_is_full(error: Exception) -> str:
    """Return what found no space: the file that the error names, or standard output if what writes there failed."""
    name = getattr(error, "filename", None)
    if name is not None:
        return f"{os.fsdecode(name)} cannot be written: {error}; free space there"
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    if modules[-1] == __name__ or any(module.startswith(_WRITE_OUTPUT) for module in modules):
        return f"standard output cannot be written: {error}; free space where it goes"
    return f"no space left for a file: {error}; free space, also where temporary files go"


_WRITE_OUTPUT = ("click.utils", "tblctl.cli.show.")
"""Modules that write to standard output. Where they write files, they name these in errors of their own."""


class Terminated(BaseException):
    """The process got SIGTERM. It cleans up before it ends, as after an interrupt."""


def terminated(*_: object) -> None:
    """Handle SIGTERM once. Further ones are ignored, so that they do not interrupt the clean-up.

    Raises:
        Terminated: always.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def with_notes(text: str, error: BaseException) -> str:
    """Return the text followed by the error's notes, such as what was committed in spite of the error."""
    return "\n".join([text, *getattr(error, "__notes__", ())])


def say(text: str) -> None:
    """Write to stderr, with what controls a terminal escaped: names are others' data. Ignore a closed stderr."""
    try:
        click.echo("\n".join(map(printable, text.split("\n"))), err=True)
    except OSError:
        return


def say_traceback(*, debug: bool) -> None:
    """Write the traceback of the current error if the user asked for it."""
    if debug:
        say(traceback.format_exc())


class _PrintableFormatter(logging.Formatter):
    """Escapes what controls a terminal, line breaks of a message among it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        return printable(super().formatMessage(record))


def log_to_stderr() -> None:
    """Show the library's log on stderr, for `--debug`."""
    handler = logging.StreamHandler()
    handler.setFormatter(_PrintableFormatter("%(relativeCreated)7d ms %(name)s: %(message)s"))
    logger = logging.getLogger("tblctl")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
