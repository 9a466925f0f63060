"""Catalogs: PyIceberg's, from its own configuration, and their errors as tblctl's."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from tblctl.tableformat.errors import (
    AccessDeniedError,
    CorruptTableError,
    InvalidOptionError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
    TblctlError,
    UnsupportedFormatError,
)
from tblctl.tableformat.iceberg.location import IcebergLocation
from tblctl.tableformat.iceberg.metadata_files import FULL_ADVICE, is_denied, is_full
from tblctl.tableformat.iceberg.patient_catalogs import patient_catalog
from tblctl.tableformat.storage.failures import Failure, classify
from tblctl.tableformat.storage.location import scrub, secrets_in, secrets_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

LOG = logging.getLogger("tblctl")


def open_catalog(name: str, options: Mapping[str, str]) -> Catalog:
    """Return the catalog of a name: PyIceberg's configuration of it, with some options changed.

    Raises:
        InvalidOptionError: it is not configured, or a library for it is not installed.
        StorageError, AccessDeniedError: it cannot be reached, or refuses.
    """
    from pyiceberg import exceptions
    from pyiceberg.catalog import list_catalogs, load_catalog

    wrong = (ValueError, KeyError, exceptions.NoSuchPropertyException)
    properties = _configured(name, options)
    with catalog_errors(f"catalog {name}", properties):
        try:
            _require_database(name, options)
            found = {
                **options,
                _CREATES_TABLES: "false",
                _TRIES_CONNECTIONS: properties.get(_TRIES_CONNECTIONS, "true"),
            }
            return patient_catalog(name, found) or load_catalog(name, **found)
        except Exception as error:
            if not isinstance(error, wrong + _address_errors()):
                raise
            known = ", ".join(sorted(list_catalogs())) or "none"
            text = _brief(error, properties)
            why = (
                "it has no uri" if text.startswith("URI missing") else text
            )  # that goes on about options of pyiceberg's
            msg = (
                f"catalog {name!r} cannot be opened: {why}. Configured catalogs: {known}. Name "
                f"it in .pyiceberg.yaml, set PYICEBERG_CATALOG__{name.upper()}__URI, or give --catalog-option uri=..."
            )
            raise InvalidOptionError(msg) from None  # PyIceberg repeats all properties, secrets among them


_CREATES_TABLES = "init_catalog_tables"
"""PyIceberg creates the tables that it does not find in a database; who mistypes an address does not want any."""

_TRIES_CONNECTIONS = "pool_pre_ping"
"""Connections of SQL catalogs idle while files are merged, and a database that restarts then ends them."""

_SQLITE = re.compile(r"sqlite(?:\+\w+)?://(?:/([^?]*))?(?:\?.*)?")
"""The address of an SQLite database, with its file; an empty one, or none, is in memory."""


def _require_database(name: str, options: Mapping[str, str]) -> None:
    """Raise if the catalog's SQLite file is not there: to connect would create it.

    Raises:
        ValueError: it is not.
    """
    from pyiceberg.utils.config import Config

    uri = {**(Config().get_catalog_config(name) or {}), **options}.get("uri")
    found = _SQLITE.fullmatch(uri) if isinstance(uri, str) else None
    path = found[1] if found else None
    if path and not path.startswith((":memory:", "file:")) and not Path(path).exists():
        raise ValueError(f"there is no database {path}")


def _address_errors() -> tuple[type[Exception], ...]:
    """Return SQLAlchemy's errors of an address, or of a driver that is not installed, if SQLAlchemy was loaded."""
    found: Any = sys.modules.get("sqlalchemy.exc")
    return (found.ArgumentError, found.NoSuchModuleError) if found else ()


