"""Every error that tblctl raises, grouped by what the caller does next.

    TblctlError
    ├── InputError                 fix the input (exit 2 if the command line is wrong, else 1)
    ├── StorageError               retry, or repair the storage: nothing was changed
    ├── EngineError                repair Spark, or merge with the local engine: nothing was changed
    ├── ConflictError              plan again from the newest snapshot
    ├── CommitOutcomeUnknownError  look before trying again: the commit may or may not have happened
    ├── CorruptTableError          the data is damaged: nothing was deleted
    └── InternalError              a bug in tblctl

Messages name the object, what was expected and what to do. Instances pickle with their details, since Spark ships
them between processes.
"""

from __future__ import annotations

from typing import Any


class TblctlError(Exception):
    """Base of all errors. `details` holds values for programs (never secrets)."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.details))

    def __str__(self) -> str:
        return self.message


def problem_of(error: Exception) -> str:
    """Return an error as people are told of it: any but our own is a bug here."""
    if isinstance(error, TblctlError):
        return str(error)
    return f"a bug in tblctl, please report it: {type(error).__name__}: {error}"


def _rebuild(kind: type[TblctlError], message: str, details: dict[str, Any]) -> TblctlError:
    return kind(message, **details)


class InputError(TblctlError):
    """The caller's input is at fault; the same call will fail again."""


class InvalidOptionError(InputError):
    """An option's name or value is wrong; the message lists every problem at once."""


class InvalidSchemaError(InputError):
    """A schema, or a change of one, is not possible; the message lists every problem at once."""


class UnsupportedTypeError(InvalidSchemaError):
    """A column's type cannot be stored."""


class UnknownColumnError(InvalidSchemaError):
    """A name that no column has."""


class SchemaMismatchError(InvalidSchemaError):
    """Data does not fit the table's schema; `details["differences"]` lists every difference."""


class InvalidKeyError(InputError):
    """A cluster key's term is wrong, or its column has no order."""


class InvalidPredicateError(InputError):
    """A condition cannot be understood; `details["position"]` is the 0-based offset in the text, if known."""


class InvalidStatementError(InputError):
    """A statement cannot be understood; `details["position"]` is the 0-based offset in the text."""


class InvalidDataError(InputError):
    """Input data is unreadable or breaks a rule of the schema, such as a null in a non-nullable column."""


class TableNotFoundError(InputError):
    """There is no table at the location."""


class TableExistsError(InputError):
    """The location already holds a table or other objects."""


class SnapshotNotFoundError(InputError):
    """A sequence, timestamp or tag that names no readable snapshot."""


class AccessDeniedError(InputError):
    """The storage refused the credentials, or they lack a permission."""


class UnsupportedBackendError(InputError):
    """The storage has no atomic create, so commits would not be safe there; or its driver is not installed."""


class UnsupportedFormatError(InputError):
    """The table is of another format, or of a newer format version, than this tblctl reads."""


class ClockError(InputError):
    """This machine's clock and the storage's differ too much; `details["skew_seconds"]`, above 0 if ours is ahead."""


class StorageError(TblctlError):
    """The storage failed: unreachable, full or broken. Nothing was changed; retrying may help."""


class ObjectNotFoundError(StorageError):
    """An object that should exist is missing."""


class EngineError(TblctlError):
    """Spark is missing, does not answer, lost a worker, or its workers lack something. Nothing was changed."""


class ConflictError(TblctlError):
    """Another writer replaced the same blocks again and again; plan again from the newest snapshot."""


class CommitOutcomeUnknownError(TblctlError):
    """The reply to a commit was lost and reading back failed; `details["commit_id"]` identifies the commit."""


class CorruptTableError(TblctlError):
    """An object of the table is damaged or breaks the format; the message names it."""


class InternalError(TblctlError):
    """A rule of tblctl's own was broken: a bug here, please report it."""
