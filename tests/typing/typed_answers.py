"""What calls answer."""

# pyright: reportUnnecessaryTypeIgnoreComment=true, reportUnnecessaryComparison=true

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, assert_never, assert_type

from pgq_sql import (
    AsyncClient,
    Client,
    Enqueued,
    Extension,
    Finding,
    Heartbeat,
    InvalidArgument,
    Job,
    JobCount,
    JobState,
    Letter,
    Outcome,
    PgqError,
    QueueState,
    Swept,
)


def produce(client: Client, when: datetime, span: timedelta) -> None:
    made = client.enqueue("q", {"to": "ada"}, priority=3, delay=span, run_at=when, dedup_key="k")
    assert_type(made, Enqueued)
    assert_type(made.job_id, int)
    assert_type(made.outcome, Literal["inserted", "existing", "replaced"])
    headers: Mapping[str, object] = {"a": 1}
    client.enqueue("q", headers=headers, retry_backoff="linear", retry_jitter=(0.5, 1))
    client.enqueue("q", None, dedup_mode="replace", expires_in=span, options={})
    many = client.enqueue_many("q", [1, "two", None], delays=[span, None, None], priorities=[1, 2])
    assert_type(many, list[Outcome])

    client.enqueue("q", delay=10)  # type: ignore[arg-type]
    client.enqueue("q", delay="10 s")  # type: ignore[arg-type]
    client.enqueue("q", run_at="2030-01-01")  # type: ignore[arg-type]
    client.enqueue("q", retry_backoff="square")  # type: ignore[arg-type]
    client.enqueue("q", dedup_mode="first")  # type: ignore[arg-type]
    client.enqueue("q", {}, 3)  # type: ignore[call-arg]
    client.enqueue("q", prio=3)  # type: ignore[call-arg]
    client.enqueue(7)  # type: ignore[arg-type]
    client.enqueue_many("q")  # type: ignore[call-arg]
    client.enqueue_many("q", [1], delays=span)  # type: ignore[arg-type]
    if made.outcome == "insterted":  # type: ignore[comparison-overlap]
        pass


def consume(client: Client, span: timedelta) -> None:
    jobs = client.claim("q", "me", 10, visibility_timeout=span)
    assert_type(jobs, list[Job])
    assert_type(client.pop("q"), list[Job])
    job = jobs[0]
    assert_type(job.payload, Any)
    assert_type(job.headers, dict[str, Any] | None)
    assert_type(job.lease_until, datetime)

    acked = client.ack(job.job_id, job.token, {"sent": True})
    assert_type(acked, Literal["acked", "lost", "gone"])
    match acked:
        case "acked" | "lost" | "gone":
            pass
        case _:
            assert_never(acked)
    retried = client.retry(job.job_id, job.token, "why", delay=span)
    assert_type(retried, Literal["retried", "dead", "lost", "gone"])
    assert_type(client.dead_letter(1, 1), Literal["dead", "lost", "gone"])
    assert_type(client.release(1, 1, delay=span), Literal["released", "lost", "gone"])
    beat = client.heartbeat(1, 1, extend=span, progress=[1])
    assert_type(beat, Heartbeat)
    assert_type(beat.outcome, Literal["extended", "lost", "gone"])
    assert_type(client.heartbeat_many([1], [1]), list[Extension])
    assert_type(client.ack_many([1], [1]), list[Outcome])
    assert_type(client.retry_many([1], [1], ["why"], delays=[span]), list[Outcome])

    if acked == "aked":  # type: ignore[comparison-overlap]
        pass
    client.ack(job)  # type: ignore[call-arg, arg-type]
    client.ack("1", 1)  # type: ignore[arg-type]
    client.retry(1, 1, ValueError("why"))  # type: ignore[arg-type]
    client.retry(1, 1, delay=5)  # type: ignore[arg-type]
    client.require_lease(1, 1)  # type: ignore[call-arg]
    job.attempt = 2  # type: ignore[misc]
    print(job.payloads)  # type: ignore[attr-defined]


def control(client: Client, span: timedelta) -> None:
    assert_type(client.create_queue("q", retry_delay=span, keep_done=timedelta.max), bool)
    assert_type(client.alter_queue("q", reset=["max_attempts"]), bool)
    assert_type(client.purge_queue("q"), int)
    assert_type(client.cancel(1), Literal["cancelled", "gone"])
    assert_type(client.promote(1), Literal["promoted", "ready", "running", "suspended", "gone"])
    assert_type(client.redrive(queue="q", n=5, dry_run=True), list[Outcome])
    assert_type(client.redrive_queue("dead", 5), list[Letter])
    assert_type(client.discard_dead([1]), int)
    client.grant_access("app", "producer")

    client.create_queue("q", visibility_timeout=30)  # type: ignore[arg-type]
    client.alter_queue("q", resets=["max_attempts"])  # type: ignore[call-arg]
    client.grant_access("app", "produce")  # type: ignore[arg-type]
    client.redrive("q")  # type: ignore[arg-type]


def look(client: Client) -> None:
    found = client.get_job(1)
    assert_type(found, JobState | None)
    print(found.state)  # type: ignore[union-attr]
    assert found is not None
    if found.state == "finished":  # type: ignore[comparison-overlap]
        pass
    assert_type(
        client.list_jobs(queue="q", state="dead", payload_has={"to": "ada"}), list[JobState]
    )
    assert_type(client.count_jobs(), list[JobCount])
    assert_type(client.queue_stats("q"), QueueState)
    assert_type(client.queue_stats("q").oldest_ready, timedelta | None)
    assert_type(client.doctor(), list[Finding])
    assert_type(client.sweep(), list[Swept])
    assert_type(client.next_run_at("q"), datetime | None)
    assert_type(client.schema_version(), str)

    client.list_jobs(state="asleep")  # type: ignore[arg-type]
    client.list_jobs("q")  # type: ignore[call-arg]


async def awaited(client: AsyncClient, span: timedelta) -> None:
    """The same answers, once they are awaited."""
    assert_type(await client.enqueue("q", 1, delay=span), Enqueued)
    assert_type(await client.enqueue_many("q", [1]), list[Outcome])
    assert_type(await client.claim("q", "me"), list[Job])
    assert_type(await client.ack(1, 1), Literal["acked", "lost", "gone"])
    assert_type(await client.retry(1, 1), Literal["retried", "dead", "lost", "gone"])
    assert_type(await client.heartbeat(1, 1), Heartbeat)
    assert_type(await client.get_job(1), JobState | None)
    assert_type(await client.create_queue("q"), bool)
    assert_type(await client.next_run_at("q"), datetime | None)

    (await client.enqueue("q", delay="10 s"))  # type: ignore[arg-type]
    print(client.enqueue("q").job_id)  # type: ignore[attr-defined]
    for job in client.claim("q", "me"):  # type: ignore[attr-defined]
        print(job)


def clients() -> None:
    with Client("host=x", schema="s", dumps=str, loads=lambda text: text) as client:
        assert_type(client, Client)
    Client()
    with AsyncClient() as wrong:  # type: ignore[attr-defined]
        print(wrong)
    Client(schema=None)  # type: ignore[arg-type]
    Client(dumps=len)  # type: ignore[arg-type]


async def async_clients() -> None:
    async with AsyncClient("host=x") as client:
        assert_type(client, AsyncClient)


def errors(client: Client) -> None:
    try:
        client.enqueue("q")
    except InvalidArgument as error:
        assert_type(error.sqlstate, str)
    except PgqError as error:
        assert_type(error.detail, str | None)
        assert_type(error.hint, str | None)
