"""The queue's schema in an application's own Alembic migrations.

A revision of the application pins a release:

    from alembic import op
    import pgq_sql.alembic

    def upgrade() -> None:
        pgq_sql.alembic.upgrade(op, to="0001")

    def downgrade() -> None:
        pgq_sql.alembic.downgrade(op)

A later one goes on from there, with `upgrade(op, to="0002", from_="0001")` and
`downgrade(op, to="0001", from_="0002")`. The application keeps its one line of revisions and its
one head. Works online with psycopg, psycopg2 and asyncpg, and offline with `--sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from ._install import SCHEMA, InstallError, apply, at_least, at_most, resolve, script
from ._releases import BASE, after

__all__ = ["InstallError", "downgrade", "include_name", "upgrade"]


class Operations(Protocol):
    """What is used of `alembic.op`."""

    def get_context(self) -> Any: ...


def upgrade(op: Operations, to: str, *, from_: str | None = None, schema: str = SCHEMA) -> None:
    """Bring the schema to release `to`; if it is there already, or further, leave it.

    Online the database says where to start. Offline `from_` does (default: nothing is there),
    and the SQL refuses to run on anything else.
    """
    choose = partial(at_least, resolve(to))
    _change(op.get_context(), schema, resolve(from_ or BASE), choose)


def downgrade(
    op: Operations, to: str = BASE, *, from_: str | None = None, schema: str = SCHEMA
) -> None:
    """Bring the schema back to release `to`, by default to nothing; if it is there, leave it.

    Online the database says where to start. Offline `from_` does (default: the release after
    `to`), and the SQL refuses to run on anything else.
    """
    choose = partial(at_most, resolve(to))
    _change(op.get_context(), schema, resolve(from_) if from_ else after(to), choose)


def execute(context: Any, statement: str) -> Any:
    """Run a statement through Alembic exactly as it is written, or print it so.

    `op.execute` would take `:name`, a JSON `{"a":1}` and every `%` in a function's body for
    parameters.
    """
    if context.as_sql:
        return context.impl.static_output(statement)
    return context.bind.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _change(context: Any, schema: str, start: str, choose: Callable[[str], str]) -> None:
    if context.as_sql:
        for statement in script(schema, start, choose(start)):
            execute(context, statement)
    else:
        apply(partial(execute, context), schema, choose)


def include_name(
    name: str | None,
    type_: str,
    parent_names: Mapping[str, str | None],
    *,
    schema: str = SCHEMA,
) -> bool:
    """For `context.configure(include_name=…)`: autogenerate leaves the queue's schema alone."""
    return schema not in (name if type_ == "schema" else None, parent_names.get("schema_name"))
