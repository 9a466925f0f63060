"""A server in a thread of this process, from `with` to its end."""

from __future__ import annotations

from socketserver import ThreadingTCPServer
from threading import Thread
from typing import Self


class Served:
    """Serves connections of its `server`, which listens on a port of this machine, at `uri`."""

    def serve(self, server: ThreadingTCPServer, scheme: str) -> None:
        """Take the server; it serves once this is entered."""
        self._server = server
        self._server.daemon_threads = True
        self.uri = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        self._thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
