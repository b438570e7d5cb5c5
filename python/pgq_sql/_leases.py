"""Keeping leases alive while handlers run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ._handling import HeldJob
from ._outage import Outage
from .client import Client
from .models import Extension

SHARE = 1 / 3
"""Of a lease that may pass before it is renewed: two tries may fail."""


@dataclass(slots=True)
class Lease:
    """A claim, on this process's monotonic clock."""

    job: HeldJob
    length: float
    begins: float
    settling: bool = False
    finished: bool = False
    """Its handler has ended: what becomes of the claim is the settlement's to learn."""

    @property
    def ends(self) -> float:
        return self.begins + self.length

    @property
    def due(self) -> float:
        """When to renew it; while it's being settled, never."""
        return math.inf if self.settling else self.begins + self.length * SHARE


class Leases:
    """Renews all leases together in a thread of its own, and tells what is lost.

    A lease begins when its claim was sent: the database gave it later, so on this clock it
    never seems longer than it is.
    """

    def __init__(
        self,
        client: Client,
        outage: Outage,
        lost: Callable[[HeldJob], None],
        cancel: Callable[[HeldJob], None],
    ) -> None:
        self._client = client
        self._outage = outage
        self._lost = lost
        self._cancel = cancel
        self._leases: dict[tuple[int, int], Lease] = {}
        self._changed = threading.Condition()
        self._wakes_at = math.inf
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pgq-leases", daemon=True)
        self._thread.start()

    def add(self, jobs: Iterable[HeldJob], sent_at: float) -> None:
        """Keep the leases of these claims."""
        with self._changed:
            for job in jobs:
                length = (job.lease_until - job.observed_at).total_seconds()
                lease = Lease(job, length, sent_at)
                self._leases[job.key] = lease
                if lease.due < self._wakes_at:
                    self._changed.notify()

    def settling(self, job: HeldJob, now: bool = True) -> bool:
        """Leave a claim alone while its end is in flight; False if it is lost already.

        A renewal that crossed with it could only wait for its row lock, and learn nothing.
        """
        with self._changed:
            lease = self._leases.get(job.key)
            if lease is not None:
                lease.settling = now
                lease.finished = True
                if not now:
                    self._changed.notify()
            return lease is not None

    def drop(self, job: HeldJob) -> None:
        """The claim has ended."""
        with self._changed:
            self._leases.pop(job.key, None)

    def close(self, patience: float) -> None:
        """Renew no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(patience)

    def _run(self) -> None:
        pause = 0.0
        while jobs := self._wait_for_due(pause):
            sent_at = time.monotonic()
            try:
                answers = self._client.heartbeat_many(
                    [job.job_id for job in jobs], [job.token for job in jobs]
                )
            except Exception as error:
                pause = self._outage.failed("leases", error)
            else:
                pause = 0.0
                self._outage.over("leases")
                self._note(jobs, answers, sent_at)

    def _wait_for_due(self, pause: float) -> list[HeldJob]:
        """The jobs to renew now; none: closed."""
        not_before = time.monotonic() + pause
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                self._mark_expired(now)
                first = min((lease.due for lease in self._leases.values()), default=math.inf)
                self._wakes_at = max(first, not_before)
                if self._wakes_at <= now:
                    # Those that are nearly due come along.
                    return [
                        lease.job
                        for lease in self._leases.values()
                        if lease.due - now < lease.length * SHARE / 2
                    ]
                # While renewals fail, look for leases that end meanwhile.
                until = min(self._wakes_at, now + 1) if pause else self._wakes_at
                self._changed.wait(None if until == math.inf else until - now)
        return []

    def _mark_expired(self, now: float) -> None:
        # The database may still think otherwise, so the answer of the ack is what counts.
        for lease in self._leases.values():
            if lease.ends < now and not lease.job.lost.is_set():
                lease.job.lost.set()
                self._cancel(lease.job)

    def _note(self, jobs: Sequence[HeldJob], answers: Sequence[Extension], sent_at: float) -> None:
        with self._changed:
            for job, answer in zip(jobs, answers, strict=True):
                lease = self._leases.get(job.key)
                if lease is None or lease.settling:
                    continue
                if answer.lease_until is None:
                    if lease.finished or job.ending:
                        # Maybe the settlement was carried out and only its answer got lost.
                        lease.settling = True
                        continue
                    del self._leases[job.key]
                    job.lost.set()
                    self._cancel(job)
                    self._lost(job)
                else:
                    lease.begins = sent_at
                    lease.length = (answer.lease_until - answer.observed_at).total_seconds()
