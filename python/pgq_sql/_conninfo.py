"""Where connections lead, and whether one still does."""

from __future__ import annotations

import inspect
import os
import re
import select
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

Connection: TypeAlias = "psycopg.Connection[Any]"
AnyConnection: TypeAlias = "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"
Pool: TypeAlias = "ConnectionPool[Any]"
AsyncPool: TypeAlias = "AsyncConnectionPool[Any]"

# A network that swallows packets must not hold a worker for the quarter of an hour that TCP
# would wait. What the connection string or the environment says goes first.
DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    # What the texts are that go either way, whatever the role's or the server's default.
    "client_encoding": "utf8",
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


def lives(conn: AnyConnection) -> bool:
    """Whether an idle connection is worth a try; costs no round trip."""
    if conn.pgconn.status != ConnStatus.OK:
        return False
    return not _has_news(conn.pgconn.socket) or not _bids_farewell(conn)


def _has_news(descriptor: int) -> bool:
    if not hasattr(select, "poll"):
        return True  # perhaps
    news = select.poll()
    news.register(descriptor, select.POLLIN)
    return bool(news.poll(0))


def _bids_farewell(conn: AnyConnection) -> bool:
    """Read what the server said unasked: that it closes the connection, or nothing of weight."""
    severities: list[str | None] = []

    def note(said: psycopg.errors.Diagnostic) -> None:
        severities.append(said.severity_nonlocalized)

    conn.add_notice_handler(note)
    try:
        # Twice: the first reads the farewell, the second sees the end, if it is there yet.
        for _ in range(2):
            conn.pgconn.consume_input()
            conn.pgconn.is_busy()  # libpq takes what comes unasked for a notice
    except psycopg.OperationalError:
        return True
    finally:
        conn.remove_notice_handler(note)
    return conn.pgconn.status != ConnStatus.OK or "FATAL" in severities


def of_pool(pool: AsyncPool) -> str:
    """The connection string that a pool connects with."""
    text, options = pool.conninfo, pool.kwargs
    if not isinstance(text, str) or not isinstance(options, dict | None):
        # Functions that compute them.
        raise TypeError("the pool does not tell its connection string: give it to the client")
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return make_conninfo(text, **{k: v for k, v in (options or {}).items() if k in known})


def check_pool(pool: object, kind: str) -> None:
    """Refuse what is no pool of that kind, before it is used in the wrong way."""
    waits = inspect.iscoroutinefunction(getattr(pool, "close", None))
    if not hasattr(pool, "connection") or waits != kind.startswith("Async"):
        found = type(pool)
        raise TypeError(
            f"a connection string or a {kind} is needed,"
            f" not {found.__module__}.{found.__qualname__}"
        )
