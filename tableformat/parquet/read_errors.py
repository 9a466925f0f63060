"""Distinguish a failed storage from a damaged object if pyarrow could not read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from tblctl.tableformat.errors import CorruptTableError, TblctlError
from tblctl.tableformat.storage import Storage

ARROW_ERRORS = (ValueError, TypeError, KeyError, OSError, NotImplementedError, MemoryError, pa.ArrowException)
"""The errors that pyarrow raises for damaged bytes."""


def read_error(storage: Storage, name: str, error: Exception, *, uri: str | None = None) -> TblctlError:
    """Return the storage's own error, or else the error that the object `name` is damaged.

    A table format that knows its files by `uri` finds that in `details["name"]`.

    Arrow reports a page that it cannot decode as a plain OSError without a number. Errors of files and servers have a
    number, a class of their own, or a cause.
    """
    if isinstance(error, TblctlError):
        return error
    decoding = type(error) is OSError and error.errno is None and error.__cause__ is None
    if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and not decoding:
        return storage.explain(error, "read", name)
    return damaged(uri or f"{storage.url}: {name}", error)


def damaged(name: str, error: Exception) -> CorruptTableError:
    """Return the error that the object `name` is damaged, with the cause `error`."""
    return CorruptTableError(f"{name} is damaged: {str(error)[:300]}", name=name)


@contextmanager
def explained(storage: Storage, name: str, *, uri: str | None = None) -> Iterator[None]:
    """Turn errors of pyarrow inside into `read_error` of the object `name`."""
    try:
        yield
    except ARROW_ERRORS as error:
        raise read_error(storage, name, error, uri=uri) from error
