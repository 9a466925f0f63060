"""An HTTP proxy of our own between client and S3 server, for faults on the wire and for counting what went over it.

    with CuttingProxy("127.0.0.1", minio_port) as proxy:
        proxy.on("PUT", "snapshots/", action="cut reply")            # the server does it, the client never hears
        options = minio.storage_options | {"endpoint_url": proxy.endpoint_url}
        ...
        assert [e.method for e in proxy.exchanges] == ["PUT", "PUT"]

Actions: "cut reply" (forward, wait for the server's reply, then close), "drop" (close without forwarding), "reply"
(answer `status` and `code` without forwarding), "hang" (forward, never answer), "reset" (forward, wait for the
server's reply, then reset the connection: the client sees ECONNRESET), "reset and leave" (the same, and connections
are refused from then on), "cut request in body" and "cut reply in body" (forward a half of the body, then close: the
server, or the client, gets the other half never; without a body the same as "drop" and "cut reply").
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

ACTIONS = frozenset(
    {
        *("cut reply", "drop", "reply", "hang", "reset", "reset and leave"),
        *("cut request in body", "cut reply in body"),
    }
)


@dataclass(kw_only=True)
class Rule:
    method: str
    path: re.Pattern[str]
    nth: int
    times: int
    action: str
    status: int
    code: str
    seen: int = 0


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request that reached the proxy; sizes are of bodies. `status` is 0 where the server sent none."""

    method: str
    path: str
    byte_range: str
    action: str
    status: int
    request_bytes: int
    reply_bytes: int


class _ClosedError(Exception):
    pass


class _Reader:
    """Bytes of one socket, read by head, length or chunks."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = b""

    def _fill(self) -> None:
        try:
            data = self.connection.recv(1 << 16)
        except OSError as error:
            raise _ClosedError from error
        if not data:
            raise _ClosedError
        self._buffer += data

    def until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._fill()
        found, _, self._buffer = self._buffer.partition(mark)
        return found + mark

    def exactly(self, count: int) -> bytes:
        parts = [self._buffer[:count]]
        self._buffer = self._buffer[count:]
        missing = count - len(parts[0])
        while missing:
            self._fill()
            parts.append(self._buffer[:missing])
            self._buffer = self._buffer[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)

    def body(self, headers: dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", ""):
            parts = []
            while True:
                size = self.until(b"\r\n")
                parts.append(size)
                count = int(size.split(b";")[0], 16)
                if count == 0:
                    return b"".join([*parts, self.until(b"\r\n")])
                parts.append(self.exactly(count + 2))
        return self.exactly(int(headers.get("content-length", "0")))


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


class CuttingProxy:
    """Listens on a free port of 127.0.0.1 and forwards to `host`:`port`. A context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._stopped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.exchanges: list[Exchange] = []
        self.most_at_once = 0  # requests that wait for the server's reply
        self._at_once = 0
        self.latency_seconds = 0.0  # every request waits so long before it is forwarded
        self.endpoint_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def on(
        self,
        method: str = "",
        path: str = "",
        *,
        action: str,
        nth: int = 1,
        times: int = 1,
        status: int = 503,
        code: str = "SlowDown",
    ) -> None:
        """Do `action` to the nth to nth+times-1th request of this method ('' is any) whose path has `path` (regex)."""
        assert action in ACTIONS, action
        rule = Rule(
            method=method,
            path=re.compile(path),
            nth=nth,
            times=times,
            action=action,
            status=status,
            code=code,
        )
        with self._lock:
            self._rules.append(rule)

    def clear(self) -> None:
        """Forget rules and exchanges."""
        with self._lock:
            self._rules.clear()
            self.exchanges.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self.refuse()
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)

    def refuse(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            pair = {client, server}
            with self._lock:
                self._open |= pair
            try:
                reader, upstream = _Reader(client), _Reader(server)
                while self._exchange(reader, upstream):
                    pass
            except (_ClosedError, OSError):
                pass
            finally:
                with self._lock:
                    self._open -= pair

    def _exchange(self, client: _Reader, server: _Reader) -> bool:
        """Pass one request and its reply on; return whether the connection stays open."""
        head = client.until(b"\r\n\r\n")
        method, path = head.decode("latin-1").split(" ")[:2]
        headers = _headers(head)
        rule = self._due(method, path)
        action = rule.action if rule else "forward"
        if action == "drop":
            self._record(method, path, headers, action)
            return False
        if headers.get(
            "expect"
        ):  # answered here, so that request and reply can be handled one after the other
            client.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"(?i)\r\nexpect:[^\r]*", b"", head)
        body = client.body(headers)
        if rule is not None and action == "reply":
            xml = f"<?xml version='1.0'?><Error><Code>{rule.code}</Code><Message>injected</Message></Error>".encode()
            status_line = f"HTTP/1.1 {rule.status} Injected\r\nContent-Type: application/xml\r\n"
            xml = b"" if method == "HEAD" else xml
            self._record(method, path, headers, action, rule.status, len(body), len(xml))
            client.connection.sendall(f"{status_line}Content-Length: {len(xml)}\r\n\r\n".encode() + xml)
            return True
        if action == "cut request in body":
            self._record(method, path, headers, action, request_bytes=len(body) // 2)
            if body:
                server.connection.sendall(head + body[: len(body) // 2])
            return False
        with self._counted():
            time.sleep(self.latency_seconds)
            server.connection.sendall(head + body)
            reply_head = server.until(b"\r\n\r\n")
        status = int(reply_head.split(b" ")[1])
        reply_headers = _headers(reply_head)
        reply = b"" if method == "HEAD" or status in (204, 304) else server.body(reply_headers)
        self._record(method, path, headers, action, status, len(body), len(reply))
        if action == "cut reply in body" and reply:
            client.connection.sendall(reply_head + reply[: len(reply) // 2])
        if action.startswith("cut reply"):
            return False
        if action.startswith("reset"):
            if action == "reset and leave":
                self.refuse()
            # Closing with a linger time of 0 sends RST instead of FIN.
            client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if action == "hang":
            self._stopped.wait()
            return False
        client.connection.sendall(reply_head + reply)
        return reply_headers.get("connection", "").lower() != "close"

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def _due(self, method: str, path: str) -> Rule | None:
        with self._lock:
            chosen = None
            for rule in self._rules:
                if rule.method in ("", method) and rule.path.search(path):
                    rule.seen += 1
                    if chosen is None and rule.nth <= rule.seen < rule.nth + rule.times:
                        chosen = rule
            return chosen

    def _record(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        action: str,
        status: int = 0,
        request_bytes: int = 0,
        reply_bytes: int = 0,
    ) -> None:
        exchange = Exchange(
            method=method,
            path=path,
            byte_range=headers.get("range", ""),
            action=action,
            status=status,
            request_bytes=request_bytes,
            reply_bytes=reply_bytes,
        )
        with self._lock:
            self.exchanges.append(exchange)
