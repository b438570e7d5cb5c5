"""Whose transaction a call joins."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg

if TYPE_CHECKING:
    from sqlalchemy import Connection as SAConnection
    from sqlalchemy.ext.asyncio import AsyncConnection as SAAsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

Joinable: TypeAlias = (
    "psycopg.Connection[Any] | psycopg.Cursor[Any] | SAConnection | Session | scoped_session[Any]"
)
"""What `conn=` takes: the call joins its transaction and never ends it."""
AsyncJoinable: TypeAlias = (
    "psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]"
    " | SAAsyncConnection | AsyncSession | async_scoped_session[Any]"
)


def joined(conn: Joinable) -> psycopg.Connection[Any]:
    """The psycopg connection behind what was given as `conn`."""
    if isinstance(conn, psycopg.Connection):
        return conn
    if isinstance(conn, psycopg.Cursor):
        return conn.connection
    if "sqlalchemy" in sys.modules:
        return _from_sqlalchemy(conn)
    raise _unfit(conn)


async def async_joined(conn: AsyncJoinable) -> psycopg.AsyncConnection[Any]:
    """The psycopg connection behind what was given as `conn`."""
    if isinstance(conn, psycopg.AsyncConnection):
        return conn
    if isinstance(conn, psycopg.AsyncCursor):
        return conn.connection
    if "sqlalchemy.ext.asyncio" in sys.modules:
        return await _from_async_sqlalchemy(conn)
    raise _unfit(conn, "Async")


def _from_sqlalchemy(conn: object) -> psycopg.Connection[Any]:
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


async def _from_async_sqlalchemy(conn: object) -> psycopg.AsyncConnection[Any]:
    from sqlalchemy.ext.asyncio import AsyncConnection as SAAsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

    if isinstance(conn, AsyncSession | async_scoped_session):
        conn = await conn.connection()
    if not isinstance(conn, SAAsyncConnection):
        raise _unfit(conn, "Async")
    driver = (await conn.get_raw_connection()).driver_connection
    if not isinstance(driver, psycopg.AsyncConnection):
        raise _unfit(driver, "Async")
    if not conn.in_transaction():
        await conn.begin()
    return driver


def _unfit(conn: object, kind: str = "") -> TypeError:
    found = type(conn)
    return TypeError(
        f"conn must be a psycopg {kind}Connection or {kind}Cursor, or a SQLAlchemy"
        f" {kind}Connection or {kind}Session on psycopg,"
        f" not {found.__module__}.{found.__qualname__}"
    )
