"""Alembic's entry: one transaction, with the schema's own prelude before Alembic's work.

The prelude (releases/prelude.sql) makes the schema, which Alembic's version table needs, and takes
the lock that lets one upgrade run at a time, before that table is read.

The database is config.attributes["connection"], a SQLAlchemy connection whose transaction is
joined, or what PGQ_DSN and libpq's variables say. Its URL never passes through a configuration
file, so a `%` in a password is safe. Logging is left alone.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from pgq_sql import _install
from pgq_sql.alembic import execute
from pgq_sql.errors import PgqError

config = context.config
options = {"schema": _install.SCHEMA, **context.get_x_argument(as_dictionary=True)}
schema = options.pop("schema")
if options:
    raise CommandError(f"unknown option -x {', '.join(options)}: there is schema=NAME")


def offline() -> None:
    """Print the SQL."""
    run(dialect_name="postgresql", dialect_opts={"paramstyle": "named"})


def online() -> None:
    """Run in the caller's transaction, or in one of our own."""
    connection: Connection | None = config.attributes.get("connection")
    if connection is None:
        engine = create_engine(
            "postgresql+psycopg://", creator=_install.connect, poolclass=NullPool
        )
        with engine.begin() as connection:
            run(connection=connection)
    else:
        with nullcontext() if connection.in_transaction() else connection.begin():
            run(connection=connection)


def run(**target: Any) -> None:
    """Do what the command asks for, between prelude and postlude."""
    reached: list[Collection[str]] = []
    context.configure(
        version_table_schema=schema,
        on_version_apply=lambda ctx, step, heads, run_args: reached.append(heads),  # noqa: ARG005
        **target,
    )
    migration = context.get_context()
    if migration.opts.get("dont_mutate"):  # `alembic current` only looks
        context.run_migrations()
        return
    with context.begin_transaction():
        prelude(migration)
        reached.append(migration.get_current_heads())
        if not migration.as_sql:
            for head in reached[-1]:
                _install.refuse_unknown(head, schema)
        context.run_migrations()
        for statement in (*(() if reached[-1] else _install.remove()), *_install.postlude()):
            execute(migration, statement)


def prelude(migration: MigrationContext) -> None:
    """Say what stands in the way in one line, as Alembic does with its own errors."""
    try:
        for statement in _install.prelude(schema):
            execute(migration, statement)
    except DBAPIError as error:
        raise CommandError(_install.with_hint(error.orig or error)) from error


try:
    offline() if context.is_offline_mode() else online()
except PgqError as error:
    raise CommandError(_install.with_hint(error)) from error
