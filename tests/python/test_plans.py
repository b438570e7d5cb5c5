"""The functions keep their index plans, whatever the tables hold and the statistics say.

A queue table is empty when it is analysed and huge a minute later, and plans made in the first
second stay: each case is tried in a connection that has run everything on the table as it was
before the load, and in a fresh one. Autovacuum is off, or it might come to the rescue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from conftest import dbname_of
from plans import Plan, Watched
from test_marks import patch

if TYPE_CHECKING:
    from conftest import Connect
    from servers import Connection, Server

LOAD = 100_000
FEW_PAGES = 600
"""A call touches fewer; the loaded table alone has some 6,000."""

FEW_ROWS = 500
"""One scan looks at fewer; sweeps look at all jobs that run, and some are left running here."""

SETTLING = ("heartbeat_many", "release_many", "retry_many", "dead_letter_many", "ack_many")
CASES = {
    "empty": (0, 0, "never"),
    "ten rows": (10, 0, "never"),
    "loaded without statistics": (0, LOAD, "never"),
    "loaded beside ten rows": (10, LOAD, "never"),
    "loaded with statistics of an empty table": (0, LOAD, "before"),
    "loaded with statistics of ten rows": (10, LOAD, "before"),
    "loaded with statistics of a drained table": (LOAD, LOAD, "drained"),
    "loaded and analysed": (0, LOAD, "after"),
}


@pytest.fixture
def quiet(admin: Connection) -> Connection:
    """The administrator's connection to a database with a queue, where autovacuum does nothing."""
    for table in ("job", "dead_job", "mark", "lane", "queue"):
        admin.execute(f"alter table pgq_sql.{table} set (autovacuum_enabled = off)".encode())
    admin.execute("select pgq_sql.create_queue('q', visibility_timeout => '10 min')")
    return admin


def load(conn: Connection, count: int) -> None:
    """As a bulk load does: one run time for all."""
    conn.execute(
        "select count(*) from pgq_sql.enqueue_many('q', array_fill('1'::jsonb, array[%s::int]))",
        [count],
    )


def leases(session: Watched, count: int) -> list[list[Any]]:
    rows = session.run("select job_id, token from pgq_sql.claim('q', 'w', %s)", [count])
    return [[i for i, _ in rows], [t for _, t in rows]]


def calls(session: Watched) -> dict[str, list[Plan]]:
    """Each function once, with its plans."""
    plans = {
        "enqueue": session.plans("select pgq_sql.enqueue('q')"),
        "enqueue_many": session.plans("select pgq_sql.enqueue_many('q', array['1', '2']::jsonb[])"),
        "claim": session.plans("select * from pgq_sql.claim('q', 'w', 10)"),
        "next_run_at": session.plans("select pgq_sql.next_run_at('q')"),
        "sweep": session.plans("select * from pgq_sql.sweep()"),
    }
    for function in SETTLING:
        query = f"select * from pgq_sql.{function}(%s::bigint[], %s::bigint[])"
        plans[function] = session.plans(query, leases(session, 10))
        # Backwards, stale, and named twice: their slower ways.
        ids, tokens = leases(session, 10)
        batch = [[*ids[::-1], *ids[:1], -1], [*tokens[::-1], *tokens[:1], 1]]
        plans[f"{function} of a muddle"] = session.plans(query, batch)
    plans["ack"] = session.plans("select pgq_sql.ack(1, 1)")
    return plans


def walks(plans: dict[str, list[Plan]]) -> list[str]:
    return [
        f"{name}: {walk}"
        for name, ones in plans.items()
        for one in ones
        for walk in one.walks(FEW_ROWS)
    ]


def heavy(plans: dict[str, list[Plan]]) -> dict[str, int]:
    pages = {name: ones[-1].buffers for name, ones in plans.items()}
    return {name: count for name, count in pages.items() if count >= FEW_PAGES}


