"""The client's methods that change queues and single jobs, and say who may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from .._joining import AsyncJoinable
from ..models import Letter, Outcome
from ..words import Backoff, Cancelled, Capability, Promoted, Reprioritized, Resumed, Suspended
from .caller import Caller


class Controlling(Caller):
    """Changes queues and single jobs, and says who may."""

    async def create_queue(
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
        keep_done: timedelta | None = None,
        keep_dead: timedelta | None = None,
        dead_letter_queue: str | None = None,
        notify: bool | None = None,
        max_payload: int | None = None,
        options: Mapping[str, object] | None = None,
        conn: AsyncJoinable | None = None,
    ) -> bool:
        """Make a queue: True if it is new, False if it was there and stays as it is.

        `keep_done` and `keep_dead` of `timedelta.max` keep for ever (PostgreSQL 17 or later).
        """
        answer: bool = await self._value(
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
            keep_done=keep_done,
            keep_dead=keep_dead,
            dead_letter_queue=dead_letter_queue,
            notify=notify,
            max_payload=max_payload,
            options=options,
        )
        return answer

    async def alter_queue(
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
        keep_done: timedelta | None = None,
        keep_dead: timedelta | None = None,
        dead_letter_queue: str | None = None,
        notify: bool | None = None,
        max_payload: int | None = None,
        reset: Sequence[str] | None = None,
        options: Mapping[str, object] | None = None,
        conn: AsyncJoinable | None = None,
    ) -> bool:
        """Change a queue's settings for jobs to come; False if nothing changed.

        `reset` names the settings that go back to their defaults.
        """
        answer: bool = await self._value(
            conn,
            "alter_queue",
            queue=queue,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            retry_backoff=retry_backoff,
            retry_factor=retry_factor,
            retry_delay=retry_delay,
            retry_max_delay=retry_max_delay,
            retry_jitter=retry_jitter,
            expires_in=expires_in,
            keep_done=keep_done,
            keep_dead=keep_dead,
            dead_letter_queue=dead_letter_queue,
            notify=notify,
            max_payload=max_payload,
            reset=reset,
            options=options,
        )
        return answer

    async def pause_queue(self, queue: str, *, conn: AsyncJoinable | None = None) -> bool:
        """Claims find nothing from now on; False if it was paused."""
        answer: bool = await self._value(conn, "pause_queue", queue=queue)
        return answer

    async def resume_queue(self, queue: str, *, conn: AsyncJoinable | None = None) -> bool:
        """End a pause; False if there was none."""
        answer: bool = await self._value(conn, "resume_queue", queue=queue)
        return answer

    async def purge_queue(self, queue: str, *, conn: AsyncJoinable | None = None) -> int:
        """Remove every job that does not run; the answer is how many."""
        answer: int = await self._value(conn, "purge_queue", queue=queue)
        return answer

    async def drop_queue(
        self, queue: str, *, force: bool = False, conn: AsyncJoinable | None = None
    ) -> int:
        """Remove a queue, with `force` its jobs too; the answer is how many."""
        answer: int = await self._value(conn, "drop_queue", queue=queue, force=force)
        return answer

    async def cancel(self, job_id: int, *, conn: AsyncJoinable | None = None) -> Cancelled:
        """End a job, also while it runs."""
        answer: Cancelled = await self._value(conn, "cancel", job_id=job_id)
        return answer

    async def promote(self, job_id: int, *, conn: AsyncJoinable | None = None) -> Promoted:
        """Let a scheduled or retrying job run now."""
        answer: Promoted = await self._value(conn, "promote", job_id=job_id)
        return answer

    async def suspend(self, job_id: int, *, conn: AsyncJoinable | None = None) -> Suspended:
        """Hold a job back until `resume`."""
        answer: Suspended = await self._value(conn, "suspend", job_id=job_id)
        return answer

    async def resume(self, job_id: int, *, conn: AsyncJoinable | None = None) -> Resumed:
        """Let a suspended job run again."""
        answer: Resumed = await self._value(conn, "resume", job_id=job_id)
        return answer

    async def reprioritize(
        self, job_id: int, priority: int, *, conn: AsyncJoinable | None = None
    ) -> Reprioritized:
        """Give a job that does not run another priority."""
        answer: Reprioritized = await self._value(
            conn, "reprioritize", job_id=job_id, priority=priority
        )
        return answer

    async def redrive(
        self,
        dead_ids: Sequence[int] | None = None,
        *,
        queue: str | None = None,
        n: int | None = None,
        dry_run: bool = False,
        conn: AsyncJoinable | None = None,
    ) -> list[Outcome]:
        """Bring dead jobs back, all or none: those named, or the first `n` of a queue."""
        rows = await self._rows(
            conn, "redrive", dead_ids=dead_ids, queue=queue, n=n, dry_run=dry_run
        )
        return [Outcome(*row) for row in rows]

    async def redrive_queue(
        self,
        dead_letter_queue: str,
        n: int | None = None,
        *,
        dry_run: bool = False,
        conn: AsyncJoinable | None = None,
    ) -> list[Letter]:
        """Replay dead letters, all or none: each becomes a new job where it died."""
        rows = await self._rows(
            conn, "redrive_queue", dead_letter_queue=dead_letter_queue, n=n, dry_run=dry_run
        )
        return [Letter(*row) for row in rows]

    async def discard_dead(
        self,
        dead_ids: Sequence[int] | None = None,
        *,
        queue: str | None = None,
        n: int | None = None,
        conn: AsyncJoinable | None = None,
    ) -> int:
        """Remove dead jobs for good, all or none; the answer is how many."""
        answer: int = await self._value(conn, "discard_dead", dead_ids=dead_ids, queue=queue, n=n)
        return answer

    async def grant_access(
        self, role: str, capability: Capability, *, conn: AsyncJoinable | None = None
    ) -> None:
        """Let a role produce, work, observe or administer; for the schema's owner only."""
        await self._rows(conn, "grant_access", role=role, capability=capability)

    async def revoke_access(
        self, role: str, capability: Capability, *, conn: AsyncJoinable | None = None
    ) -> None:
        """Take a capability away again."""
        await self._rows(conn, "revoke_access", role=role, capability=capability)
