"""Other people's connections, driven alike: SQLAlchemy's, Django's, psycopg2's, asyncpg's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import asyncpg
import django.db
import django.db.utils
import psycopg
import psycopg2
import sqlalchemy as sa
from django.conf import settings
from django.db import transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgq_sql import AsyncClient, Client


def now(value: Any) -> Any:
    """Of a library that does not wait."""
    return value


@dataclass
class Theirs:
    """Somebody's connection, in a transaction of its own; and a client that joins it."""

    client: Any
    conn: Any
    sql: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    savepoint: Callable[[], Callable[[], Any]]
    """Begins one; the answer takes back what was done since."""
    error: type[Exception]
    """What the library raises for a fault of the database."""
    wait: Callable[[Any], Any] = now

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call the client's method in the transaction."""
        return self.wait(getattr(self.client, method)(*arguments, conn=self.conn, **options))


Opener: TypeAlias = Callable[..., AbstractContextManager[Theirs]]


def url(database: str, driver: str) -> str:
    """The database's URL for SQLAlchemy."""
    if driver == "pg8000":
        given = conninfo_to_dict(database)
        if str(given["host"]).startswith("/"):
            socket = f"?unix_sock={given['host']}/.s.PGSQL.{given['port']}"
            database = database.partition("?")[0] + socket
    return database.replace("postgresql://", f"postgresql+{driver}://", 1)


@contextmanager
def native(database: str, **options: Any) -> Iterator[Theirs]:
    with psycopg.connect(database) as conn, Client(database, **options) as client:

        def savepoint() -> Callable[[], object]:
            conn.execute("savepoint here")
            return lambda: conn.execute("rollback to here")

        yield Theirs(
            client,
            conn,
            lambda text: conn.execute(text.encode()),
            conn.commit,
            conn.rollback,
            savepoint,
            psycopg.Error,
        )


@contextmanager
def of_sqlalchemy(kind: str, driver: str, database: str, **options: Any) -> Iterator[Theirs]:
    engine = sa.create_engine(url(database, driver))
    make: dict[str, Callable[[], Any]] = {
        "connection": engine.connect,
        "session": lambda: Session(engine),
        "scoped_session": lambda: scoped_session(sessionmaker(engine)),
    }
    conn = make[kind]()
    with Client(database, **options) as client:
        try:
            yield Theirs(
                client,
                conn,
                lambda text: conn.execute(sa.text(text)),
                conn.commit,
                conn.rollback,
                lambda: conn.begin_nested().rollback,
                DBAPIError,
            )
        finally:
            conn.close()
            engine.dispose()


@contextmanager
def of_async_sqlalchemy(kind: str, driver: str, database: str, **options: Any) -> Iterator[Theirs]:
    with waiting() as wait:
        engine = create_async_engine(url(database, driver))
        make: dict[str, Callable[[], Any]] = {
            "connection": lambda: wait(engine.connect()),
            "session": lambda: AsyncSession(engine),
            "scoped_session": lambda: async_scoped_session(
                async_sessionmaker(engine), scopefunc=lambda: None
            ),
        }
        conn, client = make[kind](), AsyncClient(database, **options)

        def savepoint() -> Callable[[], Any]:
            made = wait(conn.begin_nested())
            return lambda: wait(made.rollback())

        try:
            yield Theirs(
                client,
                conn,
                lambda text: wait(conn.execute(sa.text(text))),
                lambda: wait(conn.commit()),
                lambda: wait(conn.rollback()),
                savepoint,
                DBAPIError,
                wait,
            )
        finally:
            wait(conn.close())
            wait(engine.dispose())
            wait(client.close())


@contextmanager
def of_asyncpg(pooled: bool, database: str, **options: Any) -> Iterator[Theirs]:
    with waiting() as wait:
        client = AsyncClient(database, **options)
        pool: Any = wait(asyncpg.create_pool(database, min_size=0, max_size=1)) if pooled else None
        conn: Any = wait(pool.acquire() if pooled else asyncpg.connect(database))

        def begin() -> Any:
            made = conn.transaction()
            wait(made.start())
            return made

        def savepoint() -> Callable[[], Any]:
            made = begin()
            return lambda: wait(made.rollback())

        outer = begin()
        try:
            yield Theirs(
                client,
                conn,
                lambda text: wait(conn.execute(text)),
                lambda: wait(outer.commit()),
                lambda: wait(outer.rollback()),
                savepoint,
                asyncpg.PostgresError,
                wait,
            )
        finally:
            wait(pool.release(conn) if pooled else conn.close())
            if pooled:
                wait(pool.close())
            wait(client.close())