def prepared(quiet: Connection, server: Server, connect: Connect, case: str) -> list[Watched]:
    """Sessions opened before and after the load that the case describes."""
    rows, more, analysed = CASES[case]
    dsn = server.dsn(dbname_of(quiet.info.dsn))
    load(quiet, rows)
    if analysed == "before":
        quiet.execute("analyze")
    if analysed == "drained":
        quiet.execute("delete from pgq_sql.job where id % 20000 > 0")
        quiet.execute("vacuum analyze")
    old = Watched(connect(dsn))
    for _ in range(7):  # a plan is cached for good after five
        calls(old)
    load(quiet, more)
    if analysed == "after":
        quiet.execute("analyze")
    return [old, Watched(connect(dsn))]


@pytest.mark.parametrize("case", CASES)
def test_no_call_walks_a_table(
    quiet: Connection, server: Server, connect: Connect, case: str
) -> None:
    for session in prepared(quiet, server, connect, case):
        assert walks(calls(session)) == []
        # The first call of a session reads the catalogs, too.
        again = calls(session)
        assert walks(again) == []
        assert heavy(again) == {}


def test_these_tests_see_every_scan(quiet: Connection, server: Server, connect: Connect) -> None:
    _, session = prepared(quiet, server, connect, "ten rows")

    seen = {
        f"{scan.node['Relation Name']} by {scan.index or scan.kind}"
        for ones in calls(session).values()
        for one in ones
        for scan in one.scans()
    }

    assert seen == {
        "job by job_claim",
        "job by job_pkey",
        "job by job_expires",
        "job by Tid Scan",
        "mark by mark_pkey",
        "mark by Tid Scan",
        "lane by lane_id",
        "dead_job by dead_job_dead_at",
        "dead_job by dead_job_pkey",
    }


def test_claims_do_not_walk_what_is_finished(
    quiet: Connection, server: Server, connect: Connect
) -> None:
    """Not even those of a lone consumer, who has nothing running whenever it claims."""
    consumer = Watched(connect(server.dsn(dbname_of(quiet.info.dsn))))
    holder = connect(autocommit=False)
    holder.execute("set transaction isolation level repeatable read")
    holder.execute("select")  # nothing can be vacuumed from here on
    load(quiet, 20_000)

    def work(count: int) -> bool:
        ids, tokens = leases(consumer, count)
        consumer.run("select pgq_sql.ack_many(%s::bigint[], %s::bigint[])", [ids, tokens])
        return bool(ids)

    while work(1000):
        pass
    load(quiet, 100)
    for _ in range(4):  # marks follow at most every 50 ms, and a sweep may be due
        assert work(10)
        consumer.run("select pg_sleep(0.06)")
    plans = consumer.plans("select * from pgq_sql.claim('q', 'w', 10)")

    assert sum(scan.pages for plan in plans for scan in plan.scans()) < FEW_PAGES


@pytest.mark.parametrize("function", ["claim", "ack_many", "heartbeat_many"])
def test_without_the_pins_it_would(
    quiet: Connection, server: Server, connect: Connect, function: str
) -> None:
    for setting in ("plan_cache_mode", "enable_seqscan", "enable_bitmapscan"):
        quiet.execute(f"alter function pgq_sql.{function} reset {setting}".encode())

    old, _ = prepared(quiet, server, connect, "loaded with statistics of an empty table")

    assert any(fault.startswith(f"{function}: ") for fault in walks(calls(old)))


def test_an_ack_that_joins_its_arrays_would(
    quiet: Connection, server: Server, connect: Connect
) -> None:
    patch(
        quiet,
        "ack_many",
        "where j.id = any (ids)\n      and fences[width_bucket(j.id, ids)] = j.token\n",
        "using unnest(ids, fences) u (id, token) where j.id = u.id and j.token = u.token\n",
    )
    for setting in ("plan_cache_mode", "enable_seqscan", "enable_bitmapscan"):
        quiet.execute(
            f"alter function pgq_sql.ack_many(bigint[], bigint[], jsonb[]) reset {setting}".encode()
        )

    old, _ = prepared(quiet, server, connect, "loaded with statistics of an empty table")

    assert any(fault.startswith("ack_many: ") for fault in walks(calls(old)))
