"""Asking what is enqueued, and saying clearly what is there instead."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice

from ..client import Client
from ..errors import translated
from ..models import JobState
from ..words import State

ENDED = frozenset({"dead", "done", "cancelled"})

PAGE = 1000
MOST_LISTED = 20
WIDEST = 200


def every_job(
    client: Client,
    *,
    queue: str | None = None,
    state: State | None = None,
    payload_has: object = None,
) -> Iterator[JobState]:
    """All pages of `list_jobs`."""
    after = 0
    while page := client.list_jobs(
        queue=queue, state=state, payload_has=payload_has, after=after, n=PAGE
    ):
        yield from page
        after = page[-1].job_id


def enqueued(
    client: Client,
    queue: str | None = None,
    *,
    payload: object = None,
    payload_has: object = None,
    state: State | None = None,
) -> list[JobState]:
    """The jobs that are to run or do run, in id order; with `state` those in that state.

    `payload` is the whole payload, as it is after its way through the database; `payload_has` a
    part of it, as for `list_jobs`. What is None lets everything through.
    """
    part = payload if payload_has is None else payload_has
    jobs = [
        job
        for job in every_job(client, queue=queue, state=state, payload_has=part)
        if state is not None or job.state not in ENDED
    ]
    if payload is not None:
        whole = _stored(client, payload)
        jobs = [job for job in jobs if job.payload == whole]
    return jobs


def assert_enqueued(
    client: Client,
    queue: str | None = None,
    *,
    payload: object = None,
    payload_has: object = None,
    state: State | None = None,
    n: int | None = None,
) -> list[JobState]:
    """Fail unless there is such a job, or exactly `n`; the answer is those there are.

    The arguments are those of `enqueued`.
    """
    __tracebackhide__ = True
    jobs = enqueued(client, queue, payload=payload, payload_has=payload_has, state=state)
    if bool(jobs) if n is None else len(jobs) == n:
        return jobs
    wanted = _wanted(n, queue, payload, payload_has, state)
    raise AssertionError(f"expected {wanted}, found {len(jobs) or 'none'}\n{_there(client, jobs)}")


def assert_not_enqueued(
    client: Client,
    queue: str | None = None,
    *,
    payload: object = None,
    payload_has: object = None,
    state: State | None = None,
) -> None:
    """Fail if there is such a job. The arguments are those of `enqueued`."""
    __tracebackhide__ = True
    assert_enqueued(client, queue, payload=payload, payload_has=payload_has, state=state, n=0)


def _stored(client: Client, payload: object) -> object:
    """A payload as a job would have it: through the client's encoder, jsonb and its decoder."""
    _, values = client._statements.call("enqueue", {"payload": payload})
    text = client._statements.fill("select %(payload)s::jsonb")
    with translated(), client._borrow() as conn:
        ((stored,),) = client._run(conn, text, values).fetchall()
    return stored


def _wanted(
    n: int | None, queue: str | None, payload: object, payload_has: object, state: State | None
) -> str:
    words = ["a" if n is None else "no" if n == 0 else str(n)]
    words += [state] if state else []
    words.append("job" if n in (None, 1) else "jobs")
    words += [f"in {queue}"] if queue else []
    words += [f"with payload {_short(payload)}"] if payload is not None else []
    words += [f"whose payload has {_short(payload_has)}"] if payload_has is not None else []
    return " ".join(words)


def _there(client: Client, found: Sequence[JobState]) -> str:
    """What is in the database, ended jobs too: often the job is there, but not as expected."""
    jobs = list(islice(every_job(client), MOST_LISTED + 1))
    if not jobs:
        return "there are no jobs at all"
    ids = {job.job_id for job in found}
    lines = [f"{'*' if job.job_id in ids else ' '} {_line(job)}" for job in jobs[:MOST_LISTED]]
    if len(jobs) > MOST_LISTED:
        lines.append("  and more")
    return "\n".join(["there are:", *lines])


def _line(job: JobState) -> str:
    line = f"job {job.job_id} in {job.queue}, {job.state}"
    if job.state == "scheduled":
        line += f" for {job.run_at:%Y-%m-%d %H:%M:%S}Z"
    if job.last_error:
        line += f" ({job.last_error.partition(chr(10))[0][:WIDEST]})"
    return f"{line}: {_short(job.payload)}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
