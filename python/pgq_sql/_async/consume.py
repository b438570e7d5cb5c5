"""The client's methods that take jobs and settle them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from .._joining import AsyncJoinable
from ..models import JOB_COLUMNS, Extension, Heartbeat, Job, Outcome
from ..words import Acked, Dead, Released, Retried
from .caller import Caller


class Consuming(Caller):
    """Takes jobs and settles them."""

    async def claim(
        self,
        queue: str,
        worker: str,
        n: int = 1,
        *,
        visibility_timeout: timedelta | None = None,
        conn: AsyncJoinable | None = None,
    ) -> list[Job]:
        """Take up to `n` ready jobs under a lease, in run order. `worker` labels the claimant."""
        rows = await self._rows(
            conn,
            "claim",
            queue=queue,
            worker=worker,
            n=n,
            visibility_timeout=visibility_timeout,
        )
        return [Job(*row[:JOB_COLUMNS]) for row in rows]

    async def ack(
        self, job_id: int, token: int, result: object = None, *, conn: AsyncJoinable | None = None
    ) -> Acked:
        """The job is done. `result`, JSON but not None, is kept if the queue keeps done jobs."""
        answer: Acked = await self._value(conn, "ack", job_id=job_id, token=token, result=result)
        return answer

    async def ack_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        results: Sequence[object] | None = None,
        *,
        conn: AsyncJoinable | None = None,
    ) -> list[Outcome]:
        """The jobs are done; a stale claim is an answer and does not stop the others."""
        rows = await self._rows(conn, "ack_many", job_ids=job_ids, tokens=tokens, results=results)
        return [Outcome(*row) for row in rows]

    async def retry(
        self,
        job_id: int,
        token: int,
        error: str | None = None,
        *,
        delay: timedelta | None = None,
        conn: AsyncJoinable | None = None,
    ) -> Retried:
        """The run failed. The job comes back after `delay` or its backoff; dead at its last."""
        answer: Retried = await self._value(
            conn, "retry", job_id=job_id, token=token, error=error, delay=delay
        )
        return answer

    async def retry_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        errors: Sequence[str | None] | None = None,
        *,
        delays: Sequence[timedelta | None] | None = None,
        conn: AsyncJoinable | None = None,
    ) -> list[Outcome]:
        """`retry` for many jobs."""
        rows = await self._rows(
            conn, "retry_many", job_ids=job_ids, tokens=tokens, errors=errors, delays=delays
        )
        return [Outcome(*row) for row in rows]

    async def dead_letter(
        self,
        job_id: int,
        token: int,
        error: str | None = None,
        *,
        conn: AsyncJoinable | None = None,
    ) -> Dead:
        """The job will never succeed: keep it among the dead, run it no more."""
        answer: Dead = await self._value(
            conn, "dead_letter", job_id=job_id, token=token, error=error
        )
        return answer

    async def dead_letter_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        errors: Sequence[str | None] | None = None,
        *,
        conn: AsyncJoinable | None = None,
    ) -> list[Outcome]:
        """`dead_letter` for many jobs."""
        rows = await self._rows(
            conn, "dead_letter_many", job_ids=job_ids, tokens=tokens, errors=errors
        )
        return [Outcome(*row) for row in rows]

    async def release(
        self,
        job_id: int,
        token: int,
        *,
        delay: timedelta | None = None,
        conn: AsyncJoinable | None = None,
    ) -> Released:
        """Give the job back at no cost of an attempt, to run at once or after `delay`."""
        answer: Released = await self._value(
            conn, "release", job_id=job_id, token=token, delay=delay
        )
        return answer

    async def release_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        *,
        delays: Sequence[timedelta | None] | None = None,
        conn: AsyncJoinable | None = None,
    ) -> list[Outcome]:
        """`release` for many jobs."""
        rows = await self._rows(conn, "release_many", job_ids=job_ids, tokens=tokens, delays=delays)
        return [Outcome(*row) for row in rows]

    async def heartbeat(
        self,
        job_id: int,
        token: int,
        *,
        extend: timedelta | None = None,
        progress: object = None,
        conn: AsyncJoinable | None = None,
    ) -> Heartbeat:
        """Renew the lease: it ends `extend` from now, or the job's visibility timeout from now.

        `progress`, any JSON value but None, shows in `get_job`.
        """
        return Heartbeat(
            *await self._row(
                conn, "heartbeat", job_id=job_id, token=token, extend=extend, progress=progress
            )
        )

    async def heartbeat_many(
        self,
        job_ids: Sequence[int],
        tokens: Sequence[int],
        *,
        extends: Sequence[timedelta | None] | None = None,
        progresses: Sequence[object] | None = None,
        conn: AsyncJoinable | None = None,
    ) -> list[Extension]:
        """`heartbeat` for many jobs."""
        rows = await self._rows(
            conn,
            "heartbeat_many",
            job_ids=job_ids,
            tokens=tokens,
            extends=extends,
            progresses=progresses,
        )
        return [Extension(*row) for row in rows]

    async def require_lease(self, job_id: int, token: int, *, conn: AsyncJoinable) -> None:
        """LeaseLost or JobNotFound unless the caller's lease still holds.

        It keeps the job from others until the transaction ends.
        """
        await self._rows(conn, "require_lease", job_id=job_id, token=token)

    async def pop(self, queue: str, n: int = 1, *, conn: AsyncJoinable | None = None) -> list[Job]:
        """Take up to `n` ready jobs and end them at once: each runs at most once."""
        return [Job(*row[:JOB_COLUMNS]) for row in await self._rows(conn, "pop", queue=queue, n=n)]

    # Wait: for a loop of one's own; `Worker` does all this.

    async def wait_begin(self, queue: str, *, conn: AsyncJoinable) -> str:
        """Announce that this session is idle; the answer is the channel to LISTEN on."""
        answer: str = await self._value(conn, "wait_begin", queue=queue)
        return answer

    async def wait_end(self, queue: str, *, conn: AsyncJoinable) -> None:
        """The session that called `wait_begin` is idle no more."""
        await self._rows(conn, "wait_end", queue=queue)

    async def next_run_at(
        self, queue: str, *, conn: AsyncJoinable | None = None
    ) -> datetime | None:
        """When the queue's next unclaimed job is due, maybe in the past; None: there is none."""
        answer: datetime | None = await self._value(conn, "next_run_at", queue=queue)
        return answer
