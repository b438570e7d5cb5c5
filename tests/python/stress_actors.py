"""Who takes part in a stress run: producers, claimers, and those that make it hard for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import QueryCanceled, SerializationFailure

from stress_ledger import Lease, Stray
from test_concurrency import scalar

if TYPE_CHECKING:
    import random
    from datetime import datetime

    from servers import Connection
    from stress import Stress

    Actor = Callable[[Stress, random.Random], None]

QUEUE = "stress"


def rows(conn: Connection, query: str, *params: object) -> list[tuple[Any, ...]]:
    return conn.execute(query.encode(), params).fetchall()


def clock(conn: Connection) -> datetime:
    now: datetime = rows(conn, "select clock_timestamp()")[0][0]
    return now


def killed(error: psycopg.OperationalError) -> bool:
    """Whether a killer ended or cancelled the session, or it was gone already."""
    return error.sqlstate in (None, "57P01", "57014")


def again_and_again(kind: str, once: Callable[[Stress, Connection, random.Random], None]) -> Actor:
    """Does it until the run ends, in a new session when the last one was killed."""

    def actor(stress: Stress, rng: random.Random) -> None:
        while stress.going():
            try:
                with stress.connect(kind) as conn:
                    while stress.going():
                        try:
                            once(stress, conn, rng)
                        except QueryCanceled:
                            conn.execute("rollback")
                    check_no_lock_is_left(conn)
            except psycopg.OperationalError as error:
                if not (stress.plan.killers and killed(error)):
                    raise

    return actor


def check_no_lock_is_left(conn: Connection) -> None:
    """A try-lock that a cancelled call had not let go would stop every producer."""
    held = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    assert scalar(conn, held) == 0, "an advisory lock is left"


def begin(conn: Connection, isolation: str) -> None:
    conn.execute(f"begin isolation level {isolation}".encode())


def produce(stress: Stress, conn: Connection, rng: random.Random) -> None:
    """A transaction that enqueues, dawdles, and commits or not."""
    plan, ledger = stress.plan, stress.ledger
    begin(conn, rng.choice(plan.produce_isolation))
    try:
        ids: list[int] = []
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.2:
                conn.execute("savepoint s")
                enqueue(stress, conn, rng)
                conn.execute("rollback to savepoint s")
            ids += enqueue(stress, conn, rng)
            if rng.random() < 0.3:
                time.sleep(rng.uniform(0, min(0.15, plan.longest_hold)))
        if rng.random() < 0.2:
            time.sleep(rng.uniform(0, plan.longest_hold))
        if rng.random() < 0.15:
            conn.execute("rollback")
            return
    except SerializationFailure:
        conn.execute("rollback")
        return
    try:
        conn.execute("commit")
    except SerializationFailure:
        conn.execute("rollback")
        return
    except psycopg.OperationalError:
        with ledger.lock:
            ledger.unsure.update(ids)
        raise
    with ledger.lock:
        ledger.committed.update(ids)
    now = clock(conn)
    with ledger.lock:
        ledger.visible_by.update({(job_id, 0): now for job_id in ids})


def enqueue(stress: Stress, conn: Connection, rng: random.Random) -> list[int]:
    priority = rng.choice(stress.plan.priorities)
    delay = rng.choice([None, None, None, "0", "30 ms", "200 ms"])
    if rng.random() < 0.7:
        made = rows(
            conn,
            "select job_id from pgq_sql.enqueue(%s, '{}', priority => %s, delay => %s)",
            QUEUE,
            priority,
            delay,
        )
    else:
        n = rng.randint(1, 5)
        made = rows(
            conn,
            "select job_id from pgq_sql.enqueue_many(%s, array_fill('{}'::jsonb, array[%s]),"
            " priorities => %s::int[], delays => %s::interval[])",
            QUEUE,
            n,
            [rng.choice(stress.plan.priorities) for _ in range(n)],
            [delay] * n,
        )
    return [job_id for (job_id,) in made]


def consume(stress: Stress, conn: Connection, rng: random.Random) -> None:
    """A transaction that claims, and another that settles what it got."""
    isolation = rng.choice(stress.plan.claim_isolation)
    begin(conn, isolation)
    try:
        if isolation != "read committed":
            conn.execute("select")  # the snapshot is taken here
            time.sleep(rng.uniform(0, 0.3))
        leases = claim(stress, conn, rng.randint(1, 20))
        if rng.random() < 0.4:
            time.sleep(rng.uniform(0, 0.1))
        if rng.random() < stress.plan.claim_rollback:
            conn.execute("rollback")
            return
        conn.execute("commit")
    except SerializationFailure:
        conn.execute("rollback")
        return
    with stress.ledger.lock:
        stress.ledger.claims.update(leases.keys())
        stress.ledger.leases.update(leases)
    if not leases:
        time.sleep(rng.uniform(0, 0.03))
    elif rng.random() >= stress.plan.abandon:
        settle(stress, conn, rng, [*leases])


def claim(stress: Stress, conn: Connection, n: int) -> dict[tuple[int, int], Lease]:
    query = "select job_id, token, observed_at, lease_until from pgq_sql.claim(%s, 'stress', %s)"
    return {(i, token): Lease(seen, until) for i, token, seen, until in rows(conn, query, QUEUE, n)}


def settle(
    stress: Stress, conn: Connection, rng: random.Random, leases: list[tuple[int, int]]
) -> None:
    plan, ledger = stress.plan, stress.ledger
    with ledger.lock:
        ledger.held[id(conn)] = leases
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0, plan.work))
    usual = 1 - plan.retry - plan.release
    weights = [usual, plan.retry, plan.release]
    verb = rng.choices(["ack_many", "retry_many", "release_many"], weights)[0]
    try:
        finish(stress, conn, verb, leases)
    finally:
        with ledger.lock:
            del ledger.held[id(conn)]


def finish(stress: Stress, conn: Connection, verb: str, leases: list[tuple[int, int]]) -> None:
    ledger = stress.ledger
    ids = [job_id for job_id, _ in leases]
    with ledger.lock:
        for job_id, token in leases:
            ledger.leases[job_id, token].over = verb != "ack_many"
    try:
        query = f"select ordinal, outcome from pgq_sql.{verb}(%s, %s)"
        answers = rows(conn, query, *columns(leases))
    except psycopg.OperationalError:
        with ledger.lock:
            ledger.unsure.update(ids)
        raise
    settled = [leases[place - 1] for place, outcome in answers if outcome in ENDS]
    if verb == "ack_many":
        with ledger.lock:
            ledger.acked.update(settled)
    elif settled:
        now = clock(conn)
        with ledger.lock:
            ledger.visible_by.update(dict.fromkeys(settled, now))


ENDS = ("acked", "retried", "released")


def columns(leases: list[tuple[int, int]]) -> list[list[int]]:
    return [[job_id for job_id, _ in leases], [token for _, token in leases]]


def claim_all(stress: Stress, conn: Connection, rng: random.Random) -> None:
    """Once all is quiet, one claimer takes what there is: what it does not find is stranded.

    With sweeps it waits for what they bring back; without, only for jobs that are not due yet.
    """
    more = "lease_until is null and run_at > now()"
    if stress.plan.sweeps:
        more = "lease_until is null or lease_until < now() + interval '10 s'"
    ends = time.monotonic() + stress.plan.patience
    waiting: object = True
    while waiting and time.monotonic() < ends and not stress.ledger.faulty():
        # Looked at before the claim: what becomes due in between, it finds.
        waiting = scalar(conn, f"select exists (select from pgq_sql.job where {more})")
        while leases := claim(stress, conn, 1000):
            stress.ledger.claims.update(leases.keys())
            stress.ledger.leases.update(leases)
            finish(stress, conn, "ack_many", [*leases])
        watch(stress, conn, rng)


def hold(stress: Stress, conn: Connection, rng: random.Random) -> None:
    """A snapshot, or an idle transaction that wrote elsewhere, for a while."""
    if rng.random() < 0.5:
        begin(conn, "repeatable read")
        conn.execute("select count(*) from pgq_sql.job")
    else:
        begin(conn, "read committed")
        conn.execute("select pg_current_xact_id()")
    time.sleep(rng.uniform(0, 1.5))
    conn.execute("commit")


def kill(stress: Stress, conn: Connection, rng: random.Random) -> None:
    """Ends a session, or cancels what it does."""
    verb = rng.choice(["pg_terminate_backend", "pg_cancel_backend"])
    done = rows(
        conn,
        f"select {verb}(pid) from pg_stat_activity where datname = current_database()"
        " and application_name in ('stress producer', 'stress claimer')"
        " order by random() limit 1",
    )
    stress.ledger.kills += len(done)
    time.sleep(rng.uniform(0, 0.3))


def renew(stress: Stress, conn: Connection, rng: random.Random) -> None:
    """Renews leases that their holders may be settling just now, as a worker's thread does."""
    ledger = stress.ledger
    with ledger.lock:
        batches = [*ledger.held.values()]
    if batches:
        leases = rng.choice(batches)
        query = "select ordinal, outcome, lease_until from pgq_sql.heartbeat_many(%s, %s)"
        for place, outcome, until in rows(conn, query, *columns(leases)):
            if outcome == "extended":
                ledger.leases[leases[place - 1]].lease_until = until
    time.sleep(rng.uniform(0, 0.02))


