"""REST catalogs and Hive's metastores as PyIceberg has them, but requests end: PyIceberg's wait for ever."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from threading import local
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tblctl.tableformat.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.hive import HiveCatalog
    from pyiceberg.catalog.rest import RestCatalog

REQUEST_TIMEOUT = "tblctl.request-timeout"
"""The property of a catalog that says after how many seconds without an answer a request fails."""

_REQUEST_SECONDS = 60.0
_CONNECT_SECONDS = 10.0


def patient_catalog(name: str, options: Mapping[str, str]) -> Catalog | None:
    """Return a REST catalog, or Hive's, whose requests end; None for catalogs of other types.

    Args:
        name: of the catalog.
        options: take the place of what PyIceberg's configuration says of it.

    Raises:
        ValueError: the timeout is no number of seconds, or the metastore's address none.
        InvalidOptionError: a library is not installed.
    """
    from pyiceberg.catalog import CatalogType, infer_catalog_type
    from pyiceberg.utils.config import Config, merge_config

    conf = merge_config(Config().get_catalog_config(name) or {}, dict(options))
    given = conf.get("type")
    if options.get("py-catalog-impl") or not conf.get("uri"):
        return None
    kind = CatalogType(str(given).lower()) if given else infer_catalog_type(name, conf)
    make = {CatalogType.REST: _rest_catalog, CatalogType.HIVE: _hive_catalog}.get(kind) if kind else None
    if make is None:
        return None
    seconds = float(str(conf.get(REQUEST_TIMEOUT, _REQUEST_SECONDS)))
    return make(name, {key: value for key, value in conf.items() if isinstance(value, str)}, seconds)


def _rest_catalog(name: str, properties: Mapping[str, str], seconds: float) -> RestCatalog:
    from pyiceberg.catalog.rest import RestCatalog
    from requests import Session

    class PatientRestCatalog(RestCatalog):
        """PyIceberg's, with a timeout for each request."""

        def _create_session(self) -> Session:
            session = super()._create_session()
            request = partial(session.request, timeout=(min(seconds, _CONNECT_SECONDS), seconds))
            session.request = request  # type: ignore[method-assign]
            return session

    return PatientRestCatalog(name, **properties)


def _hive_catalog(name: str, properties: Mapping[str, str], seconds: float) -> HiveCatalog:
    from pyiceberg.catalog.hive import HiveCatalog

    class PatientHiveCatalog(HiveCatalog):
        """PyIceberg's, with a timeout for each request, and connections that threads do not share."""

        @staticmethod
        def _create_hive_client(properties: dict[str, str]) -> Any:
            return _HiveConnections(properties, seconds)

    return PatientHiveCatalog(name, **properties)


class _HiveConnections:
    """A connection to the metastore for each `with`. PyIceberg's own has one, which threads take from each other.

    Args:
        properties: of the catalog. `uri` may be several addresses: the first one that answers is used.
        seconds: without an answer until a request fails.

    Raises:
        ValueError: an address has no host or port.
        InvalidOptionError: Kerberos is asked for, and its libraries are not installed.
    """

    def __init__(self, properties: Mapping[str, str], seconds: float) -> None:
        from pyiceberg.catalog import hive
        from pyiceberg.utils.properties import property_as_bool

        self._kerberos = property_as_bool(
            dict(properties), hive.HIVE_KERBEROS_AUTH, hive.HIVE_KERBEROS_AUTH_DEFAULT
        )
        if self._kerberos and find_spec("puresasl") is None:
            msg = f"{hive.HIVE_KERBEROS_AUTH} needs libraries: pip install 'pyiceberg[hive-kerberos]'"
            raise InvalidOptionError(msg)
        self._service = properties.get(
            hive.HIVE_KERBEROS_SERVICE_NAME, hive.HIVE_KERBEROS_SERVICE_NAME_DEFAULT
        )
        self._user = properties.get("ugi", "")
        self._seconds = seconds
        self._addresses = [_host_and_port(uri) for uri in properties["uri"].split(",")]
        self._open = local()

    def __enter__(self) -> Any:
        client, transport = self._connected()
        self._open.transports = [*getattr(self._open, "transports", ()), transport]
        return client

    def __exit__(self, *_: object) -> None:
        self._open.transports.pop().close()

    def _connected(self) -> tuple[Any, Any]:
        from thrift.transport import TTransport

        for address in self._addresses[:-1]:
            try:
                return self._connected_to(*address)
            except TTransport.TTransportException:
                continue  # the next one may answer
        return self._connected_to(*self._addresses[-1])

    def _connected_to(self, host: str, port: int) -> tuple[Any, Any]:
        """Return the client, and the transport that is open for it."""
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport import TSocket, TTransport

        socket = TSocket.TSocket(host, port)
        socket.setTimeout(1000 * min(self._seconds, _CONNECT_SECONDS))
        transport = (
            TTransport.TSaslClientTransport(socket, host=host, service=self._service)
            if self._kerberos
            else TTransport.TBufferedTransport(socket)
        )
        with ExitStack() as undo:
            undo.callback(socket.close)
            transport.open()
            socket.setTimeout(1000 * self._seconds)
            client = Client(TBinaryProtocol(transport))
            if self._user:
                user, _, groups = self._user.partition(":")
                client.set_ugi(user, groups)  # as PyIceberg does: the groups are text, sent letter by letter
            undo.pop_all()
        return client, transport


def _host_and_port(uri: str) -> tuple[str, int]:
    """Raises ValueError: the address has none."""
    found = urlsplit(uri.strip())
    if not found.hostname or found.port is None:
        raise ValueError(f"{uri!r} is no address of a metastore, expected thrift://HOST:PORT")
    return found.hostname, found.port
