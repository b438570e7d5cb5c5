"""The client's methods for a job's whole life: dedup, control, dead letters, looking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

import pgq_sql
from conftest import Connect
from pgq_sql import (
    Client,
    Enqueued,
    Finding,
    Heartbeat,
    Job,
    JobCount,
    JobState,
    Letter,
    Outcome,
    QueueState,
)
from servers import Connection

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q", keep_done=HOUR)
        yield client


def claim_one(client: Client, queue: str = "q") -> Job:
    (job,) = client.claim(queue, "me")
    return job


def job_of(client: Client, job_id: int) -> JobState:
    job = client.get_job(job_id)
    assert job is not None
    return job


def dead_one(client: Client, payload: object = None, queue: str = "q") -> int:
    client.enqueue(queue, payload)
    job = claim_one(client, queue)
    assert client.dead_letter(job.job_id, job.token, "why") == "dead"
    return job.job_id


class TestDedup:
    def test_enqueue(self, client: Client) -> None:
        first = client.enqueue("q", 1, dedup_key="k")
        assert client.enqueue("q", 2, dedup_key="k") == Enqueued(first.job_id, "existing")
        replaced = client.enqueue("q", 4, dedup_key="k", dedup_mode="replace")
        assert replaced == Enqueued(first.job_id, "replaced")
        assert (job := job_of(client, first.job_id)).payload == 4
        assert job.dedup_key == "k"

    def test_enqueue_many(self, client: Client) -> None:
        there = client.enqueue("q", "there", dedup_key="a").job_id
        one, two, three = client.enqueue_many("q", [1, 2, 3], dedup_keys=["a", None, "b"])
        assert one == Outcome(1, there, "existing")
        assert (two.outcome, three.outcome) == ("inserted", "inserted")
        answers = client.enqueue_many("q", [4], dedup_keys=["a"], dedup_mode="replace")
        assert answers == [Outcome(1, there, "replaced")]

    def test_in_a_transaction_of_sqlalchemy(self, client: Client, database: str) -> None:
        engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
        with engine.connect() as mine:
            first = client.enqueue("q", dedup_key="k", conn=mine)
            again = client.enqueue("q", dedup_key="k", conn=mine)
            assert again == Enqueued(first.job_id, "existing")
            assert client.cancel(first.job_id, conn=mine) == "cancelled"
            assert client.enqueue("q", dedup_key="k", conn=mine).outcome == "inserted"
            assert client.count_jobs() == []
            mine.rollback()
        engine.dispose()
        assert client.enqueue("q", dedup_key="k").outcome == "inserted"


class TestConsume:
    def test_ack_with_a_result(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2, 3])
        one, two, three = client.claim("q", "me", 3)
        assert client.ack(one.job_id, one.token, {"sum": 1}) == "acked"
        client.ack_many([three.job_id, two.job_id], [three.token, two.token], ["three", "two"])
        jobs = [job_of(client, job.job_id) for job in (one, two, three)]
        assert [(job.state, job.result) for job in jobs] == [
            ("done", {"sum": 1}),
            ("done", "two"),
            ("done", "three"),
        ]

    def test_pop(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2, 3])
        (one,) = client.pop("q")
        assert isinstance(one, Job)
        assert (one.payload, one.attempt, one.token) == (1, 1, 1)
        assert [job.payload for job in client.pop("q", 5)] == [2, 3]
        assert client.pop("q") == []
        assert client.count_jobs() == [JobCount("q", "done", 3)]

    def test_heartbeat_with_progress(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2])
        one, two = client.claim("q", "me", 2)
        beat = client.heartbeat(one.job_id, one.token, progress={"done": 1})
        assert isinstance(beat, Heartbeat)
        assert beat.outcome == "extended"
        client.heartbeat_many(
            [two.job_id, one.job_id], [two.token, one.token], progresses=["two", None]
        )
        assert job_of(client, one.job_id).progress == {"done": 1}
        assert job_of(client, two.job_id).progress == "two"
        with pytest.raises(pgq_sql.PayloadTooLarge):
            client.heartbeat(one.job_id, one.token, progress="x" * 65_536)

    def test_require_lease(self, client: Client, connect: Connect, conn: Connection) -> None:
        client.enqueue("q")
        job = claim_one(client)
        mine = connect(autocommit=False)
        client.require_lease(job.job_id, job.token, conn=mine)
        free = "select id from pgq_sql.job for update skip locked"
        assert conn.execute(free).fetchall() == []
        assert client.ack(job.job_id, job.token, conn=mine) == "acked"
        mine.rollback()
        assert conn.execute(free).fetchall() == [(job.job_id,)]

        with pytest.raises(pgq_sql.LeaseLost) as lost:
            client.require_lease(job.job_id, job.token + 1, conn=mine)
        assert lost.value.detail == f"job {job.job_id}, token {job.token + 1}"
        mine.rollback()
        with pytest.raises(pgq_sql.JobNotFound):
            client.require_lease(0, 1, conn=mine)


class TestControl:
    def test_cancel(self, client: Client) -> None:
        client.enqueue("q")
        job = claim_one(client)
        assert client.cancel(job.job_id) == "cancelled"
        assert client.cancel(job.job_id) == "gone"
        assert client.ack(job.job_id, job.token) == "gone"
        assert job_of(client, job.job_id).state == "cancelled"

    def test_promote(self, client: Client) -> None:
        job_id = client.enqueue("q", delay=HOUR).job_id
        assert client.promote(job_id) == "promoted"
        assert client.promote(job_id) == "ready"
        assert claim_one(client).job_id == job_id
        assert client.promote(job_id) == "running"

    def test_suspend_and_resume(self, client: Client) -> None:
        job_id = client.enqueue("q").job_id
        assert client.suspend(job_id) == "suspended"
        assert client.claim("q", "me") == []
        assert client.resume(job_id) == "resumed"
        assert client.resume(job_id) == "ready"
        assert claim_one(client).job_id == job_id
        assert client.suspend(job_id) == "running"

    def test_reprioritize(self, client: Client) -> None:
        job_id = client.enqueue("q").job_id
        client.enqueue("q", priority=1)
        assert client.reprioritize(job_id, 2) == "reprioritized"
        assert (job := claim_one(client)).job_id == job_id
        assert job.priority == 2
        assert client.reprioritize(job_id, 3) == "running"

    def test_pause_and_resume_queue(self, client: Client) -> None:
        client.enqueue("q")
        assert client.pause_queue("q") is True
        assert client.pause_queue("q") is False
        assert client.claim("q", "me") == []
        assert client.resume_queue("q") is True
        assert client.resume_queue("q") is False
        claim_one(client)

    def test_alter_queue(self, client: Client, conn: Connection) -> None:
        client.create_queue("letters")
        before = client.enqueue("q").job_id
        changed = client.alter_queue(
            "q",
            max_attempts=2,
            visibility_timeout=SECOND,
            retry_backoff="fixed",
            retry_factor=3,
            retry_delay=2 * SECOND,
            retry_max_delay=3 * SECOND,
            retry_jitter=(1, 1),
            expires_in=HOUR,
            keep_dead=5 * SECOND,
            dead_letter_queue="letters",
            notify=False,
            max_payload=6,
            reset=["keep_done"],
            options={},
        )
        assert changed is True
        assert client.alter_queue("q", max_attempts=2) is False
        row = conn.execute(
            "select max_attempts, visibility_timeout, retry_backoff, retry_factor, retry_delay,"
            " retry_max_delay, retry_jitter::text, expires_in, keep_dead, dead_letter_queue,"
            " notify, max_payload, keep_done from pgq_sql.queues where queue = 'q'"
        ).fetchone()
        assert row == (
            *(2, SECOND, "fixed", 3, 2 * SECOND, 3 * SECOND, "[1,1]", HOUR, 5 * SECOND),
            *("letters", False, 6, timedelta(0)),
        )
        assert job_of(client, before).max_attempts == 5
        with pytest.raises(pgq_sql.InvalidState):
            client.alter_queue("letters", dead_letter_queue="q")

    def test_purge_queue(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2, 3])
        job = claim_one(client)
        assert client.purge_queue("q") == 2
        assert client.count_jobs() == [JobCount("q", "running", 1)]
        assert client.ack(job.job_id, job.token) == "acked"

    def test_drop_queue(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2])
        with pytest.raises(pgq_sql.InvalidState) as refused:
            client.drop_queue("q")
        assert refused.value.sqlstate == "JQ004"
        assert client.drop_queue("q", force=True) == 2
        with pytest.raises(pgq_sql.QueueNotFound):
            client.enqueue("q")


class TestDead:
    def test_redrive(self, client: Client) -> None:
        one, two = dead_one(client, 1), dead_one(client, 2)
        assert client.redrive([two, one], dry_run=True) == [
            Outcome(1, two, "redriven"),
            Outcome(2, one, "redriven"),
        ]
        assert client.count_jobs() == [JobCount("q", "dead", 2)]
        assert client.redrive([two]) == [Outcome(1, two, "redriven")]
        assert client.redrive(queue="q", n=5) == [Outcome(1, one, "redriven")]
        assert [(job.payload, job.attempt) for job in client.claim("q", "me", 2)] == [
            (2, 1),
            (1, 1),
        ]
        assert job_of(client, one).redrives == 1
        with pytest.raises(pgq_sql.JobNotFound) as missing:
            client.redrive([one])
        assert missing.value.detail == f"job {one}"

    def test_discard_dead(self, client: Client) -> None:
        one, *_ = [dead_one(client) for _ in range(3)]
        assert client.discard_dead([one]) == 1
        assert client.get_job(one) is None
        assert client.discard_dead(queue="q", n=1) == 1
        assert client.discard_dead(queue="q") == 1

    def test_redrive_queue(self, client: Client) -> None:
        client.create_queue("letters")
        client.create_queue("origin", dead_letter_queue="letters")
        dead = dead_one(client, {"to": "a"}, "origin")
        assert client.get_job(dead) is None
        (letter,) = client.list_jobs(queue="letters")
        assert (letter.payload["job_id"], letter.payload["payload"]) == (dead, {"to": "a"})
        assert client.redrive_queue("letters", dry_run=True) == [
            Letter(1, letter.job_id, "origin", None)
        ]
        (replayed,) = client.redrive_queue("letters", 5)
        assert (again := claim_one(client, "origin")).job_id == replayed.job_id
        assert again.payload == {"to": "a"}


class TestLook:
    def test_get_job(self, client: Client) -> None:
        job_id = client.enqueue("q", {"n": 1}, headers={"h": 2}, expires_in=HOUR).job_id
        job = claim_one(client)
        wanted = JobState(
            job_id=job_id,
            queue="q",
            state="running",
            priority=0,
            run_at=job.run_at,
            enqueued_at=job.enqueued_at,
            expires_at=job.run_at + HOUR,
            attempt=1,
            max_attempts=5,
            token=1,
            worker="me",
            lease_until=job.lease_until,
            last_error=None,
            visibility_timeout=30 * SECOND,
            retry_backoff="exponential",
            retry_factor=2.0,
            retry_delay=timedelta(milliseconds=500),
            retry_max_delay=timedelta(minutes=5),
            retry_jitter=(0.8, 1.2),
            dedup_key=None,
            redrives=0,
            headers={"h": 2},
            payload={"n": 1},
            progress=None,
            result=None,
            reason=None,
            ended_at=None,
        )
        assert client.get_job(job_id) == wanted
        client.dead_letter(job_id, job.token, "why")
        dead = job_of(client, job_id)
        assert (dead.state, dead.reason, dead.last_error) == ("dead", "failed", "why")
        assert dead.ended_at is not None
        assert abs(datetime.now(UTC) - dead.ended_at) < 60 * SECOND
        assert client.get_job(0) is None

    def test_list_jobs(self, client: Client) -> None:
        client.create_queue("other")
        client.enqueue_many("q", [{"n": 1}, {"n": 2}, {"n": 3, "m": 1}])
        client.enqueue("other", {"n": 2}, delay=HOUR)
        first = claim_one(client)
        pages = [client.list_jobs(n=3)]
        pages.append(client.list_jobs(n=3, after=pages[0][-1].job_id))
        assert [[job.payload["n"] for job in page] for page in pages] == [[1, 2, 3], [2]]

        def numbers(jobs: list[JobState]) -> list[int]:
            return [job.payload["n"] for job in jobs]

        assert numbers(client.list_jobs(queue="other")) == [2]
        assert numbers(client.list_jobs(state="ready")) == [2, 3]
        assert client.list_jobs(worker="me") == [job_of(client, first.job_id)]
        assert numbers(client.list_jobs(payload_has={"n": 2})) == [2, 2]
        assert numbers(client.list_jobs(queue="q", payload_has={"m": 1})) == [3]

    def test_count_jobs(self, client: Client) -> None:
        client.create_queue("other")
        client.enqueue("q")
        client.enqueue("other", delay=HOUR)
        scheduled, ready = JobCount("other", "scheduled", 1), JobCount("q", "ready", 1)
        assert client.count_jobs() == [scheduled, ready]
        assert client.count_jobs(queue="other") == [scheduled]
        assert client.count_jobs(state="ready") == [ready]

    def test_queue_stats(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2, 3])
        dead_one(client)
        client.pop("q")
        told = client.queue_stats("q")
        assert told == QueueState(
            queue="q",
            paused=False,
            ready=2,
            scheduled=0,
            suspended=0,
            running=0,
            dead=1,
            oldest_ready=told.oldest_ready,
            done_last_minute=1,
            dead_last_minute=1,
            exact=True,
        )
        assert told.oldest_ready is not None
        assert told.oldest_ready > timedelta(0)
        assert client.queue_stats("q", bound=2).exact is False

    def test_doctor(self, client: Client, connect: Connect) -> None:
        mine = connect(autocommit=False)
        mine.execute(
            "update pgq_sql.queue set paused = true;"
            " insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, payload)"
            " select (id << 16) + 32768, now() - interval '1 h', now(), version, '{}'"
            " from pgq_sql.queue where name = 'q'"
        )
        (found,) = [one for one in client.doctor(conn=mine) if "queue" in one.subject]
        assert found == Finding(
            "info", "paused with jobs waiting", 'queue "q"', found.detail, found.hint
        )
        mine.rollback()


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.enqueue("q", dedup_key=""),
        lambda c: c.enqueue("q", dedup_mode="replace"),
        lambda c: c.enqueue_many("q", [1], dedup_keys=["a", "b"]),
        lambda c: c.list_jobs(state="odd"),
        lambda c: c.queue_stats("q", 0),
        lambda c: c.redrive(),
        lambda c: c.redrive([1], queue="q"),
        lambda c: c.discard_dead(queue="q", n=-1),
        lambda c: c.alter_queue("q", reset=["odd"]),
    ],
)
def test_refused(client: Client, call: Callable[[Client], object]) -> None:
    with pytest.raises(pgq_sql.InvalidArgument):
        call(client)
