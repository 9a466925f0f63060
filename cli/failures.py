"""What went wrong, as a value: for people a message, for programs JSON, and the exit code of both.

Exit codes: 0 done, 1 the operation failed, 2 wrong usage (the words of the command are at fault), 130 interrupted,
141 nobody reads the output any more (as of a process that SIGPIPE ends), 143 terminated.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from tblctl import errors
from tblctl.cli.show.render import json_text
from tblctl.local_file import is_full

DONE = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
NO_READER = 141
TERMINATED = 143

# Errors in the words of the command. A mismatch with the data or with the table's state is a failed operation.
WORDING_ERRORS = (
    errors.InvalidKeyError,
    errors.InvalidOptionError,
    errors.InvalidPredicateError,
    errors.InvalidSchemaError,
    errors.InvalidStatementError,
)


class Terminated(BaseException):
    """The process got SIGTERM. It cleans up before it ends, as after an interrupt."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a command did not do what it was told.

    Attributes:
        exit_code: of the process.
        code: what went wrong, in a word that programs can test.
        message: the same for people.
        details: values for programs.
        notes: lines that follow the message, such as what was committed all the same.
        hint: where people read on; programs need no hint.
        intro: what stands before the message for people.
    """

    exit_code: int
    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    hint: str = ""
    intro: str = "tblctl: error: "

    def text(self) -> str:
        """Return it for people."""
        return "\n".join(filter(None, (self.intro + self.message, *self.notes, self.hint)))

    def json(self) -> str:
        """Return it as one line of JSON."""
        return json_text(
            {
                "code": self.code,
                "message": self.message,
                "details": {name: _plain(value) for name, value in self.details.items()},
                "notes": list(self.notes),
                "exit_code": self.exit_code,
            }
        )


def exit_code(error: errors.TblctlError) -> int:
    """Return 2 if the words of the command are wrong, else 1."""
    if isinstance(error, WORDING_ERRORS) and not isinstance(error, errors.SchemaMismatchError):
        return WRONG_USAGE
    return FAILED


def failure_of(error: BaseException, *, debug: bool) -> Failure:
    """Return what an error of a command means. With `debug` the traceback is shown already."""
    ended = _ended(error)
    if ended is not None:
        return ended
    notes = tuple(getattr(error, "__notes__", ()))
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return Failure(exit_code=WRONG_USAGE, code="usage", message=error.format_message(), intro="")
    if isinstance(error, click.UsageError):
        command = f"{error.ctx.command_path} --help" if error.ctx else "tblctl --help"
        message = error.format_message().replace("\n\t", " ")  # click puts each choice on a line
        return Failure(exit_code=WRONG_USAGE, code="usage", message=message, hint=f"see: {command}")
    if isinstance(error, click.ClickException):
        return Failure(exit_code=FAILED, code="failed", message=error.format_message())
    if isinstance(error, errors.TblctlError):
        return Failure(
            exit_code=exit_code(error),
            code=code_of(type(error)),
            message=str(error),
            details=error.details,
            notes=notes,
        )
    assert isinstance(error, Exception)
    if is_full(error):  # storage and files have errors of their own
        return Failure(exit_code=FAILED, code="no_space", message=what_is_full(error))
    hint = "" if debug else "; add --debug for the traceback"
    return Failure(exit_code=FAILED, code="bug", message=errors.problem_of(error) + hint)


def _ended(error: BaseException) -> Failure | None:
    """Return what somebody's wish to end the command means; None for other errors."""
    cause: BaseException | None = error
    if isinstance(error, Terminated):
        code, word = TERMINATED, "terminated"
    elif isinstance(error, KeyboardInterrupt | click.Abort):
        code, word, cause = INTERRUPTED, "interrupted", error.__cause__ or error  # click makes it the cause
    else:
        return None
    notes = tuple(getattr(cause, "__notes__", ()))
    return Failure(exit_code=code, code=word, message=word, notes=notes, intro="tblctl: ")


def code_of(kind: type[errors.TblctlError]) -> str:
    """Return the code of a class of errors: `table_not_found` of `TableNotFoundError`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).lower()


def what_is_full(error: Exception) -> str:
    """Return what found no space: the file that the error names, or standard output if what writes there failed."""
    name = getattr(error, "filename", None)
    if name is not None:
        return f"{os.fsdecode(name)} cannot be written: {error}; free space there"
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    if modules[-1] == _FLUSHES or any(module.startswith(_WRITE_OUTPUT) for module in modules):
        return f"standard output cannot be written: {error}; free space where it goes"
    return f"no space left for a file: {error}; free space, also where temporary files go"


_FLUSHES = "tblctl.cli.command"
_WRITE_OUTPUT = ("click.utils", "tblctl.cli.show.")
"""Modules that write to standard output. Where they write files, they name these in errors of their own."""


def _plain(value: Any) -> Any:
    """Return a detail as JSON values; what JSON lacks becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return str(value)
