"""Whose transaction a call joins."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import psycopg

from . import _foreign
from ._foreign import AsyncFetch, Fetch

if TYPE_CHECKING:
    from sqlalchemy import Connection as SAConnection
    from sqlalchemy.ext.asyncio import AsyncConnection as SAAsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session


# Protocols, because where a package is missing, or has no types, its classes match anything.


class DjangoConnection(Protocol):
    """`django.db.connection`, or one of `django.db.connections`."""

    @property
    def vendor(self) -> str: ...

    def ensure_connection(self) -> None: ...


class Psycopg2Connection(Protocol):
    """What `psycopg2.connect` answers."""

    @property
    def async_(self) -> int: ...

    def get_dsn_parameters(self) -> dict[str, str]: ...


class AsyncpgConnection(Protocol):
    """What `asyncpg.connect` answers, or a pool's `acquire`."""

    def is_in_transaction(self) -> bool: ...


_SQLAlchemy: TypeAlias = "SAConnection | Session | scoped_session[Any]"
_Others: TypeAlias = "DjangoConnection | Psycopg2Connection"
Joinable: TypeAlias = "psycopg.Connection[Any] | psycopg.Cursor[Any] | _SQLAlchemy | _Others"
"""What `conn=` takes: the call joins its transaction and never ends it."""
_AsyncSQLAlchemy: TypeAlias = "SAAsyncConnection | AsyncSession | async_scoped_session[Any]"
_AsyncPsycopg: TypeAlias = "psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]"
AsyncJoinable: TypeAlias = "_AsyncPsycopg | _AsyncSQLAlchemy | AsyncpgConnection"
"""What `conn=` takes: the call joins its transaction and never ends it."""


def joined(conn: Joinable) -> psycopg.Connection[Any] | Fetch:
    """The psycopg connection behind what was given as `conn`, or else how to call through it."""
    if isinstance(conn, psycopg.Connection):
        return conn
    if isinstance(conn, psycopg.Cursor):
        return conn.connection
    found = _from_sqlalchemy(conn) or _from_django(conn) or _from_psycopg2(conn)
    if found is None:
        raise TypeError(
            "conn must be a psycopg Connection or Cursor, a SQLAlchemy Connection or Session,"
            f" Django's connection or psycopg2's, not {_named(conn)}"
        )
    return found


def async_joined(conn: AsyncJoinable) -> psycopg.AsyncConnection[Any] | AsyncFetch:
    """The psycopg connection behind what was given as `conn`, or else how to call through it."""
    if isinstance(conn, psycopg.AsyncConnection):
        return conn
    if isinstance(conn, psycopg.AsyncCursor):
        return conn.connection
    found = _from_async_sqlalchemy(conn) or _from_asyncpg(conn)
    if found is None:
        raise TypeError(
            "conn must be a psycopg AsyncConnection or AsyncCursor, a SQLAlchemy AsyncConnection"
            f" or AsyncSession, or asyncpg's connection, not {_named(conn)}"
        )
    return found


# What has not been imported cannot have made the connection: so these import nothing new.


def _from_sqlalchemy(conn: object) -> Fetch | None:
    if "sqlalchemy" in sys.modules:
        from sqlalchemy import Connection as SAConnection
        from sqlalchemy.orm import Session, scoped_session

        if isinstance(conn, SAConnection | Session | scoped_session):
            return _foreign.through_sqlalchemy(conn)
    return None


def _from_async_sqlalchemy(conn: object) -> AsyncFetch | None:
    if "sqlalchemy.ext.asyncio" in sys.modules:
        from sqlalchemy.ext.asyncio import AsyncConnection as SAAsyncConnection
        from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

        if isinstance(conn, SAAsyncConnection | AsyncSession | async_scoped_session):
            return _foreign.through_async_sqlalchemy(conn)
    return None


def _from_django(conn: Any) -> Fetch | None:
    if "django.db" in sys.modules:
        from django.db.backends.base.base import BaseDatabaseWrapper
        from django.utils.connection import ConnectionProxy

        if isinstance(conn, BaseDatabaseWrapper | ConnectionProxy):
            # A proxy leads anywhere: Django's caches have them too.
            if (vendor := getattr(conn, "vendor", "no database")) != "postgresql":
                raise TypeError(f"conn must be on PostgreSQL, not {vendor}")
            return _foreign.through_cursor(conn.cursor)
    return None


def _from_psycopg2(conn: object) -> Fetch | None:
    if "psycopg2" in sys.modules:
        from psycopg2.extensions import connection, cursor

        if isinstance(conn, connection) and not conn.async_:
            # Not what the caller's settings may have made of it, such as one that answers dicts.
            return _foreign.through_cursor(lambda: conn.cursor(cursor_factory=cursor))
    return None


def _from_asyncpg(conn: object) -> AsyncFetch | None:
    if "asyncpg" in sys.modules:
        from asyncpg import Connection

        # True for the proxy that a pool lends, too.
        if isinstance(conn, Connection):
            return _foreign.through_asyncpg(conn)
    return None


def _named(conn: object) -> str:
    return f"{type(conn).__module__}.{type(conn).__qualname__}"
