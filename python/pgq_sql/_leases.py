"""Keeping leases alive while handlers run, and noticing that time is over."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ._jobs import HeldJob, claims
from ._outage import Outage
from ._watch import Patience, Unanswered, Watch
from .client import Client
from .models import Extension

SHARE = 1 / 3
"""Of a lease that may pass before it is renewed: two tries may fail."""
HASTE = 1 / 30
"""Of a lease to wait for the renewal of a few, when one of many has kept the others waiting."""


@dataclass(slots=True)
class Lease:
    """A claim, on this process's monotonic clock."""

    job: HeldJob
    length: float
    begins: float
    settling: bool = False
    finished: bool = False
    """Its handler has ended: what becomes of the claim is the settlement's to learn."""
    limit: float = math.inf
    """When the handler's time is over."""

    @property
    def ends(self) -> float:
        return self.begins + self.length

    @property
    def due(self) -> float:
        """When to renew it; while it's being settled, never."""
        if self.settling or self.job._course.ending:
            # Its row is locked by the transaction that acks it.
            return math.inf
        return self.begins + self.length * SHARE


class Owner(Protocol):
    """Who holds the claims; told in a thread of the leases or of the watch."""

    def lost(self, job: HeldJob) -> None:
        """The lease was lost while the handler ran."""

    def in_vain(self, job: HeldJob) -> None:
        """By this clock the lease has run out."""

    def overran(self, job: HeldJob) -> None:
        """The handler's time is over."""


class Leases:
    """Renews all leases together in a thread of its own, and tells what is lost.

    A lease begins when its claim was sent: the database gave it later, so on this clock it
    never seems longer than it is.
    """

    def __init__(
        self, client: Client, outage: Outage, owner: Owner, watch: Watch, patience: Patience
    ) -> None:
        self._client = client
        self._outage = outage
        self._owner = owner
        self._watch = watch
        self._patience = patience
        self._leases: dict[tuple[int, int], Lease] = {}
        self._changed = threading.Condition()
        self._wakes_at = math.inf
        self._closed = False
        watch.add(self._mark_over)
        self._thread = threading.Thread(target=self._run, name="pgq-leases", daemon=True)
        self._thread.start()

    def add(self, jobs: Iterable[HeldJob], sent_at: float) -> None:
        """Keep the leases of these claims."""
        first = math.inf
        with self._changed:
            for job in jobs:
                length = (job.lease_until - job.observed_at).total_seconds()
                lease = self._leases[job.key] = Lease(job, length, sent_at)
                first = min(first, lease.ends)
                if lease.due < self._wakes_at:
                    self._wakes_at = lease.due
                    self._changed.notify()
        self._watch.by(first)

    def limit(self, jobs: Iterable[HeldJob], until: float) -> None:
        """The handler of these may run so long."""
        with self._changed:
            for job in jobs:
                if (lease := self._leases.get(job.key)) is not None:
                    lease.limit = until
        self._watch.by(until)

    def settling(self, jobs: Iterable[HeldJob]) -> list[bool]:
        """Leave claims alone while their ends are in flight; False for those lost already.

        A renewal that crossed with it could only wait for its row lock, and learn nothing.
        """
        return self._settle(jobs, True)

    def not_settled(self, jobs: Iterable[HeldJob]) -> None:
        """Their ends did not get through: keep them until they do."""
        self._settle(jobs, False)
        with self._changed:
            self._changed.notify()

    def _settle(self, jobs: Iterable[HeldJob], now: bool) -> list[bool]:
        ours: list[bool] = []
        with self._changed:
            for job in jobs:
                if (lease := self._leases.get(job.key)) is not None:
                    lease.settling = now
                    lease.finished = True
                ours.append(lease is not None)
        return ours

    def drop(self, jobs: Iterable[HeldJob]) -> None:
        """The claims have ended."""
        with self._changed:
            for job in jobs:
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
            try:
                self._renew(jobs, self._shortest(jobs) * SHARE / 2)
            except Exception as error:
                pause = self._outage.failed("leases", error)
            else:
                pause = 0.0
                self._outage.over("leases")

    def _renew(self, jobs: Sequence[HeldJob], patience: float) -> None:
        sent_at = time.monotonic()
        try:
            with self._client._borrow() as conn, self._patience.with_(conn, patience):
                answers = self._client.heartbeat_many(*claims(jobs), conn=conn)
        except Unanswered:
            self._find_the_stuck(jobs)
        else:
            self._note(jobs, answers, sent_at)

    def _find_the_stuck(self, jobs: Sequence[HeldJob]) -> None:
        """Somebody holds the row of one of them: renew the others, half by half."""
        haste = self._shortest(jobs) * HASTE
        with self._client._borrow() as conn, self._patience.with_(conn, haste):
            conn.execute("select")
        if len(jobs) > 1:
            middle = len(jobs) // 2
            self._renew(jobs[:middle], haste)
            self._renew(jobs[middle:], haste)

    def _shortest(self, jobs: Sequence[HeldJob]) -> float:
        with self._changed:
            leases = [self._leases.get(job.key) for job in jobs]
        return min((one.length for one in leases if one), default=math.inf)

    def _wait_for_due(self, pause: float) -> list[HeldJob]:
        """The jobs to renew now; none: closed."""
        not_before = time.monotonic() + pause
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                first = min((lease.due for lease in self._leases.values()), default=math.inf)
                self._wakes_at = max(first, not_before)
                if self._wakes_at <= now:
                    # Those that are nearly due come along.
                    return [
                        lease.job
                        for lease in self._leases.values()
                        if lease.due - now < lease.length * SHARE / 2
                    ]
                self._changed.wait(None if self._wakes_at == math.inf else self._wakes_at - now)
        return []

    def _mark_over(self, now: float) -> float:
        """Tell whose lease or handler has run out of time; the answer is when the next one will."""
        upcoming = math.inf
        over: list[tuple[Callable[[HeldJob], None], HeldJob]] = []
        with self._changed:
            for lease in self._leases.values():
                # The database may still think otherwise, so the answer of the ack is what counts.
                if lease.job.lost.is_set():
                    continue
                if lease.ends <= now:
                    over.append((self._owner.in_vain, lease.job))
                elif lease.limit <= now and not lease.finished:
                    over.append((self._owner.overran, lease.job))
                else:
                    limit = math.inf if lease.finished else lease.limit
                    upcoming = min(upcoming, lease.ends, limit)
        for tell, job in over:
            tell(job)
        return upcoming

    def _note(self, jobs: Sequence[HeldJob], answers: Sequence[Extension], sent_at: float) -> None:
        lost: list[HeldJob] = []
        with self._changed:
            for job, answer in zip(jobs, answers, strict=True):
                lease = self._leases.get(job.key)
                if lease is None or lease.settling:
                    continue
                if answer.lease_until is None:
                    if lease.finished or job._course.ending:
                        # Maybe the settlement was carried out and only its answer got lost.
                        lease.settling = True
                        continue
                    del self._leases[job.key]
                    lost.append(job)
                else:
                    lease.begins = sent_at
                    lease.length = (answer.lease_until - answer.observed_at).total_seconds()
        for job in lost:
            self._owner.lost(job)