@contextmanager
def of_psycopg2(database: str, **options: Any) -> Iterator[Theirs]:
    conn = psycopg2.connect(database)

    def sql(text: str) -> None:
        with conn.cursor() as cursor:
            cursor.execute(text)

    def savepoint() -> Callable[[], None]:
        sql("savepoint here")
        return lambda: sql("rollback to here")

    with Client(database, **options) as client:
        try:
            yield Theirs(client, conn, sql, conn.commit, conn.rollback, savepoint, psycopg2.Error)
        finally:
            conn.close()


@contextmanager
def of_django(proxy: bool, database: str, **options: Any) -> Iterator[Theirs]:
    with django_on(database) as conn, Client(database, **options) as client:
        conn.set_autocommit(False)

        def sql(text: str) -> None:
            with conn.cursor() as cursor:
                cursor.execute(text)

        yield Theirs(
            client,
            django.db.connection if proxy else conn,
            sql,
            conn.commit,
            conn.rollback,
            lambda: partial(transaction.savepoint_rollback, transaction.savepoint()),
            django.db.utils.Error,
        )


@contextmanager
def django_on(database: str) -> Iterator[Any]:
    """Django's default connection, as if its settings named this database."""
    if not settings.configured:
        settings.configure(USE_TZ=True, TIME_ZONE="Asia/Kathmandu", LOGGING_CONFIG=None)
        django.setup()
    given = conninfo_to_dict(database)
    django.db.connections.settings = django.db.connections.configure_settings(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": given["dbname"],
                "HOST": given["host"],
                "PORT": given["port"],
                "USER": given["user"],
                "PASSWORD": given["password"],
            }
        }
    )
    conn = django.db.connections["default"]
    try:
        yield conn
    finally:
        conn.close()
        del django.db.connections["default"]


@contextmanager
def waiting() -> Iterator[Callable[[Awaitable[Any]], Any]]:
    """Waits for what is awaitable, in one event loop."""

    async def one(awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    with asyncio.Runner() as runner:
        yield lambda awaitable: runner.run(one(awaitable))


KINDS: dict[str, Opener] = {
    "sqlalchemy connection, psycopg2": partial(of_sqlalchemy, "connection", "psycopg2"),
    "sqlalchemy connection, psycopg": partial(of_sqlalchemy, "connection", "psycopg"),
    "sqlalchemy connection, pg8000": partial(of_sqlalchemy, "connection", "pg8000"),
    "sqlalchemy session, psycopg2": partial(of_sqlalchemy, "session", "psycopg2"),
    "sqlalchemy scoped session, psycopg2": partial(of_sqlalchemy, "scoped_session", "psycopg2"),
    "sqlalchemy async connection, asyncpg": partial(of_async_sqlalchemy, "connection", "asyncpg"),
    "sqlalchemy async connection, psycopg": partial(of_async_sqlalchemy, "connection", "psycopg"),
    "sqlalchemy async session, asyncpg": partial(of_async_sqlalchemy, "session", "asyncpg"),
    "sqlalchemy async scoped session, asyncpg": partial(
        of_async_sqlalchemy, "scoped_session", "asyncpg"
    ),
    "asyncpg": partial(of_asyncpg, False),
    "asyncpg, of a pool": partial(of_asyncpg, True),
    "psycopg2": of_psycopg2,
    "django": partial(of_django, False),
    "django, its proxy": partial(of_django, True),
}
DRIVERS = {
    name: KINDS[name]
    for name in (
        "sqlalchemy connection, psycopg2",
        "sqlalchemy connection, psycopg",
        "sqlalchemy connection, pg8000",
        "sqlalchemy async connection, asyncpg",
        "asyncpg",
        "psycopg2",
        "django",
    )
}
"""One for each way in which a call travels."""
