"""The clients: one method for each public function of the schema, with the same name."""

from __future__ import annotations

from . import _async, _sync
from ._conninfo import of_pool


class Client(_sync.Producing, _sync.Consuming, _sync.Controlling, _sync.Looking):
    """Calls the queue's functions in PostgreSQL.

    `conninfo` is a connection string, a `psycopg_pool.ConnectionPool`, or None for PGQ_DSN or
    libpq's variables. Nothing connects before the first call. Usable from any number of threads.

    Each call is a transaction of its own, unless `conn=` names the one to join: a psycopg
    Connection or Cursor, a SQLAlchemy Connection or Session on any driver, Django's connection or
    psycopg2's. Such a call never commits. An option that is None takes the queue's default.

    JSON comes back as it went in, numbers as jsonb keeps them (1e23 becomes an int), or is refused:
    no NaN, NUL, lone surrogates, tuples, keys that are no strings. `dumps` and `loads` replace
    that, with a faster encoder or one for more types.

    Refusals raise subclasses of `PgqError`; faults of the database stay psycopg's exceptions, or
    those of the library that `conn=` is from.
    """


class AsyncClient(_async.Producing, _async.Consuming, _async.Controlling, _async.Looking):
    """`Client` for asyncio: the same methods, to be awaited, and the same answers.

    A pool is a `psycopg_pool.AsyncConnectionPool`; `conn=` takes a psycopg AsyncConnection or
    AsyncCursor, a SQLAlchemy AsyncConnection or AsyncSession on any driver, or asyncpg's
    connection. For one event loop.
    """

    def _blocking(self) -> Client:
        """A `Client` of the same database, schema and JSON, with connections of its own."""
        pool = self._conninfo
        conninfo = pool if isinstance(pool, str | None) else of_pool(pool)
        return Client(conninfo, schema=self.schema, dumps=self._dumps, loads=self._loads)
