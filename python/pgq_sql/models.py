"""What the functions answer. The fields are the columns, in their order."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from .words import Extended, Made, Severity, State


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer of `enqueue`."""

    job_id: int
    outcome: Made


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed job. It is ours until `lease_until`; settle it with `job_id` and `token`."""

    job_id: int
    token: int
    queue: str
    payload: Any
    headers: dict[str, Any] | None
    attempt: int
    max_attempts: int
    priority: int
    run_at: datetime
    enqueued_at: datetime
    lease_until: datetime
    observed_at: datetime
    """The database's clock at the claim: measure the lease from here, not from your own clock."""
    last_error: str | None


JOB_COLUMNS = len(fields(Job))
"""A later schema may answer more of them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One item of a `_many` call; `ordinal` is its place in the input, from 1."""

    ordinal: int
    job_id: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer of `heartbeat`; `lease_until` is None unless the outcome is 'extended'."""

    outcome: Extended
    lease_until: datetime | None
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Extension:
    """One item of `heartbeat_many`."""

    ordinal: int
    job_id: int
    outcome: Extended
    lease_until: datetime | None
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Swept:
    """One kind of work that `sweep` did, and how much of it."""

    task: str
    count: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter that `redrive_queue` replayed; `job_id` is the new job, None in a dry run."""

    ordinal: int
    letter_id: int
    queue: str
    job_id: int | None


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as it stands: live, dead or done. What only some have is None for the others."""

    job_id: int
    queue: str
    state: State
    priority: int
    run_at: datetime
    enqueued_at: datetime
    expires_at: datetime | None
    attempt: int
    max_attempts: int
    token: int
    worker: str | None
    lease_until: datetime | None
    last_error: str | None
    visibility_timeout: timedelta | None
    retry_backoff: str | None
    retry_factor: float | None
    retry_delay: timedelta | None
    retry_max_delay: timedelta | None
    retry_jitter: tuple[float, float] | None
    dedup_key: str | None
    redrives: int
    headers: dict[str, Any] | None
    payload: Any
    progress: Any
    result: Any
    reason: str | None
    """Why it is dead."""
    ended_at: datetime | None


KEPT_COLUMNS = len(fields(JobState))
"""A later schema may answer more of them."""


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs of a queue are in a state."""

    queue: str
    state: State
    count: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """The state of a queue. Unless `exact`, some figure is a lower limit."""

    queue: str
    paused: bool
    ready: int
    scheduled: int
    suspended: int
    running: int
    dead: int
    oldest_ready: timedelta | None
    """For how long the first ready job has been due."""
    done_last_minute: int | None
    """None if the queue keeps no history."""
    dead_last_minute: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that `doctor` found: how bad, what, where, and what to do."""

    severity: Severity
    finding: str
    subject: str
    detail: str
    hint: str
