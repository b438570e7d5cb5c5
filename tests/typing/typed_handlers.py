"""What workers take as handlers, and what handlers get."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_type

import psycopg

from pgq_sql import (
    AsyncBatch,
    AsyncClient,
    AsyncRunningJob,
    AsyncWorker,
    Batch,
    BatchConsumer,
    Client,
    Consumer,
    DeadLetter,
    Job,
    Report,
    Retry,
    RunningJob,
    Snooze,
    Worker,
)
from pgq_sql.models import JobState
from pgq_sql.testing import Drained, assert_enqueued, async_drain, drain


def handle(job: RunningJob) -> None:
    assert_type(job.job_id, int)
    assert_type(job.payload, Any)
    assert_type(job.run_at, datetime)
    with job.transaction() as conn:
        assert_type(conn, psycopg.Connection[Any])
    if job.attempt == 2:
        raise Snooze(timedelta(minutes=5))
    raise Retry(timedelta(seconds=5))


def answers(job: RunningJob) -> dict[str, int]:
    raise DeadLetter("never")


def any_job(job: Job) -> None:
    """What needs no more than a job may be either's."""


async def wait(job: AsyncRunningJob) -> int:
    async with job.transaction() as conn:
        assert_type(conn, psycopg.AsyncConnection[Any])
    return 1


def handle_all(batch: Batch) -> list[object]:
    assert_type(batch[0], RunningJob)
    with batch.transaction() as conn:
        assert_type(conn, psycopg.Connection[Any])
    return [job.payload for job in batch]


async def wait_all(batch: AsyncBatch) -> None:
    assert_type(batch[0], AsyncRunningJob)


class Method:
    """A handler may be a method, or an object."""

    def handle(self, job: RunningJob) -> None: ...

    def __call__(self, job: RunningJob) -> None: ...


def no_job() -> None: ...


def threads(client: Client, waits: AsyncClient) -> None:
    method = Method()
    worker = Worker(client, {"a": handle, "b": answers, "c": any_job}, concurrency=4)
    assert_type(worker.run(signals=True, until_idle=True), Report)
    Worker(client, {"a": method.handle, "b": method, "c": lambda job: job.payload})
    Worker(
        client,
        {"a": handle},
        poll_interval=timedelta(seconds=1),
        listen=False,
        listener_dsn="host=x",
    )
    worker.stop(now=True)
    soon, never = timedelta(seconds=5), (KeyError, ValueError)
    Worker(
        client,
        {
            "a": Consumer(handle, weight=3, limit=1, timeout=soon, dead_letter_on=never),
            "b": BatchConsumer(handle_all, size=50),
            "c": handle,
        },
    )

    Worker(client, {"a": wait})  # type: ignore[dict-item]
    Worker(client, {"a": no_job})  # type: ignore[dict-item]
    Worker(client, {"a": 1})  # type: ignore[dict-item]
    Worker(client, {"a": handle_all})  # type: ignore[dict-item]
    Worker(client, {"a": Consumer(wait)})  # type: ignore[arg-type]
    Worker(client, {"a": Consumer(handle_all)})  # type: ignore[arg-type]
    Worker(client, {"a": BatchConsumer(handle)})  # type: ignore[arg-type]
    Consumer(handle, timeout=5)  # type: ignore[arg-type]
    Consumer(handle, 3)  # type: ignore[call-arg]
    Worker(client, handle)  # type: ignore[arg-type]
    Worker(waits, {"a": handle})  # type: ignore[arg-type]
    Worker(client, {"a": handle}, poll_interval=0.5)  # type: ignore[arg-type]


async def tasks(client: AsyncClient, blocking: Client) -> None:
    worker = AsyncWorker(client, {"a": wait})
    assert_type(await worker.run(until_idle=True), Report)

    AsyncWorker(client, {"a": Consumer(wait, limit=3), "b": BatchConsumer(wait_all)})

    AsyncWorker(client, {"a": BatchConsumer(handle_all)})  # type: ignore[arg-type]
    AsyncWorker(client, {"a": handle})  # type: ignore[dict-item]
    AsyncWorker(client, {"a": any_job})  # type: ignore[dict-item]
    AsyncWorker(blocking, {"a": wait})  # type: ignore[arg-type]
    print(worker.run().acked)  # type: ignore[attr-defined]


async def tests(client: Client, waits: AsyncClient) -> None:
    assert_type(drain(client, {"a": handle}, limit=1), Drained)
    assert_type(await async_drain(waits, {"a": wait}), Drained)
    assert_type(assert_enqueued(client, "a", payload=1, state="ready"), list[JobState])

    drain(client, {"a": wait})  # type: ignore[dict-item]
    assert_enqueued(client, "a", state="asleep")  # type: ignore[arg-type]
