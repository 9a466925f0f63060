"""A Hive metastore for tests: the calls of Thrift that PyIceberg makes, with state in memory, and faults as asked for.

Locks are those of Hive's: one writer of a table holds its exclusive lock, others wait in line; a client that is cut off
holds its lock on, as long as `release_locks` is not called (Hive does so after five minutes).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import RLock
from typing import Any

from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from .served import Served

Fault = Callable[[Callable[[], Any]], Any]
"""Called with what carries a call out; may do that, raise, or both."""


class Cut(TTransport.TTransportException):  # type: ignore[misc]
    """Raised by a fault: the connection ends without an answer."""


class Metastore(Served):
    """The server. `uri` is its address, `calls` has the names of all calls so far."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.faults: dict[str, list[Fault]] = {}
        handler = _Handler(self)

        class Connection(StreamRequestHandler):
            def handle(self) -> None:
                socket = TSocket.TSocket()
                socket.setHandle(self.connection)
                protocol = TBinaryProtocol(TTransport.TBufferedTransport(socket))
                processor = ThriftHiveMetastore.Processor(handler)
                try:
                    while True:
                        processor.process(protocol, protocol)
                except (TTransport.TTransportException, OSError):
                    pass  # the client is gone, or is cut off

        self.lock = RLock()
        self.users: list[tuple[str, list[str]]] = []
        self.databases: dict[str, Any] = {}
        self.tables: dict[tuple[str, str], Any] = {}
        self.locks: list[tuple[int, tuple[str, str]]] = []
        self.serve(ThreadingTCPServer(("127.0.0.1", 0), Connection), "thrift")

    def fail(self, call: str, *faults: Fault) -> None:
        """Have the next calls of a name do something else, one after the other."""
        self.faults.setdefault(call, []).extend(faults)

    def release_locks(self) -> None:
        with self.lock:
            self.locks.clear()

    def release_first(self) -> None:
        with self.lock:
            del self.locks[0]

    def table(self, name: str) -> Any:
        """Return a table of the database `db`, as the metastore has it."""
        return self.tables["db", name]


class _Handler(ThriftHiveMetastore.Iface):  # type: ignore[misc]
    """Carries calls out. What PyIceberg never calls has no answer but an error."""

    def __init__(self, owner: Metastore) -> None:
        self._owner = owner
        self._next_lock = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_"):
            return found
        owner = self._owner

        def called(*arguments: Any) -> Any:
            with owner.lock:
                owner.calls.append(name)
                faults = owner.faults.get(name)
                fault = faults.pop(0) if faults else None

            def real() -> Any:
                with owner.lock:
                    return found(*arguments)

            return real() if fault is None else fault(real)

        return called

    def set_ugi(self, user_name: str, group_names: list[str]) -> list[str]:
        self._owner.users.append((user_name, group_names))
        return []

    def get_all_databases(self) -> list[str]:
        return sorted(self._owner.databases)

    def create_database(self, database: Any) -> None:
        if database.name in self._owner.databases:
            raise ttypes.AlreadyExistsException(database.name)
        self._owner.databases[database.name] = database

    def get_database(self, name: str) -> Any:
        if name not in self._owner.databases:
            raise ttypes.NoSuchObjectException(f"database {name}")
        return self._owner.databases[name]

    def create_table(self, tbl: Any) -> None:
        key = (tbl.dbName, tbl.tableName)
        if tbl.dbName not in self._owner.databases:
            raise ttypes.InvalidObjectException(f"database {tbl.dbName}")
        if key in self._owner.tables:
            raise ttypes.AlreadyExistsException(str(key))
        self._owner.tables[key] = tbl

    def get_table(self, dbname: str, tbl_name: str) -> Any:
        if (dbname, tbl_name) not in self._owner.tables:
            raise ttypes.NoSuchObjectException(f"hive.{dbname}.{tbl_name} table not found")
        return copy.deepcopy(self._owner.tables[dbname, tbl_name])

    def get_all_tables(self, db_name: str) -> list[str]:
        return sorted(name for database, name in self._owner.tables if database == db_name)

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Any]:
        return [self._owner.tables[dbname, name] for name in tbl_names]

    def alter_table_with_environment_context(self, dbname: str, tbl_name: str, new_tbl: Any, _: Any) -> None:
        if (dbname, tbl_name) not in self._owner.tables:
            raise ttypes.InvalidOperationException(f"table {dbname}.{tbl_name} doesn't exist")
        self._owner.tables[dbname, tbl_name] = new_tbl

    def drop_table(self, dbname: str, name: str, _: bool) -> None:
        if self._owner.tables.pop((dbname, name), None) is None:
            raise ttypes.NoSuchObjectException(f"{dbname}.{name}")

    def lock(self, rqst: Any) -> Any:
        (part,) = rqst.component
        assert (part.type, part.level) == (ttypes.LockType.EXCLUSIVE, ttypes.LockLevel.TABLE)
        self._next_lock += 1
        self._owner.locks.append((self._next_lock, (part.dbname, part.tablename)))
        return self._state(self._next_lock)

    def check_lock(self, rqst: Any) -> Any:
        return self._state(rqst.lockid)

    def unlock(self, rqst: Any) -> None:
        found = [entry for entry in self._owner.locks if entry[0] == rqst.lockid]
        if not found:
            raise ttypes.NoSuchLockException(f"lock {rqst.lockid}")
        self._owner.locks.remove(found[0])

    def _state(self, id_: int) -> Any:
        """Return whether a lock is the first one of its table."""
        table = dict(self._owner.locks).get(id_)
        if table is None:
            raise ttypes.NoSuchLockException(f"lock {id_}")
        first = next(entry for entry, name in self._owner.locks if name == table)
        state = ttypes.LockState.ACQUIRED if first == id_ else ttypes.LockState.WAITING
        return ttypes.LockResponse(lockid=id_, state=state)
