"""The client: one method for each public function of the schema, with the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from . import _releases
from ._caller import Caller
from ._connections import Joinable
from .errors import MIGRATE, VersionMismatch
from .models import JOB_COLUMNS, Enqueued, Extension, Heartbeat, Job, Outcome, Swept

OLDEST = "0001"
"""The oldest release of the schema that has every function this client calls."""

Acked: TypeAlias = Literal["acked", "lost", "gone"]
Retried: TypeAlias = Literal["retried", "dead", "lost", "gone"]
Dead: TypeAlias = Literal["dead", "lost", "gone"]
Released: TypeAlias = Literal["released", "lost", "gone"]
Backoff: TypeAlias = Literal["fixed", "linear", "exponential"]
Capability: TypeAlias = Literal["producer", "worker", "observer", "admin"]

_EMPTY: Mapping[str, object] = {}


class Client(Caller):
    """Calls the queue's functions in PostgreSQL.

    `conninfo` is a connection string, a `psycopg_pool.ConnectionPool`, or None for PGQ_DSN or
    libpq's variables. Nothing connects before the first call. Usable from any number of threads.

    Each call is a transaction of its own, unless `conn=` names the one to join: a psycopg
    Connection or Cursor, or a SQLAlchemy Connection or Session on psycopg. Such a call never
    commits. An option that is None takes the queue's default.

    JSON comes back as it went in, or is refused: no NaN, NUL, lone surrogates, tuples, keys that
    are no strings. `dumps` and `loads` replace that, with a faster encoder or one for more types.

    Refusals raise subclasses of `PgqError`; faults of the database stay psycopg's exceptions.
    """

    # Produce

    def enqueue(
        self,
        queue: str,
        payload: object = _EMPTY,
        *,
        priority: int | None = None,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        visibility_timeout: timedelta | None = None,
        expires_in: timedelta | None = None,
        retry_backoff: Backoff | None = None,
        retry_factor: float | None = None,
        retry_delay: timedelta | None = None,
        retry_max_delay: timedelta | None = None,
        retry_jitter: tuple[float, float] | None = None,
        headers: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        conn: Joinable | None = None,
    ) -> Enqueued:
        """Put one job into a queue. `delay` wins over `run_at`; the payload is any JSON value."""
        return Enqueued(
            *self._row(
                conn,
                "enqueue",
                queue=queue,
                payload=payload,
                priority=priority,
                delay=delay,
                run_at=run_at,
                max_attempts=max_attempts,
                visibility_timeout=visibility_timeout,
                expires_in=expires_in,
                retry_backoff=retry_backoff,
                retry_factor=retry_factor,
                retry_delay=retry_delay,
                retry_max_delay=retry_max_delay,
                retry_jitter=retry_jitter,
                headers=headers,
                options=options,
            )
        )

    def enqueue_many(
        self,
        queue: str,
        payloads: Sequence[object],
        *,
        priorities: Sequence[int | None] | None = None,
        delays: Sequence[timedelta | None] | None = None,
        run_ats: Sequence[datetime | None] | None = None,
        headers: Sequence[Mapping[str, object] | None] | None = None,
        max_attempts: int | None = None,
        visibility_timeout: timedelta | None = None,
        expires_in: timedelta | None = None,
        retry_backoff: Backoff | None = None,
        retry_factor: float | None = None,
        retry_delay: timedelta | None = None,
        retry_max_delay: timedelta | None = None,
        retry_jitter: tuple[float, float] | None = None,
        options: Mapping[str, object] | None = None,
        conn: Joinable | None = None,
    ) -> list[Outcome]:
        """Put many jobs into a queue, all or none; the answers are in the order of `payloads`."""
        rows = self._rows(
            conn,
            "enqueue_many",
            queue=queue,
            payloads=payloads,
            priorities=priorities,
            delays=delays,
            run_ats=run_ats,
            headers=headers,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            expires_in=expires_in,
            retry_backoff=retry_backoff,
            retry_factor=retry_factor,
            retry_delay=retry_delay,
            retry_max_delay=retry_max_delay,
            retry_jitter=retry_jitter,
            options=options,
        )
        return [Outcome(*row) for row in rows]

    # Consume

    def claim(
        self,
        queue: str,
        worker: str,
        n: int = 1,
        *,
        visibility_timeout: timedelta | None = None,
        conn: Joinable | None = None,
    ) -> list[Job]:
        """Take up to `n` ready jobs under a lease, in run order. `worker` labels the claimant."""
        rows = self._rows(
            conn,
            "claim",
            queue=queue,
            worker=worker,
            n=n,
            visibility_timeout=visibility_timeout,
        )
        return [Job(*row[:JOB_COLUMNS]) for row in rows]

    def ack(self, job_id: int, token: int, *, conn: Joinable | None = None) -> Acked:
        """The job is done."""
        answer: Acked = self._value(conn, "ack", job_id=job_id, token=token)
        return answer

    def ack_many(
        self, job_ids: Sequence[int], tokens: Sequence[int], *, conn: Joinable | None = None
    ) -> list[Outcome]:
        """The jobs are done; a stale claim is an answer and does not stop the others."""
        rows = self._rows(conn, "ack_many", job_ids=job_ids, tokens=tokens)
        return [Outcome(*row) for row in rows]

    def retry(
        self,
        job_id: int,
        token: int,
        error: str | None = None,
        *,
        delay: timedelta | None = None,
        conn: Joinable | None = None,
    ) -> Retried:
        """The run failed. The job comes back after `delay` or its backoff; dead at its last."""
        answer: Retried = self._value(
            conn, "retry", job_id=job_id, token=token, error=error, delay=delay
        )
        return answer

    def retry_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        errors: Sequence[str | None] | None = None,
        *,
        delays: Sequence[timedelta | None] | None = None,
        conn: Joinable | None = None,
    ) -> list[Outcome]:
        """`retry` for many jobs."""
        rows = self._rows(
            conn, "retry_many", job_ids=job_ids, tokens=tokens, errors=errors, delays=delays
        )
        return [Outcome(*row) for row in rows]

    def dead_letter(
        self, job_id: int, token: int, error: str | None = None, *, conn: Joinable | None = None
    ) -> Dead:
        """The job will never succeed: keep it among the dead, run it no more."""
        answer: Dead = self._value(conn, "dead_letter", job_id=job_id, token=token, error=error)
        return answer

    def dead_letter_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        errors: Sequence[str | None] | None = None,
        *,
        conn: Joinable | None = None,
    ) -> list[Outcome]:
        """`dead_letter` for many jobs."""
        rows = self._rows(conn, "dead_letter_many", job_ids=job_ids, tokens=tokens, errors=errors)
        return [Outcome(*row) for row in rows]

    def release(
        self,
        job_id: int,
        token: int,
        *,
        delay: timedelta | None = None,
        conn: Joinable | None = None,
    ) -> Released:
        """Give the job back at no cost of an attempt, to run at once or after `delay`."""
        answer: Released = self._value(conn, "release", job_id=job_id, token=token, delay=delay)
        return answer

    def release_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        *,
        delays: Sequence[timedelta | None] | None = None,
        conn: Joinable | None = None,
    ) -> list[Outcome]:
        """`release` for many jobs."""
        rows = self._rows(conn, "release_many", job_ids=job_ids, tokens=tokens, delays=delays)
        return [Outcome(*row) for row in rows]

    def heartbeat(
        self,
        job_id: int,
        token: int,
        *,
        extend: timedelta | None = None,
        conn: Joinable | None = None,
    ) -> Heartbeat:
        """Renew the lease: it ends `extend` from now, or the job's visibility timeout from now."""
        return Heartbeat(*self._row(conn, "heartbeat", job_id=job_id, token=token, extend=extend))

    def heartbeat_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        *,
        extends: Sequence[timedelta | None] | None = None,
        conn: Joinable | None = None,
    ) -> list[Extension]:
        """`heartbeat` for many jobs."""
        rows = self._rows(conn, "heartbeat_many", job_ids=job_ids, tokens=tokens, extends=extends)
        return [Extension(*row) for row in rows]

    # Wait: for a loop of one's own; `Worker` does all this.

    def wait_begin(self, queue: str, *, conn: Joinable) -> str:
        """Announce that this session is idle; the answer is the channel to LISTEN on."""
        answer: str = self._value(conn, "wait_begin", queue=queue)
        return answer

    def wait_end(self, queue: str, *, conn: Joinable) -> None:
        """The session that called `wait_begin` is idle no more."""
        self._rows(conn, "wait_end", queue=queue)

    def next_run_at(self, queue: str, *, conn: Joinable | None = None) -> datetime | None:
        """When the queue's next unclaimed job is due, maybe in the past; None: there is none."""
        answer: datetime | None = self._value(conn, "next_run_at", queue=queue)
        return answer

    # Administer

    def create_queue(
        self,
        queue: str,
        *,
        max_attempts: int | None = None,
        visibility_timeout: timedelta | None = None,
        retry_backoff: Backoff | None = None,
        retry_factor: float | None = None,
        retry_delay: timedelta | None = None,
        retry_max_delay: timedelta | None = None,
        retry_jitter: tuple[float, float] | None = None,
        expires_in: timedelta | None = None,
        keep_dead: timedelta | None = None,
        notify: bool | None = None,
        max_payload: int | None = None,
        options: Mapping[str, object] | None = None,
        conn: Joinable | None = None,
    ) -> bool:
        """Make a queue: True if it is new, False if it was there and stays as it is."""
        answer: bool = self._value(
            conn,
            "create_queue",
            queue=queue,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            retry_backoff=retry_backoff,
            retry_factor=retry_factor,
            retry_delay=retry_delay,
            retry_max_delay=retry_max_delay,
            retry_jitter=retry_jitter,
            expires_in=expires_in,
            keep_dead=keep_dead,
            notify=notify,
            max_payload=max_payload,
            options=options,
        )
        return answer

    def sweep(self, n: int | None = None, *, conn: Joinable | None = None) -> list[Swept]:
        """Do the upkeep: leases that ran out, expiries, old dead jobs; at most `n` at a time."""
        return [Swept(*row) for row in self._rows(conn, "sweep", n=n)]

    def grant_access(
        self, role: str, capability: Capability, *, conn: Joinable | None = None
    ) -> None:
        """Let a role produce, work, observe or administer; for the schema's owner only."""
        self._rows(conn, "grant_access", role=role, capability=capability)

    def revoke_access(
        self, role: str, capability: Capability, *, conn: Joinable | None = None
    ) -> None:
        """Take a capability away again."""
        self._rows(conn, "revoke_access", role=role, capability=capability)

    def schema_version(self, *, conn: Joinable | None = None) -> str:
        """The release of the schema, such as '0001'."""
        answer: str = self._value(conn, "schema_version")
        return answer

    # Fit

    def check(self, *, conn: Joinable | None = None) -> str:
        """The release of the schema; VersionMismatch if this package doesn't fit it."""
        found, newest = self.schema_version(conn=conn), _releases.path()[-1]
        if found < OLDEST:
            raise VersionMismatch(
                f'schema "{self.schema}" is at {found}, this package needs {OLDEST} or later',
                hint=MIGRATE,
            )
        if found > newest:
            raise VersionMismatch(
                f'schema "{self.schema}" is at {found}, this package knows up to {newest}',
                hint="Upgrade the package pgq_sql.",
            )
        return found
