"""`conn=` on every kind of connection: the same answers, in the caller's transaction."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from joining import KINDS, Theirs, native
from pgq_sql import Client, JobState, QueueState
from servers import Connection, Server

SECOND = timedelta(seconds=1)
ODD = "ä ' \" \\ \\' % %% %s %(queue)s :queue ::text $1 {,} NULL \n é😀"
PAYLOAD = {ODD: [ODD, None, 1, 2.5, True, {"": []}], "big": 10**30}


@pytest.fixture(params=KINDS)
def theirs(request: pytest.FixtureRequest, database: str) -> Iterator[Theirs]:
    with Client(database) as client:
        client.create_queue("q")
    with KINDS[request.param](database) as theirs:
        yield theirs


def live(conn: Connection) -> int:
    """How many jobs others see."""
    return conn.execute("select count(*) from pgq_sql.jobs").fetchall()[0][0]  # type: ignore[return-value]


class TestTransactions:
    """A call joins, and never ends, the caller's transaction."""

    def test_commit_with_business_rows(self, theirs: Theirs, conn: Connection) -> None:
        # First, to show that the library knows of a transaction that our call has begun.
        theirs.call("enqueue", "q", PAYLOAD)
        theirs.sql("create table business (id int)")
        theirs.call("enqueue_many", "q", [1, 2])
        assert live(conn) == 0
        theirs.commit()
        assert live(conn) == 3
        assert conn.execute("select from business").fetchall() == []

    def test_commit_of_nothing_else(self, theirs: Theirs, conn: Connection) -> None:
        theirs.call("enqueue", "q")
        theirs.commit()
        assert live(conn) == 1

    def test_rollback(self, theirs: Theirs, conn: Connection) -> None:
        theirs.call("enqueue", "q")
        theirs.sql("create table business (id int)")
        theirs.rollback()
        assert live(conn) == 0
        assert conn.execute("select to_regclass('business')").fetchall() == [(None,)]

    def test_rollback_to_a_savepoint(self, theirs: Theirs, conn: Connection) -> None:
        theirs.call("enqueue", "q", 1)
        undo = theirs.savepoint()
        theirs.call("enqueue", "q", 2)
        undo()
        theirs.call("enqueue", "q", 3)
        theirs.commit()
        rows = conn.execute("select payload from pgq_sql.jobs order by job_id").fetchall()
        assert rows == [(1,), (3,)]

    def test_effect_and_ack_together(self, theirs: Theirs, conn: Connection) -> None:
        theirs.call("enqueue", "q")
        (job,) = theirs.call("claim", "q", "me")
        theirs.call("require_lease", job.job_id, job.token)
        theirs.sql("create table effect ()")
        assert theirs.call("ack", job.job_id, job.token) == "acked"
        theirs.commit()
        assert live(conn) == 0
        assert conn.execute("select from effect").fetchall() == []


# Parity: one story, told once through psycopg and once through each other kind.

Call = Callable[..., Any]


