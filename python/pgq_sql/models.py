"""What the functions answer. The fields are the columns, in their order."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer of `enqueue`."""

    job_id: int
    outcome: str


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

    outcome: str
    lease_until: datetime | None
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Extension:
    """One item of `heartbeat_many`."""

    ordinal: int
    job_id: int
    outcome: str
    lease_until: datetime | None
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Swept:
    """One kind of work that `sweep` did, and how much of it."""

    task: str
    count: int
