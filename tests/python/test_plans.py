"""The functions keep their index plans, whatever the tables hold and the statistics say.

A queue table is empty when it is analysed and huge a minute later, and plans made in the first
second stay: each case is tried in a connection that has run everything on the table as it was
before the load, and in a fresh one. Autovacuum is off, or it might come to the rescue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from conftest import dbname_of
from plans import NOTHING, Plan, Watched
from test_marks import patch

if TYPE_CHECKING:
    from conftest import Connect
    from servers import Connection, Server

LOAD = 100_000
FEW_PAGES = 600
"""A call touches fewer; the loaded table alone has some 6,000."""

FEW_ROWS = 500
"""One scan looks at fewer; sweeps look at all jobs that run, and some are left running here."""

# Where a function may read more than BOUNDS says: the jobs of one queue, the dead in their order,
# a page of ids.
ALSO: dict[str, dict[str, tuple[str, ...]]] = {
    "discard_dead of a queue": {"dead_job_dead_at": ("(queue_id = ",)},
    "doctor": {
        "lane_id": (),
        "job_claim": ("(lane_id = ", "(run_at "),
        "dead_job_dead_at": ("(queue_id = ",),
    },
    "drop_queue": {
        "job_claim": ("(lane_id >= ", "(lane_id <= "),
        "lane_id": ("(id >= ", "(id <= "),
        "mark_pkey": ("(lane_id >= ", "(lane_id <= "),
        "dedup_pkey": ("(queue_id = ",),
    },
    "list_jobs": dict.fromkeys(("job_pkey", "dead_job_pkey", "done_job_pkey"), ("(id > ",)),
    "purge_queue": {"job_claim": ("(lane_id >= ", "(lane_id <= ")},
    "queue_stats": {
        "job_claim": ("(lane_id = ", "(run_at "),
        "dead_job_dead_at": ("(queue_id = ",),
    },
    "redrive": {"lane_id": ("(id = ",)},
    "redrive of a queue": {"dead_job_dead_at": ("(queue_id = ",), "lane_id": ("(id = ",)},
    "reprioritize": {"lane_id": ("(id = ",)},
    "redrive_queue": {"job_claim": ("(lane_id = ", "(run_at <= ")},
    # Whether anything is left of a dropped queue.
    "sweep": {
        "job_claim": ("(lane_id >= ", "(lane_id <= "),
        "dead_job_dead_at": ("(queue_id = ",),
    },
}
MOST = {"doctor": 5000, "list_jobs": 1000, "sweep": 1000}
"""A thousand jobs a lane, ids a page, and jobs above a lane's head; the others: FEW_ROWS."""
PAGES = {"doctor": 2500, "list_jobs": 2500, "sweep": 2000}
"""Every queue and all that was finished since the last vacuum; some ids in each day of history;
the others: FEW_PAGES."""

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
    """The administrator's connection to a database with queues, where autovacuum does nothing."""
    admin.execute(
        "select pgq_sql.create_queue(queue, visibility_timeout => '10 min')"
        " from unnest(array['q', 'buried', 'letters']) queue"
    )
    admin.execute("select pgq_sql.create_queue('kept', keep_done => '7 days')")
    admin.execute("select pgq_sql.create_queue('origin', dead_letter_queue => 'letters')")
    admin.execute("select pgq_sql.create_queue('dropped')")
    admin.execute("select pgq_sql.drop_queue('dropped')")
    tables = admin.execute(
        "select oid::regclass::text from pg_class"
        " where relnamespace = 'pgq_sql'::regnamespace and relkind = 'r'"
    ).fetchall()
    for (table,) in tables:
        admin.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
    return admin


