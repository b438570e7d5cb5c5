"""The client's methods that make jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from .._joining import AsyncJoinable
from ..models import Enqueued, Outcome
from ..words import Backoff, DedupMode
from .caller import Caller

_EMPTY: Mapping[str, object] = {}


class Producing(Caller):
    """Makes jobs."""

    async def enqueue(
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
        dedup_key: str | None = None,
        dedup_mode: DedupMode | None = None,
        headers: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        conn: AsyncJoinable | None = None,
    ) -> Enqueued:
        """Put one job into a queue. `delay` wins over `run_at`; the payload is any JSON value.

        While a live job of the queue has the same `dedup_key`, mode 'ignore' keeps that job, and
        'replace' puts this one in its place unless it runs.
        """
        return Enqueued(
            *await self._row(
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
                dedup_key=dedup_key,
                dedup_mode=dedup_mode,
                headers=headers,
                options=options,
            )
        )

    async def enqueue_many(
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
        dedup_keys: Sequence[str | None] | None = None,
        dedup_mode: DedupMode | None = None,
        options: Mapping[str, object] | None = None,
        conn: AsyncJoinable | None = None,
    ) -> list[Outcome]:
        """Put many jobs into a queue, all or none; the answers are in the order of `payloads`."""
        rows = await self._rows(
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
            dedup_keys=dedup_keys,
            dedup_mode=dedup_mode,
            options=options,
        )
        return [Outcome(*row) for row in rows]