class TableLoader:
    """Loads a table as it is now. Pickles, secrets included; threads may share one."""

    def __init__(
        self, location: IcebergLocation, options: Mapping[str, str], catalog: Catalog | None = None
    ) -> None:
        self.location = location
        self._options = dict(options)
        self._catalog = catalog
        self._static: Table | None = None
        self._lock = Lock()

    @classmethod
    def of(cls, table: Table) -> TableLoader:
        """Return the loader of a table that somebody opened. One of a metadata file alone stays as it is."""
        from pyiceberg.catalog.noop import NoopCatalog

        catalog = table.catalog
        location = IcebergLocation(catalog=catalog.name, table=tuple(table.name()))
        found = cls(location, catalog.properties, catalog)
        found._static = table if isinstance(catalog, NoopCatalog) else None
        return found

    def __call__(self) -> Table:
        """Return the table.

        Raises:
            TableNotFoundError: there is no such table or namespace.
            UnsupportedFormatError: its metadata is of a newer format than PyIceberg reads.
            InvalidOptionError: a library for its storage cannot be loaded.
            CorruptTableError, ObjectNotFoundError: its metadata cannot be understood, or is missing.
            StorageError, AccessDeniedError: the catalog cannot be reached, or refuses.
        """
        if self._static is not None:
            return self._static
        with self._lock:
            self._catalog = self._catalog or open_catalog(self.location.catalog, self._options)
        with catalog_errors(str(self.location), {**self._catalog.properties, **self._options}):
            return _load(self._catalog, self.location, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._static is not None:
            return (_static_loader, (self._static.metadata_location, dict(self._static.io.properties)))
        uri = self._options.get("uri")
        found = _SQLITE.fullmatch(uri) if isinstance(uri, str) else None
        if found and (not found[1] or ":memory:" in found[1]):
            msg = f"{self.location} cannot be pickled: its catalog is in the memory of this process; use one in a file"
            raise InvalidOptionError(msg)
        return (type(self), (self.location, self._options))


def _static_loader(metadata_location: str, properties: dict[str, str]) -> TableLoader:
    from pyiceberg.table import StaticTable

    with catalog_errors(metadata_location, properties):
        return TableLoader.of(StaticTable.from_metadata(metadata_location, properties))


def _load(catalog: Catalog, location: IcebergLocation, options: Mapping[str, str]) -> Table:
    import pyiceberg
    from pyiceberg import exceptions

    try:
        return load_table(catalog, location.table)
    except exceptions.NoSuchPropertyException as error:  # a metastore has tables of other kinds, too
        raise TableNotFoundError(f"{location} is no Iceberg table: {_brief(error, options)}") from error
    except FileNotFoundError as error:
        msg = f"{location}: its metadata file is missing, which the catalog names: {_brief(error, options)}"
        raise ObjectNotFoundError(msg) from error
    except (exceptions.ValidationError, ValueError, TypeError, AttributeError) as error:
        text = _brief(error, options)
        if "FileIO" in text:
            raise InvalidOptionError(f"{location}: {text}; check py-io-impl and what it needs") from error
        if "filesystem" in text:
            raise StorageError(f"{location} cannot be read: {text}") from error
        unknown = _newer(text)
        if unknown is not None:
            msg = f"{location} has {unknown}, which PyIceberg {pyiceberg.__version__} does not read; use a newer one"
            raise UnsupportedFormatError(msg) from error
        msg = f"{location}: its metadata cannot be understood: {text}"
        raise CorruptTableError(msg, name=str(location)) from error


_LOADS = 5


def load_table(catalog: Catalog, name: tuple[str, ...]) -> Table:
    """Load a table as it is now.

    A catalog that keeps the place of the metadata file alone is asked again if the file is not there: others may have
    committed after it answered, and deleted the file (`write.metadata.delete-after-commit.enabled`).

    Raises:
        FileNotFoundError: the metadata file is missing.
        Exception: whatever PyIceberg raises.
    """
    for _ in range(_LOADS - 1):
        try:
            return catalog.load_table(name)
        except FileNotFoundError:
            LOG.info("the metadata file of %s is gone; the catalog is asked where the newest one is", name)
    return catalog.load_table(name)


_UNKNOWN = {
    "format version": re.compile(
        r"Input tag '(\w+)' found using 'format_version'|Unknown format version: (\w+)"
    ),
    "the type": re.compile(r"Unsupported field type: '?(\w+)|Could not parse (\w+)"),
}
"""How PyIceberg says that metadata is of a newer format than it reads."""


def _newer(text: str) -> str | None:
    """Return what PyIceberg does not know of a table's metadata, from its error."""
    for what, pattern in _UNKNOWN.items():
        found = pattern.search(text)
        if found is not None:
            return f"{what} {found[1] or found[2]}"
    return None


def forget_connections(catalog: Catalog) -> None:
    """Drop the database connections of a SQL catalog, so that what it says next is what it stored.

    An SQLite COMMIT that fails since the database is locked leaves its transaction open. PyIceberg's next query may run
    inside it: this process then sees a commit that nobody else does, and that is rolled back later.
    """
    engine: Any = getattr(catalog, "engine", None)
    if engine is None:
        return
    found = _SQLITE.fullmatch(str(engine.url))
    if not (
        found and (not found[1] or "memory" in str(engine.url))
    ):  # such a database ends with its connections
        engine.dispose()


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
            found += [
                IcebergLocation(catalog=name, table=tuple(names)) for names in catalog.list_tables(space)
            ]
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
    except (
        exceptions.NoSuchTableError,
        exceptions.NoSuchNamespaceError,
        exceptions.NoSuchIdentifierError,
    ) as error:
        hint = "`tblctl info --all iceberg://CATALOG` lists tables"
        msg = f"there is no table at {what}: {_brief(error, options)}; {hint}"
        raise TableNotFoundError(msg) from _shown(error, options)
    except (exceptions.UnauthorizedError, exceptions.ForbiddenError, exceptions.OAuthError) as error:
        hint = "check the credentials of the catalog and of its storage"
        msg = f"{what}: access is denied: {_brief(error, options)}; {hint}"
        raise AccessDeniedError(msg) from _shown(error, options)
    except (exceptions.NotInstalledError, ImportError) as error:
        msg = (
            f"{what}: {_brief(error, options)}; a library is missing: install the extra iceberg, "
            "pip install '.[iceberg]' in the checkout"
        )
        raise InvalidOptionError(msg) from _shown(error, options)
    except exceptions.ResolveError as error:
        msg = f"{what}: its metadata does not follow the specification: {_brief(error, options)}"
        raise CorruptTableError(msg, name=what) from _shown(error, options)
    except (OSError, exceptions.RESTError) as error:
        if is_denied(error):
            msg = f"{what}: access is denied: {_brief(error, options)}; check the credentials of its storage"
            raise AccessDeniedError(msg) from _shown(error, options)
        raise _unreadable(what, error, options) from _shown(error, options)
    except Exception as error:
        if "iceberg_tables" in str(error) and _NO_TABLES.search(str(error)):
            msg = f"there is no table at {what}: the database has no tables of an Iceberg catalog; check its address"
            raise TableNotFoundError(msg) from _shown(error, options)
        if type(error).__module__.partition(".")[0] in _BELOW:
            raise _unreadable(what, error, options) from _shown(error, options)
        raise


def named(what: str, error: Exception, options: Mapping[str, str]) -> TblctlError:
    """Return an error of a catalog as tblctl's, without secrets; see `catalog_errors`."""
    try:
        with catalog_errors(what, options):
            raise error  # noqa: TRY301 (the context is what names it)
    except TblctlError as found:
        return found
    except Exception as found:  # noqa: BLE001 (any other one is named by its class)
        return StorageError(f"{what}: the catalog failed: {type(found).__name__}")


def did_not_commit(error: Exception) -> bool:
    """Return whether an error of a commit's request says that nothing was committed, and no later try would help.

    It was refused, or there was no room for the new metadata file, which is written before the catalog is asked.
    """
    from pyiceberg import exceptions

    refused = (
        exceptions.UnauthorizedError,
        exceptions.ForbiddenError,
        exceptions.BadRequestError,
        exceptions.NoSuchTableError,
        exceptions.NoSuchNamespaceError,
    )
    return isinstance(error, refused) or (isinstance(error, OSError) and classify(error) is Failure.FULL)


def _unreadable(what: str, error: Exception, options: Mapping[str, str]) -> StorageError:
    if is_full(error):
        return StorageError(
            f"{what}: the storage of its metadata, or its catalog's, is full: {_brief(error, options)}; {FULL_ADVICE}"
        )
    return StorageError(f"{what} cannot be read: {_brief(error, options)}")


_NO_TABLES = re.compile("no such table|does not exist|doesn't exist")

_BELOW = frozenset(
    {"sqlalchemy", "requests", "botocore", "thrift", "hive_metastore", "pyiceberg", "urllib3", "google"}
)
"""Libraries that catalogs rest on. Their errors share no class. Those of Hive cannot be raised again as they are:
`contextmanager` sets their traceback, and they let nobody set anything."""


def _shown(error: BaseException, options: Mapping[str, str]) -> BaseException | None:
    """Return the error as a cause to show in a traceback; None if it, or one before it, has a secret in its text."""
    found: BaseException | None = error
    while found is not None:
        if _brief(found, options) != " ".join((str(found) or type(found).__name__).split())[:400]:
            return None
        found = found.__cause__ or found.__context__
    return error


_USER_INFO = re.compile(r"[^\s/:@'\"]+:[^\s/@'\"]+@")
"""A user and a password, also in an address that is none because of a typing error before them."""


def _brief(error: BaseException, options: Mapping[str, str]) -> str:
    """Return an error's text in one line, without secrets."""
    hidden = [secret for value in options.values() for secret in secrets_of(str(value))]
    text = scrub(str(error) or type(error).__name__, [*secrets_in(options), *hidden])
    return " ".join(_USER_INFO.sub("***@", text).split())[:400]


def _configured(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return all properties of a catalog: those of PyIceberg's configuration, and those given beside it."""
    from pyiceberg.utils.config import Config

    found: dict[str, str] = {}
    waiting = [Config().get_catalog_config(name) or {}]
    while waiting:
        for key, value in waiting.pop().items():
            if isinstance(value, dict):
                waiting.append(value)
            else:
                found[key] = str(value)
    return found | dict(options)
