"""Catalogs: PyIceberg's, from its own configuration, and their errors as tblctl's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from tblctl.tableformat.errors import (
    AccessDeniedError,
    CorruptTableError,
    InvalidOptionError,
    StorageError,
    TableNotFoundError,
    TblctlError,
)
from tblctl.tableformat.iceberg.location import IcebergLocation
from tblctl.tableformat.iceberg.metadata_files import is_denied
from tblctl.tableformat.storage.location import scrub, secrets_in, secrets_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


def open_catalog(name: str, options: Mapping[str, str]) -> Catalog:
    """Return the catalog of a name: PyIceberg's configuration of it, with some options changed.

    Raises:
        InvalidOptionError: it is not configured, or a library for it is not installed.
        StorageError, AccessDeniedError: it cannot be reached, or refuses.
    """
    from pyiceberg.catalog import list_catalogs, load_catalog

    with catalog_errors(f"catalog {name}", options):
        try:
            return load_catalog(name, **options)
        except (ValueError, KeyError) as error:
            known = ", ".join(sorted(list_catalogs())) or "none"
            msg = (
                f"catalog {name!r} cannot be opened: {_brief(error, options)}. Configured catalogs: {known}. Name it "
                f"in .pyiceberg.yaml, set PYICEBERG_CATALOG__{name.upper()}__URI, or give --catalog-option uri=..."
            )
            raise InvalidOptionError(msg) from None  # PyIceberg repeats all properties, secrets among them


class TableLoader:
    """Loads a table as it is now. Pickles, secrets included; threads may share one."""

    def __init__(
        self, location: IcebergLocation, options: Mapping[str, str], catalog: Catalog | None = None
    ) -> None:
        self.location = location
        self._options = dict(options)
        self._catalog = catalog
        self._lock = Lock()

    def __call__(self) -> Table:
        """Return the table.

        Raises:
            TableNotFoundError: there is no such table or namespace.
            StorageError, AccessDeniedError: the catalog cannot be reached, or refuses.
        """
        with self._lock:
            self._catalog = self._catalog or open_catalog(self.location.catalog, self._options)
        with catalog_errors(str(self.location), self._options):
            return self._catalog.load_table(self.location.table)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.location, self._options))


def find_tables(catalog: Catalog, name: str, namespace: Sequence[str]) -> list[IcebergLocation]:
    """Return all tables of a catalog, or of a namespace and those below it, sorted.

    Raises:
        TableNotFoundError: there is no such namespace.
    """
    where = f"catalog {name}" if not namespace else f"namespace {'.'.join(namespace)} of catalog {name}"
    with catalog_errors(where, catalog.properties):
        waiting = [tuple(namespace)] if namespace else list(catalog.list_namespaces())
        found: list[IcebergLocation] = []
        while waiting:
            space = waiting.pop()
            found += [IcebergLocation(catalog=name, table=tuple(names)) for names in catalog.list_tables(space)]
            waiting += _below(catalog, space)
        return sorted(found, key=str)


def _below(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the namespaces below one. Some catalogs list the namespace itself, or only have one level."""
    try:
        inner = [tuple(names) for names in catalog.list_namespaces(namespace)]
    except (NotImplementedError, ValueError):
        return []
    return [names for names in inner if len(names) > len(namespace) and names[: len(namespace)] == namespace]


@contextmanager
def catalog_errors(what: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn errors of PyIceberg, and of the libraries below it, into tblctl's.

    Args:
        what: named in them.
        options: of the catalog. Values that may be secrets are not shown.
    """
    from pyiceberg import exceptions

    try:
        yield
    except TblctlError:
        raise
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError, exceptions.NoSuchIdentifierError) as error:
        msg = f"there is no table at {what}: {_brief(error, options)}; `tblctl info --all iceberg://CATALOG` lists tables"
        raise TableNotFoundError(msg) from error
    except (exceptions.UnauthorizedError, exceptions.ForbiddenError, exceptions.OAuthError) as error:
        msg = f"{what}: access is denied: {_brief(error, options)}; check the credentials of the catalog and of its storage"
        raise AccessDeniedError(msg) from error
    except (exceptions.NotInstalledError, ImportError) as error:
        msg = f"{what}: {_brief(error, options)}; a library is missing: pip install 'tblctl[iceberg]'"
        raise InvalidOptionError(msg) from error
    except exceptions.ResolveError as error:
        msg = f"{what}: its metadata does not follow the specification: {_brief(error, options)}"
        raise CorruptTableError(msg, name=what) from error
    except (OSError, exceptions.RESTError) as error:
        if is_denied(error):
            msg = f"{what}: access is denied: {_brief(error, options)}; check the credentials of its storage"
            raise AccessDeniedError(msg) from error
        raise StorageError(f"{what} cannot be read: {_brief(error, options)}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] in _BELOW:
            raise StorageError(f"{what} cannot be read: {_brief(error, options)}") from error
        raise


_BELOW = frozenset({"sqlalchemy", "requests", "botocore", "thrift", "pyiceberg", "urllib3", "google"})
"""Libraries that catalogs rest on. Their errors share no class."""


def _brief(error: BaseException, options: Mapping[str, str]) -> str:
    """Return an error's text in one line, without secrets."""
    hidden = [secret for value in options.values() for secret in secrets_of(str(value))]
    text = scrub(str(error) or type(error).__name__, [*secrets_in(options), *hidden])
    return " ".join(text.split())[:400]
