"""A REST catalog for tests: PyIceberg's SQL catalog behind HTTP, with faults and vended credentials as asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import RLock
from typing import Any

from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CommitTableRequest  # type: ignore[attr-defined]
from pyiceberg.table import Table

from .served import Served

_ERRORS: dict[type[Exception], tuple[int, str]] = {
    exceptions.NoSuchTableError: (404, "NoSuchTableException"),
    exceptions.NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    exceptions.CommitFailedException: (409, "CommitFailedException"),
    exceptions.TableAlreadyExistsError: (409, "AlreadyExistsException"),
}


class RestCatalog(Served):
    """The server. `uri` is its address.

    Args:
        catalog: that it shows.
        config: of every table that is loaded: what the catalog vends.
        on_commit: called with a function that commits; may commit, raise, or both. A number that it returns is the
            status of the answer.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        config: Callable[[], dict[str, str]] = dict,
        on_commit: Callable[[Callable[[], None]], int | None] | None = None,
    ) -> None:
        self.catalog = catalog
        self.config = config
        self.on_commit = on_commit
        self.lock = RLock()
        self.requests: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.answer("GET")

            def do_HEAD(self) -> None:
                self.answer("HEAD")

            def do_POST(self) -> None:
                self.answer("POST")

            def answer(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                owner.requests.append(f"{method} {self.path}")
                status, found = owner.reply(method, self.path.partition("?")[0], body)
                data = b"" if found is None else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if method != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.serve(ThreadingHTTPServer(("127.0.0.1", 0), Handler), "http")

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return the status and the answer to a request."""
        if path == "/v1/config":
            return 200, {"defaults": {}, "overrides": {}}
        try:
            with self.lock:
                return self._found(method, path, body)
        except tuple(_ERRORS) as error:
            status, kind = _ERRORS[type(error)]
            return status, {"error": {"message": str(error), "type": kind, "code": status}}

    def _found(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/v1/namespaces":
            return 200, {"namespaces": [list(names) for names in self.catalog.list_namespaces()]}
        table = re.fullmatch(r"/v1/namespaces/([^/]+)/tables/([^/]+)", path)
        if table and method == "POST":
            return self._commit((table[1], table[2]), body)
        if table:
            return 200, self._loaded(self.catalog.load_table((table[1], table[2])))
        tables = re.fullmatch(r"/v1/namespaces/([^/]+)/tables", path)
        if tables:
            names = self.catalog.list_tables(tables[1])
            return 200, {"identifiers": [{"namespace": list(n[:-1]), "name": n[-1]} for n in names]}
        space = re.fullmatch(r"/v1/namespaces/([^/]+)", path)
        if space:
            return 200, {"namespace": [space[1]], "properties": {}}
        return 404, {"error": {"message": path, "type": "NoSuchViewException", "code": 404}}

    def _commit(self, name: tuple[str, str], body: bytes) -> tuple[int, Any]:
        named = {"identifier": {"namespace": [name[0]], "name": name[1]}}  # which Java leaves to the address
        request = CommitTableRequest.model_validate(named | json.loads(body))

        # PyIceberg removes the statistics of a snapshot with it, and then misses those that it is told to remove.
        updates = sorted(request.updates, key=lambda update: update.action != "remove-statistics")

        def commit() -> None:
            table = self.catalog.load_table(name)
            self.catalog.commit_table(table, request.requirements, tuple(updates))

        status = commit() if self.on_commit is None else self.on_commit(commit)
        if status is not None:
            return status, {"error": {"message": "as asked for", "type": "Fault", "code": status}}
        return 200, self._loaded(self.catalog.load_table(name))

    def _loaded(self, table: Table) -> dict[str, Any]:
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json(by_alias=True)),
            "config": self.config(),
        }
