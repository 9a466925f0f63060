"""PostgreSQL for tests, on 127.0.0.1 and a free port, with a fresh database for each that asks."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import READY_SECONDS, STOP_SECONDS, free_port, missing_server


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """A running server."""

    port: int
    host: str = "127.0.0.1"
    user: str = "tblctl"
    password: str = "postgres-secret"

    def uri(self, database: str, *, password: str | None = None) -> str:
        """Return the address of a database, for SQLAlchemy."""
        secret = self.password if password is None else password
        return f"postgresql+psycopg2://{self.user}:{secret}@{self.host}:{self.port}/{database}"

    def create_database(self) -> str:
        """Return the name of a new, empty database."""
        name = f"db_{uuid.uuid4().hex}"
        with contextlib.closing(self._connection()) as connection:
            connection.autocommit = True
            connection.cursor().execute(f"CREATE DATABASE {name}")
        return name

    def end_connections(self, database: str) -> int:
        """End all connections to a database, as a restart of the server does; return how many there were."""
        with contextlib.closing(self._connection()) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database,)
            )
            return int(cursor.rowcount)

    def answers(self) -> bool:
        import psycopg2

        try:
            self._connection().close()
        except psycopg2.OperationalError:
            return False
        return True

    def _connection(self) -> Any:
        import psycopg2

        where = {"host": self.host, "port": self.port, "dbname": "postgres"}
        return psycopg2.connect(**where, user=self.user, password=self.password, connect_timeout=5)


def find_postgres() -> Path | None:
    """Return the folder of PostgreSQL's programs: that of PATH, or the newest of Debian's."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda folder: int(folder.parent.name), default=None)


@contextlib.contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """Start PostgreSQL on an empty folder; stopped by its process id, the folder removed.

    It refuses to run as root, so root runs it as the user `postgres`.
    """
    programs = find_postgres()
    if programs is None:
        missing_server("PostgreSQL is not installed: run scripts/install_postgres.sh")
    server = PostgresServer(port=free_port())
    with tempfile.TemporaryDirectory(prefix="tblctl-postgres-") as name:
        folder = Path(name)
        secret = folder / "password"
        secret.write_text(server.password)
        how: dict[str, Any] = {"cwd": folder}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            for path in (folder, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
            how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        made = ["--pgdata=data", f"--username={server.user}", "--pwfile=password", "--auth=scram-sha-256"]
        subprocess.run(
            [programs / "initdb", *made, "--encoding=UTF8", "--locale=C", "--no-sync"],
            check=True,
            capture_output=True,
            **how,
        )
        log = (folder / "log").open("wb")
        settings = (
            f"listen_addresses={server.host}",
            f"port={server.port}",
            "fsync=off",
            f"unix_socket_directories={folder}",
        )
        words = [word for setting in settings for word in ("-c", setting)]
        process = subprocess.Popen(
            [programs / "postgres", "-D", "data", *words], stdout=log, stderr=log, **how
        )
        try:
            give_up = time.monotonic() + READY_SECONDS
            while not server.answers():
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < give_up, "PostgreSQL does not answer"
                time.sleep(0.05)
            yield server
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: nothing of the folder is needed any more
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()