def story(call: Call, role: str, forever: timedelta) -> list[Any]:
    """Every method at least once, in an order that has something to answer."""
    told: list[Any] = []

    def tell(method: str, *arguments: Any, **options: Any) -> Any:
        answer = call(method, *arguments, **options)
        told.append((method, answer))
        return answer

    every_setting = {
        "max_attempts": 3,
        "visibility_timeout": 60 * SECOND,
        "retry_backoff": "linear",
        "retry_factor": 1.5,
        "retry_delay": 0.001 * SECOND,
        "retry_max_delay": timedelta(days=2, microseconds=1000),
        "retry_jitter": (0.5, 1.25),
        "expires_in": timedelta(days=400),
    }
    tell("check")
    tell("schema_version")
    tell("create_queue", "dead")
    tell("create_queue", "kept", **every_setting, keep_done=forever, keep_dead=timedelta(1))
    tell("alter_queue", "kept", keep_dead=forever, notify=False, max_payload=10_000)
    tell("alter_queue", "kept", reset=["max_attempts", "notify"], dead_letter_queue="dead")
    tell("pause_queue", "kept")
    tell("resume_queue", "kept")
    options = {
        **every_setting,
        "priority": -7,
        "run_at": datetime(2020, 2, 29, 23, 59, 59, 999999, timezone(timedelta(hours=5.75))),
        "dedup_key": ODD[:40],
        "dedup_mode": "replace",
        "headers": {ODD: ODD},
        "options": {},
    }
    one = tell("enqueue", "kept", PAYLOAD, **options)
    tell("enqueue", "kept", PAYLOAD, **options)
    tell("enqueue", "q", None, delay=timedelta(hours=1))
    many = tell(
        "enqueue_many",
        "q",
        [None, ODD, {}, [], -1.5, PAYLOAD],
        priorities=[None, 1, -1, 0, 0, 2],
        delays=[None, timedelta(0), timedelta(microseconds=1), None, None, None],
        run_ats=[datetime(2021, 1, 1, tzinfo=UTC), None, None, None, None, None],
        headers=[None, {"a": ODD}, {}, None, None, None],
        dedup_keys=[ODD, None, "\\", '"', "NULL", "{}"],
    )
    tell("enqueue_many", "q", [])
    tell("next_run_at", "q")
    tell("get_job", one.job_id)
    tell("get_job", 10**12)
    tell("list_jobs")
    tell("list_jobs", queue="q", payload_has={ODD: [ODD]}, after=1, n=5)
    tell("list_jobs", state="running", worker=ODD)
    tell("suspend", many[2].job_id)
    tell("resume", many[2].job_id)
    tell("reprioritize", many[2].job_id, 3)
    tell("promote", one.job_id + 1)
    tell("cancel", many[3].job_id)
    (kept,) = tell("claim", "kept", ODD[:30])
    jobs = tell("claim", "q", "me", 4, visibility_timeout=20 * SECOND)
    ids, tokens = [job.job_id for job in jobs], [job.token for job in jobs]
    tell("queue_stats", "q")
    tell("heartbeat", kept.job_id, kept.token, extend=30 * SECOND, progress=PAYLOAD)
    tell("heartbeat", kept.job_id, kept.token + 1)
    tell("heartbeat_many", ids, tokens, extends=[None] * 4, progresses=[None, 1, ODD, {}])
    tell("require_lease", kept.job_id, kept.token)
    tell("get_job", kept.job_id)
    tell("ack", kept.job_id, kept.token, PAYLOAD)
    tell("get_job", kept.job_id)
    tell("release_many", ids, tokens, delays=[None, 0 * SECOND, None, None])
    (job,) = tell("claim", "q", "me")
    tell("retry", job.job_id, job.token, ODD, delay=0 * SECOND)
    (job,) = tell("claim", "q", "me")
    tell("dead_letter", job.job_id, job.token, ODD)
    tell("get_job", job.job_id)
    tell("redrive", [job.job_id], dry_run=True)
    tell("redrive", queue="q", n=5)
    jobs = tell("claim", "q", "me", 2)
    ids, tokens = [job.job_id for job in jobs], [job.token for job in jobs]
    tell("retry_many", ids, tokens, [None, ODD], delays=[timedelta(hours=1), 0 * SECOND])
    (job,) = tell("claim", "q", "me")
    tell("release", job.job_id, job.token, delay=0 * SECOND)
    (job,) = tell("claim", "q", "me")
    tell("dead_letter_many", [job.job_id], [job.token], [ODD])
    tell("discard_dead", queue="q")
    (job,) = tell("claim", "q", "me")
    tell("ack_many", [job.job_id, 10**12], [job.token, 1], [PAYLOAD, None])
    tell("pop", "q", 2)
    tell("enqueue", "kept", 1)
    (job,) = tell("claim", "kept", "me")
    tell("dead_letter", job.job_id, job.token)
    tell("redrive_queue", "dead", 5)
    tell("wait_begin", "q")
    tell("wait_end", "q")
    tell("sweep", 100)
    tell("doctor")
    tell("count_jobs")
    tell("count_jobs", queue="q", state="scheduled")
    tell("grant_access", role, "producer")
    tell("revoke_access", role, "producer")
    tell("purge_queue", "q")
    tell("drop_queue", "kept", force=True)
    return told


def timeless(value: Any) -> Any:
    """The value and its type; of an instant of the run, only that it is one in UTC."""
    if isinstance(value, datetime):
        return value if value.year < 2025 else ("recently", value.tzinfo)
    if isinstance(value, QueueState):
        value = replace(value, oldest_ready=value.oldest_ready and timedelta(0))
    if is_dataclass(value):
        return type(value), [timeless(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, dict):
        return type(value), [(key, timeless(value[key])) for key in value]
    if isinstance(value, list | tuple):
        return type(value), [timeless(item) for item in value]
    return type(value), value


def test_every_method_answers_the_same(
    theirs: Theirs, role: Callable[[], str], server: Server, template: str
) -> None:
    name = str(conninfo_to_dict(role())["user"])
    # Older servers have no infinite interval.
    forever = timedelta.max if server.version >= 170000 else timedelta(9000)
    with (
        server.database(template) as other,
        native(server.dsn(other, server.owner)) as ours,
    ):
        ours.client.create_queue("q")
        expected = story(ours.call, name, forever)
        ours.commit()
    told = story(theirs.call, name, forever)
    theirs.commit()
    assert {method for method, _ in told} == {
        name for name, _ in inspect.getmembers(Client, inspect.isfunction) if name[0] != "_"
    } - {"close"}
    for answer, wanted in zip(told, expected, strict=True):
        assert timeless(answer) == timeless(wanted), answer[0]


def test_jobs_look_the_same(theirs: Theirs, database: str) -> None:
    """To the microsecond, whoever asks."""
    with native(database) as ours:
        theirs.call("enqueue", "q", PAYLOAD, retry_jitter=(0, 1), expires_in=SECOND * 100)
        (job,) = theirs.call("claim", "q", "me")
        theirs.commit()
        (mine,) = ours.call("list_jobs")
        assert isinstance(mine, JobState)
        assert mine.payload == PAYLOAD
        assert (mine.run_at, mine.lease_until) == (job.run_at, job.lease_until)
        (found,) = theirs.call("list_jobs")
        assert repr(found) == repr(mine)
