"""The ways to install the schema, each as a person would go it: by running a command.

A way leads up to the newest release and down to nothing again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType

import servers
from servers import ROOT, SINGLE_FILE

NEWEST = "0001"

# What a schema may be called when its owner wants to see everything break.
ODD = 'Odd %s "q" :x {1} $$ a.b \' \\ Ü'


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


def run(
    *command: str | Path,
    dsn: str | None = None,
    text: str | None = None,
    cwd: Path = ROOT,
    fails: bool = False,
    env: Mapping[str, str] = MappingProxyType({}),
) -> Done:
    """Run a command; unless it `fails`, it has to succeed and be silent about errors."""
    given = {name: value for name, value in os.environ.items() if name != "PGQ_DSN"}
    if dsn is not None:
        given["PGQ_DSN"] = dsn
    done = subprocess.run(
        [str(part) for part in command],
        input=text,
        cwd=cwd,
        env={**given, "PYTHONWARNINGS": "error", **env},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    told = f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    assert (done.returncode != 0) == fails, told
    return Done(done.returncode, done.stdout, done.stderr)


def alembic(dsn: str | None, *arguments: str, cwd: Path = ROOT, fails: bool = False) -> Done:
    """The repository's alembic.ini, or that of another folder."""
    return run(sys.executable, "-m", "alembic", *arguments, dsn=dsn, cwd=cwd, fails=fails)


def pgq(
    dsn: str | None,
    *arguments: str,
    fails: bool = False,
    env: Mapping[str, str] = MappingProxyType({}),
) -> Done:
    """Our own command, from a folder that has nothing to do with it."""
    command = (sys.executable, "-m", "pgq_sql.cli", *arguments)
    return run(*command, dsn=dsn, cwd=Path(tempfile.gettempdir()), fails=fails, env=env)


def psql(dsn: str, *arguments: str | Path, text: str | None = None, fails: bool = False) -> Done:
    """The psql at hand; a script in `text` stops at its first error."""
    program = servers.psql()
    assert program is not None
    return run(
        program, "-X", "-q", "-v", "ON_ERROR_STOP=1", *arguments, dsn, text=text, fails=fails
    )


@dataclass(frozen=True)
class Way:
    """How to install, and how to remove, a schema in a database."""

    up: Callable[[str, str, Path], object]
    down: Callable[[str, str, Path], object]


def _sql(dsn: str, schema: str, *arguments: str) -> None:
    psql(dsn, text=pgq(None, "sql", "--schema", schema, *arguments).out)


def _alembic_offline(dsn: str, schema: str, *arguments: str) -> None:
    psql(dsn, text=alembic(None, "-x", f"schema={schema}", *arguments, "--sql").out)


def _application(driver: str) -> Way:
    return Way(
        lambda dsn, schema, folder: alembic(
            dsn, "upgrade", "head", cwd=application(folder, schema, driver)
        ),
        lambda dsn, schema, folder: alembic(
            dsn, "downgrade", "base", cwd=application(folder, schema, driver)
        ),
    )


def _application_offline(dsn: str, schema: str, folder: Path, *arguments: str) -> None:
    project = application(folder, schema, "none")
    psql(dsn, text=alembic(None, *arguments, "--sql", cwd=project).out)


WAYS = {
    "psql -f pgq_sql.sql": Way(
        lambda dsn, schema, _: psql(dsn, "-v", f"schema={schema}", "-f", SINGLE_FILE),
        lambda dsn, schema, _: _sql(dsn, schema, "--from", NEWEST, "--to", "base"),
    ),
    "pgq sql": Way(
        lambda dsn, schema, _: _sql(dsn, schema),
        lambda dsn, schema, _: _sql(dsn, schema, "--from", NEWEST, "--to", "base"),
    ),
    "pgq migrate": Way(
        lambda dsn, schema, _: pgq(dsn, "migrate", "--schema", schema),
        lambda dsn, schema, _: pgq(
            dsn, "migrate", "--schema", schema, "--downgrade", "--to", "base"
        ),
    ),
    "alembic": Way(
        lambda dsn, schema, _: alembic(dsn, "-x", f"schema={schema}", "upgrade", "head"),
        lambda dsn, schema, _: alembic(dsn, "-x", f"schema={schema}", "downgrade", "base"),
    ),
    "alembic --sql": Way(
        lambda dsn, schema, _: _alembic_offline(dsn, schema, "upgrade", "head"),
        lambda dsn, schema, _: _alembic_offline(dsn, schema, "downgrade", f"{NEWEST}:base"),
    ),
    "application, psycopg": _application("psycopg"),
    "application, psycopg2": _application("psycopg2"),
    "application, asyncpg": _application("asyncpg"),
    "application --sql": Way(
        lambda dsn, schema, folder: _application_offline(dsn, schema, folder, "upgrade", "head"),
        lambda dsn, schema, folder: _application_offline(
            dsn, schema, folder, "downgrade", "app_3:base"
        ),
    ),
}
"""By name."""


def application(folder: Path, schema: str, driver: str) -> Path:
    """An application with Alembic migrations of its own; the second of three makes the queue."""
    folder = folder / "application"
    if folder.exists():
        return folder
    (folder / "migrations/versions").mkdir(parents=True)
    (folder / "alembic.ini").write_text("[alembic]\nscript_location = %(here)s/migrations\n")
    (folder / "migrations/env.py").write_text(ENV.replace("DRIVER", driver))
    for number, up, down in (
        (1, 'op.create_table("app_before", sa.Column("id", sa.Integer))',
         'op.drop_table("app_before")'),
        # Its own tables before and after in one revision: they stay where the application wants.
        (2, f'pgq_sql.alembic.upgrade(op, to="{NEWEST}", schema={schema!r})\n'
            '    op.create_table("app_after", sa.Column("id", sa.Integer))',
         f'pgq_sql.alembic.downgrade(op, schema={schema!r})\n    op.drop_table("app_after")'),
        (3, 'op.add_column("app_after", sa.Column("note", sa.Text))',
         'op.drop_column("app_after", "note")'),
    ):  # fmt: skip
        before = repr(f"app_{number - 1}") if number > 1 else None
        revision(folder, f"app_{number}", before, up, down)
    return folder


def revision(folder: Path, name: str, before: str | None, up: str, down: str = "pass") -> None:
    """Write a revision of an application."""
    (folder / f"migrations/versions/{name}.py").write_text(
        dedent(
            f"""\
            import sqlalchemy as sa
            from alembic import op
            import pgq_sql.alembic

            revision = {name!r}
            down_revision = {before}

            def upgrade():
                UP

            def downgrade():
                DOWN
            """
        )
        .replace("UP", up)
        .replace("DOWN", down)
    )


# What Alembic's own templates do, in short.
ENV = """\
import asyncio
import os

from alembic import context
from sqlalchemy import create_engine, pool

DSN = os.environ.get("PGQ_DSN")
NAME = "DRIVER"


def run(connection):
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()


async def run_async():
    import asyncpg
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(DSN), poolclass=pool.NullPool
    )
    async with engine.connect() as connection:
        await connection.run_sync(run)
    await engine.dispose()


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif NAME == "asyncpg":
    asyncio.run(run_async())
else:
    driver = __import__(NAME)
    engine = create_engine(
        f"postgresql+{NAME}://", creator=lambda: driver.connect(DSN), poolclass=pool.NullPool
    )
    with engine.connect() as connection:
        run(connection)
"""
