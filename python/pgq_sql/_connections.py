"""Where a client's connections come from, and whose transaction a call joins."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, TransactionStatus

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool
    from sqlalchemy import Connection as SAConnection
    from sqlalchemy.orm import Session, scoped_session

Connection: TypeAlias = "psycopg.Connection[Any]"
Pool: TypeAlias = "ConnectionPool[Any]"
Joinable: TypeAlias = (
    "psycopg.Connection[Any] | psycopg.Cursor[Any] | SAConnection | Session | scoped_session[Any]"
)
"""What `conn=` takes: the call joins its transaction and never ends it."""

# A network that swallows packets must not hold a worker for the quarter of an hour that TCP
# would wait. What the connection string or the environment says goes first.
DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def complete(conninfo: str | None) -> str:
    """The connection string to use: the one given, PGQ_DSN or libpq's variables."""
    text = os.environ.get("PGQ_DSN", "") if conninfo is None else conninfo
    # SQLAlchemy's URLs name a driver; people paste what they have.
    text = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", text)
    given = conninfo_to_dict(text)
    missing = {name: value for name, value in DEFAULTS.items() if name not in given}
    if "PGCONNECT_TIMEOUT" in os.environ:
        missing.pop("connect_timeout", None)
    return make_conninfo(text, fallback_application_name="pgq_sql", **missing)


class Source(Protocol):
    """Lends connections."""

    def connection(self) -> AbstractContextManager[Connection]:
        """Lend a connection; it is ours until the context ends."""
        ...

    def connect(self) -> Connection:
        """Make another connection to the same database, for the caller to close."""
        ...

    def close(self) -> None:
        """Lend no more."""


class OwnConnections:
    """Autocommit connections, opened when needed and kept for the next call."""

    def __init__(self, conninfo: str, limit: int = 8) -> None:
        self._conninfo = conninfo
        self._idle: list[Connection] = []
        self._closed = False
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(limit)
        self._process = os.getpid()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        with self._free:
            conn = self._take() or self.connect()
            try:
                yield conn
            finally:
                self._give_back(conn)

    def connect(self) -> Connection:
        return psycopg.connect(self._conninfo, autocommit=True)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()

    def _take(self) -> Connection | None:
        with self._lock:
            if self._process != os.getpid():
                # A forked child that used its parent's connections would mix up both.
                self._idle, self._process = [], os.getpid()
            while self._idle:
                conn = self._idle.pop()
                if _lives(conn):
                    return conn
                conn.close()
        return None

    def _give_back(self, conn: Connection) -> None:
        with self._lock:
            if not self._closed and conn.info.transaction_status == TransactionStatus.IDLE:
                self._idle.append(conn)
                return
        conn.close()


class PoolConnections:
    """The connections of a pool that the caller made, and closes."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def connection(self) -> AbstractContextManager[Connection]:
        return self._pool.connection()

    def connect(self) -> Connection:
        # Ask a connection where it leads: a pool may compute its connection string.
        with self._pool.connection() as conn:
            conninfo = make_conninfo(conn.info.dsn, password=conn.info.password or None)
        return psycopg.connect(complete(conninfo), autocommit=True)

    def close(self) -> None:
        pass


def _lives(conn: Connection) -> bool:
    """Whether an idle connection is worth a try; costs no round trip."""
    try:
        # Twice: the first reads the server's farewell, the second sees the end.
        conn.pgconn.consume_input()
        conn.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return conn.pgconn.status == ConnStatus.OK


def joined(conn: Joinable) -> Connection:
    """The psycopg connection behind what was given as `conn`."""
    if isinstance(conn, psycopg.Connection):
        return conn
    if isinstance(conn, psycopg.Cursor):
        return conn.connection
    if "sqlalchemy" in sys.modules:
        return _from_sqlalchemy(conn)
    raise _unfit(conn)


def _from_sqlalchemy(conn: object) -> Connection:
    from sqlalchemy import Connection as SAConnection
    from sqlalchemy.orm import Session, scoped_session

    if isinstance(conn, Session | scoped_session):
        conn = conn.connection()
    if not isinstance(conn, SAConnection):
        raise _unfit(conn)
    driver = conn.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise _unfit(driver)
    if not conn.in_transaction():
        # As its own execute would: else its commit() would not reach what we do.
        conn.begin()
    return driver


def _unfit(conn: object) -> TypeError:
    kind = type(conn)
    return TypeError(
        "conn must be a psycopg Connection or Cursor, or a SQLAlchemy Connection or Session"
        f" on psycopg, not {kind.__module__}.{kind.__qualname__}"
    )