def sweep(stress: Stress, conn: Connection, rng: random.Random) -> None:
    """What pg_cron would do, only more often."""
    conn.execute("select count(*) from pgq_sql.sweep(%s)", [rng.choice([5, 1000])])
    time.sleep(rng.uniform(0, 1))


def watch(stress: Stress, conn: Connection, rng: random.Random) -> None:
    """Looks for jobs that a mark has passed: for no snapshot, and no mark in it, may there be any.

    Below a head there is nothing unclaimed (with sweeps there may be, for them to find), below a
    tail nothing alive. Sees also what a lower mark, by a slower claimer, would put right again.
    """
    bound, condition = ("tail", "") if stress.plan.sweeps else ("head", "and j.lease_until is null")
    found = rows(
        conn,
        "select j.id, case when j.token = 0 then j.enqueued_at else j.run_at end, j.run_at,"
        "   j.token, clock_timestamp()"
        " from (select distinct id from pgq_sql.lane) l"
        " cross join lateral ("
        f"  select k.{bound} as bound, k.{bound}_id as bound_id from pgq_sql.mark k"
        f"  where k.lane_id = l.id order by k.{bound} desc, k.{bound}_id desc limit 1) m"
        " join pgq_sql.job j on j.lane_id = l.id"
        f"  and (j.run_at, j.id) < (m.bound, m.bound_id) {condition}",
    )
    with stress.ledger.lock:
        for job_id, stamp, run_at, token, seen_at in found:
            stray = Stray(job_id, stamp, run_at, token, seen_at, not stress.plan.sweeps)
            stress.ledger.strays.setdefault(job_id, stray)
    time.sleep(0.02)


ACTORS: dict[str, Actor] = {
    "producer": again_and_again("producer", produce),
    "claimer": again_and_again("claimer", consume),
    "holder": again_and_again("holder", hold),
    "killer": again_and_again("killer", kill),
    "renewer": again_and_again("renewer", renew),
    "sweeper": again_and_again("sweeper", sweep),
    "watcher": again_and_again("watcher", watch),
}
