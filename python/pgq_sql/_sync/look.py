"""The client's methods that look, and keep in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .. import _releases
from .._joining import Joinable
from ..errors import MIGRATE, VersionMismatch
from ..models import KEPT_COLUMNS, Finding, JobCount, JobState, QueueState, Swept
from ..words import State
from .caller import Caller, Row

OLDEST = "0001"
"""The oldest release of the schema that has every function this client calls."""


def _kept(row: Row) -> JobState:
    job = JobState(*row[:KEPT_COLUMNS])
    jitter: Any = job.retry_jitter  # psycopg's Range; we take and give pairs
    if jitter is None:
        return job
    return replace(job, retry_jitter=(float(jitter.lower), float(jitter.upper)))


class Looking(Caller):
    """Looks, and keeps in order."""

    def get_job(self, job_id: int, *, conn: Joinable | None = None) -> JobState | None:
        """The job, live, dead or done; None if there is no such job any more."""
        rows = self._rows(conn, "get_job", job_id=job_id)
        return _kept(rows[0]) if rows else None

    def list_jobs(
        self,
        *,
        queue: str | None = None,
        state: State | None = None,
        worker: str | None = None,
        payload_has: object = None,
        after: int = 0,
        n: int = 100,
        conn: Joinable | None = None,
    ) -> list[JobState]:
        """Jobs in id order, from the one after `after` on; `payload_has`: what payloads contain."""
        rows = self._rows(
            conn,
            "list_jobs",
            queue=queue,
            state=state,
            worker=worker,
            payload_has=payload_has,
            after=after,
            n=n,
        )
        return [_kept(row) for row in rows]

    def count_jobs(
        self,
        *,
        queue: str | None = None,
        state: State | None = None,
        conn: Joinable | None = None,
    ) -> list[JobCount]:
        """Exact numbers by queue and state; reads every job it counts."""
        return [JobCount(*row) for row in self._rows(conn, "count_jobs", queue=queue, state=state)]

    def queue_stats(
        self, queue: str, bound: int = 10000, *, conn: Joinable | None = None
    ) -> QueueState:
        """The state of a queue; no figure looks at more than `bound` rows."""
        return QueueState(*self._row(conn, "queue_stats", queue=queue, bound=bound))

    def doctor(self, *, conn: Joinable | None = None) -> list[Finding]:
        """What is wrong, or about to be, and what to do; nothing if all is well."""
        return [Finding(*row) for row in self._rows(conn, "doctor")]

    def sweep(self, n: int | None = None, *, conn: Joinable | None = None) -> list[Swept]:
        """Do the upkeep: leases that ran out, expiries, old dead jobs; at most `n` at a time."""
        return [Swept(*row) for row in self._rows(conn, "sweep", n=n)]

    def schema_version(self, *, conn: Joinable | None = None) -> str:
        """The release of the schema, such as '0001'."""
        answer: str = self._value(conn, "schema_version")
        return answer

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