def load(conn: Connection, count: int) -> None:
    """As a bulk load does: one run time for all. And a fifth of that dead, done, dead letters."""
    fill = "select count(*) from pgq_sql.enqueue_many(%s, array_fill(%s::jsonb, array[%s::int]))"
    letter = '{"schema": "pgq_sql.dead-letter.v1", "queue": "origin", "payload": 1}'
    conn.execute(fill, ["q", "1", count])
    conn.execute(fill, ["letters", letter, count // 5])
    columns = "id, queue_id, priority, run_at, enqueued_at, settings, token, attempt, payload"
    values = "nextval('pgq_sql.job_id_seq'), id, 0, now(), now(), version, 1, 1, '1', now()"
    for table, query, queue in (
        ("dead_job", f"({columns}, dead_at, reason) select {values}, 'failed'", "buried"),
        (
            "done_job",
            f"({columns}, done_at, outcome, keep_until) select {values}, 'acked',"
            " now() + interval '7 days'",
            "kept",
        ),
        ("dedup", "(queue_id, key, job_id) select id, gen_random_uuid(), 0", "kept"),
    ):
        conn.execute(
            (
                f"insert into pgq_sql.{table} {query}"
                " from pgq_sql.queue, generate_series(1, %s) where name = %s"
            ).encode(),
            [count // 5, queue],
        )


def leases(session: Watched, count: int, queue: str = "q") -> list[list[Any]]:
    rows = session.run("select job_id, token from pgq_sql.claim(%s, 'w', %s)", [queue, count])
    return [[i for i, _ in rows], [t for _, t in rows]]


def made(session: Watched, arguments: str) -> int:
    """A new job's id."""
    return int(session.run(f"select job_id from pgq_sql.enqueue({arguments})")[0][0])


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
    return plans | keyed(session) | controlled(session) | redriven(session) | looked(session)


def keyed(session: Watched) -> dict[str, list[Plan]]:
    """What has to do with dedup keys and history."""
    key = f"'{session.run('select gen_random_uuid()')[0][0]}'"
    enqueue = f"select pgq_sql.enqueue('kept', dedup_key => {key})"
    replace = f"select pgq_sql.enqueue('kept', dedup_key => {key}, dedup_mode => 'replace')"
    many = (
        "select pgq_sql.enqueue_many('kept', array['1', '2', '3']::jsonb[],"
        f" dedup_keys => array[{key}, gen_random_uuid()::text, null])"
    )
    plans = {
        "enqueue with a key": session.plans(enqueue),
        "enqueue with a key in use": session.plans(enqueue),
        "replace": session.plans(replace),
    }
    ((job,), (token,)) = leases(session, 1, "kept")
    plans["replace of a job that runs"] = session.plans(replace)
    plans["require_lease"] = session.plans("select pgq_sql.require_lease(%s, %s)", [job, token])
    plans["ack with history"] = session.plans("select pgq_sql.ack(%s, %s, '1')", [job, token])
    plans["enqueue_many with keys"] = session.plans(many)
    plans["ack_many with history"] = session.plans(
        "select pgq_sql.ack_many(%s::bigint[], %s::bigint[])", leases(session, 2, "kept")
    )
    plans["pop"] = session.plans("select pgq_sql.pop('kept', 5)")
    session.run(enqueue)
    plans["dead_letter with a key"] = session.plans(
        "select pgq_sql.dead_letter_many(%s::bigint[], %s::bigint[])", leases(session, 1, "kept")
    )
    return plans


def controlled(session: Watched) -> dict[str, list[Plan]]:
    waiting = made(session, "'kept', delay => '1 h', dedup_key => gen_random_uuid()::text")
    calls = {
        "suspend": "suspend(%s)",
        "resume": "resume(%s)",
        "reprioritize": "reprioritize(%s, 3)",
        "promote": "promote(%s)",
        "promote in vain": "promote(%s)",
        "cancel": "cancel(%s)",
        "cancel in vain": "cancel(%s)",
    }
    return {
        name: session.plans(f"select pgq_sql.{call}", [waiting]) for name, call in calls.items()
    }


def redriven(session: Watched) -> dict[str, list[Plan]]:
    """Dead jobs and dead letters, and back."""
    dead = made(session, "'buried'")
    plans = {
        "dead_letter": session.plans(
            "select pgq_sql.dead_letter_many(%s::bigint[], %s::bigint[])",
            leases(session, 1, "buried"),
        ),
        "redrive": session.plans("select pgq_sql.redrive(array[%s]::bigint[])", [dead]),
        "redrive of a queue": session.plans("select pgq_sql.redrive(queue => 'buried', n => 10)"),
        "discard_dead of a queue": session.plans(
            "select pgq_sql.discard_dead(queue => 'buried', n => 10)"
        ),
        "purge_queue": session.plans("select pgq_sql.purge_queue('buried')"),
    }
    made(session, "'origin'")
    plans["dead_letter to a queue"] = session.plans(
        "select pgq_sql.dead_letter_many(%s::bigint[], %s::bigint[])", leases(session, 1, "origin")
    )
    plans["redrive_queue"] = session.plans("select pgq_sql.redrive_queue('letters', 10)")
    session.run("select pgq_sql.create_queue('leaving')")
    made(session, "'leaving', dedup_key => 'k'")
    plans["drop_queue"] = session.plans("select pgq_sql.drop_queue('leaving', true)")
    return plans


def looked(session: Watched) -> dict[str, list[Plan]]:
    def all_of(*queries: str) -> list[Plan]:
        return [plan for query in queries for plan in session.plans(f"select * from {query}")]

    return {
        "get_job": all_of("pgq_sql.get_job(1)", "pgq_sql.get_job(-1)"),
        "list_jobs": all_of(
            "pgq_sql.list_jobs(n => 10)",
            "pgq_sql.list_jobs(after => 5, n => 100)",
            "pgq_sql.list_jobs('q', 'ready', n => 100)",
            "pgq_sql.list_jobs(state => 'dead', n => 10)",
            "pgq_sql.list_jobs('kept', 'done', n => 10)",
        ),
        "queue_stats": all_of(
            "pgq_sql.queue_stats('q', 100)",
            "pgq_sql.queue_stats('kept', 100)",
            "pgq_sql.queue_stats('buried', 100)",
        ),
        "doctor": all_of("pgq_sql.doctor()"),
    }


def walks(plans: dict[str, list[Plan]]) -> list[str]:
    return [
        f"{name}: {walk}"
        for name, ones in plans.items()
        for one in ones
        for walk in one.walks(MOST.get(name, FEW_ROWS), ALSO.get(name, NOTHING))
    ]


def heavy(plans: dict[str, list[Plan]]) -> dict[str, int]:
    pages = {name: ones[-1].buffers for name, ones in plans.items()}
    return {name: n for name, n in pages.items() if n >= PAGES.get(name, FEW_PAGES)}


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
        f"{scan.table} by {scan.index or scan.kind}"
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
        "dedup by dedup_pkey",
        "dedup by Tid Scan",
        "done_job by done_job_pkey",
        "done_job by done_job_queue_id_done_at_idx",
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
