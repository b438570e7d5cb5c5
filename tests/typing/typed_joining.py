"""Whose transactions `conn=` joins."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import psycopg2
from psycopg.rows import DictRow
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from pgq_sql import AsyncClient, Client


def sync(
    client: Client,
    plain: psycopg.Connection,
    rows: psycopg.Connection[DictRow],
    cursor: psycopg.Cursor[Any],
    core: Connection,
    session: Session,
    scoped: scoped_session[Session],
) -> None:
    client.enqueue("q", conn=plain)
    client.enqueue("q", conn=rows)
    client.enqueue("q", conn=cursor)
    client.enqueue("q", conn=core)
    client.enqueue("q", conn=session)
    client.enqueue("q", conn=scoped)
    client.enqueue("q", conn=psycopg2.connect(""))
    client.enqueue("q", conn=None)
    client.require_lease(1, 1, conn=session)


def sync_refuses(
    client: Client,
    plain: psycopg.AsyncConnection,
    cursor: psycopg.AsyncCursor[Any],
    core: AsyncConnection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    engine: Engine,
) -> None:
    client.enqueue("q", conn=plain)  # type: ignore[arg-type]
    client.enqueue("q", conn=cursor)  # type: ignore[arg-type]
    client.enqueue("q", conn=core)  # type: ignore[arg-type]
    client.enqueue("q", conn=session)  # type: ignore[arg-type]
    client.enqueue("q", conn=scoped)  # type: ignore[arg-type]
    client.enqueue("q", conn=engine)  # type: ignore[arg-type]
    client.enqueue("q", conn="host=x")  # type: ignore[arg-type]
    client.require_lease(1, 1, conn=None)  # type: ignore[arg-type]


async def waits(
    client: AsyncClient,
    plain: psycopg.AsyncConnection,
    rows: psycopg.AsyncConnection[DictRow],
    cursor: psycopg.AsyncCursor[Any],
    core: AsyncConnection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
) -> None:
    await client.enqueue("q", conn=plain)
    await client.enqueue("q", conn=rows)
    await client.enqueue("q", conn=cursor)
    await client.enqueue("q", conn=core)
    await client.enqueue("q", conn=session)
    await client.enqueue("q", conn=scoped)
    await client.enqueue("q", conn=await asyncpg.connect(""))


async def waits_refuses(
    client: AsyncClient,
    plain: psycopg.Connection,
    cursor: psycopg.Cursor[Any],
    core: Connection,
    session: Session,
) -> None:
    await client.enqueue("q", conn=plain)  # type: ignore[arg-type]
    await client.enqueue("q", conn=cursor)  # type: ignore[arg-type]
    await client.enqueue("q", conn=core)  # type: ignore[arg-type]
    await client.enqueue("q", conn=session)  # type: ignore[arg-type]


def pools(pool: ConnectionPool[Any], waits: AsyncConnectionPool[Any]) -> None:
    Client(pool)
    AsyncClient(waits)
    Client(waits)  # type: ignore[arg-type]
    AsyncClient(pool)  # type: ignore[arg-type]
