"""What doctor() finds about other sessions; tests/sql/doctor.sql has the rest."""

from __future__ import annotations

import pytest

from conftest import Connect
from servers import ROOT, Connection

CLOCK = (ROOT / "tests" / "sql" / "support" / "clock.sql").read_text()

FOUND = """
    select severity, subject, detail from pgq_sql.doctor() where finding = %s
    and (subject like 'queue %%' or subject like 'pid %%')"""


@pytest.fixture
def later(admin: Connection, conn: Connection) -> Connection:
    """The owner's connection to a database with a queue, whose clock is ten minutes ahead."""
    conn.execute("select pgq_sql.create_queue('q')")
    admin.execute(CLOCK.encode())
    conn.execute("set test.ahead = '10 min'")
    return conn


def found(conn: Connection, finding: str) -> list[tuple[object, ...]]:
    return conn.execute(FOUND, [finding]).fetchall()


def test_long_transaction(later: Connection, connect: Connect) -> None:
    other = connect(autocommit=False)
    other.execute("set transaction isolation level repeatable read")
    other.execute("select 1")

    ours = [row for row in found(later, "long transaction") if row[1] == f"pid {pid_of(other)}"]

    assert len(ours) == 1
    assert ours[0][0] == "warning"
    assert "idle in transaction" in str(ours[0][2])
    other.rollback()
    assert f"pid {pid_of(other)}" not in [row[1] for row in found(later, "long transaction")]


def test_open_producer(later: Connection, connect: Connect) -> None:
    other = connect(autocommit=False)
    other.execute("select pgq_sql.enqueue('q', priority => 3)")
    later.execute("select pgq_sql.enqueue('q', priority => 3)")
    later.execute("select pgq_sql.pop('q')")
    later.execute("select pgq_sql.sweep()")

    ((severity, subject, detail),) = found(later, "open producer")

    assert (severity, subject) == ("warning", 'queue "q"')
    assert str(detail).startswith("priority 3, since ")
    assert str(detail).endswith(f", pids {pid_of(other)}")
    other.commit()
    later.execute("select pgq_sql.sweep()")
    assert found(later, "open producer") == []


def pid_of(conn: Connection) -> int:
    return conn.info.backend_pid
