"""What the workers of the chaos tests run: `pgq worker chaos_handlers:THREADS`, or TASKS.

Run as a program it is a third kind of worker: by hand, as in other languages. It renews nothing,
so once it goes on after a stop it acks what it has lost long ago.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg

from pgq_sql import (
    AsyncRunningJob,
    Client,
    DeadLetter,
    Job,
    JobNotFound,
    LeaseLost,
    Retry,
    RunningJob,
    Snooze,
)

DSN = os.environ.get("CHAOS_DSN", "")
LABEL = os.environ.get("CHAOS_LABEL", "")
EFFECT = "insert into chaos.effect (job_id, token, queue, pid) values (%s, %s, %s, %s)"
REFUSED = "insert into chaos.refused (job_id, token, pid) values (%s, %s, %s)"


def note(job: Job, statement: str = EFFECT) -> None:
    """Outside of the job's transaction, if there is one."""
    values = [job.job_id, job.token, job.queue, os.getpid()]
    with psycopg.connect(DSN, autocommit=True) as conn:
        conn.execute(
            statement.encode(), values if statement is EFFECT else [*values[:2], values[3]]
        )


def mood(job: Job) -> None:
    """In its first run a job may end in another way than by an ack."""
    if job.attempt == 1:
        match job.payload["mood"]:
            case "fails":
                raise ValueError("it does that once")
            case "waits":
                raise Retry(timedelta(milliseconds=300))
            case "snoozes" if job.token == 1:  # which costs no attempt
                raise Snooze(timedelta(milliseconds=300))
    if job.payload["mood"] == "dies":
        raise DeadLetter("as it was told")


def exact(job: RunningJob) -> None:
    """Its effect commits with the ack."""
    mood(job)
    try:
        with job.transaction() as conn:
            conn.execute(EFFECT, [job.job_id, job.token, job.queue, os.getpid()])
            time.sleep(job.payload["work"])
    except (LeaseLost, JobNotFound):
        note(job, REFUSED)
        raise


def loose(job: RunningJob) -> None:
    """Its effect is there before the ack."""
    mood(job)
    note(job)
    time.sleep(job.payload["work"])


async def exact_task(job: AsyncRunningJob) -> None:
    """As `exact`."""
    mood(job)
    try:
        async with job.transaction() as conn:
            await conn.execute(EFFECT, [job.job_id, job.token, job.queue, os.getpid()])
            await asyncio.sleep(job.payload["work"])
    except (LeaseLost, JobNotFound):
        await asyncio.to_thread(note, job, REFUSED)
        raise


async def loose_task(job: AsyncRunningJob) -> None:
    """As `loose`."""
    mood(job)
    await asyncio.to_thread(note, job)
    await asyncio.sleep(job.payload["work"])


THREADS: Mapping[str, Any] = {"exact": exact, "loose": loose}
TASKS: Mapping[str, Any] = {"exact": exact_task, "loose": loose_task}


def by_hand() -> None:
    """Claim, work, ack; a failure of the database is waited out."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Client(DSN) as client:

        def insist(call: Callable[..., Any], *arguments: Any) -> Any:
            while not stopping.is_set():
                with suppress(psycopg.OperationalError):
                    return call(*arguments)
                stopping.wait(0.1)
            return ()

        while not stopping.is_set():
            jobs = insist(client.claim, "hand", LABEL, 3)
            for job in jobs:
                insist(note, job)
                time.sleep(job.payload["work"])
                insist(client.ack, job.job_id, job.token)
            if not jobs:
                stopping.wait(0.1)


if __name__ == "__main__":
    by_hand()
