"""The client: one method for each public function of the schema, with the same name."""

from __future__ import annotations

from . import _releases
from ._connections import Joinable
from ._consume import Consuming
from ._control import Controlling
from ._look import Looking
from ._produce import Producing
from .errors import MIGRATE, VersionMismatch

OLDEST = "0001"
"""The oldest release of the schema that has every function this client calls."""


class Client(Producing, Consuming, Controlling, Looking):
    """Calls the queue's functions in PostgreSQL.

    `conninfo` is a connection string, a `psycopg_pool.ConnectionPool`, or None for PGQ_DSN or
    libpq's variables. Nothing connects before the first call. Usable from any number of threads.

    Each call is a transaction of its own, unless `conn=` names the one to join: a psycopg
    Connection or Cursor, or a SQLAlchemy Connection or Session on psycopg. Such a call never
    commits. An option that is None takes the queue's default.

    JSON comes back as it went in, or is refused: no NaN, NUL, lone surrogates, tuples, keys that
    are no strings. `dumps` and `loads` replace that, with a faster encoder or one for more types.

    Refusals raise subclasses of `PgqError`; faults of the database stay psycopg's exceptions.
    """

    def check(self, *, conn: Joinable | None = None) -> str:
        """The release of the schema; VersionMismatch if this package doesn't fit it."""
        found, newest = self.schema_version(conn=conn), _releases.path()[-1]
        if found < OLDEST:
            raise VersionMismatch(
                f'schema "{self.schema}" is at {found}, this package needs {OLDEST} or later',
                hint=MIGRATE,
            )
        if found > newest:
            raise VersionMismatch(
                f'schema "{self.schema}" is at {found}, this package knows up to {newest}',
                hint="Upgrade the package pgq_sql.",
            )
        return found
