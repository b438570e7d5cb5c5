"""What a stress run keeps count of, and what it must not find.

Judged at the end, from what the callers were answered: while the run goes on, a thread may note a
claim long after it happened.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

OPEN_TOO_LONG = timedelta(seconds=1.9)
"""A mark passes a producer that is open for two seconds; less a margin."""


@dataclass
class Lease:
    """What a claim answered; `over` once its holder has begun to give the job back."""

    observed_at: datetime
    lease_until: datetime
    over: bool = False


@dataclass
class Stray:
    """A job that is ready, but that no claim would find."""

    job_id: int
    stamp: datetime
    """The clock reading that placed it, by enqueue, retry or release."""
    run_at: datetime
    token: int
    seen_at: datetime | None = None
    """By the watcher; the transaction that placed the job had committed by then."""
    excusable: bool = True
    """A mark may pass a job whose producer was open too long; no sweep may miss it."""


@dataclass
class Ledger:
    """Written by all actors, under `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    committed: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    """Of sessions that were killed before they were told what became of the job."""
    acked: Counter[tuple[int, int]] = field(default_factory=Counter)
    claims: Counter[tuple[int, int]] = field(default_factory=Counter)
    leases: dict[tuple[int, int], Lease] = field(default_factory=dict)
    held: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By session, what it is working on."""
    visible_by: dict[tuple[int, int], datetime] = field(default_factory=dict)
    """The server's clock just after the commit that placed the job with this token."""
    strays: dict[int, Stray] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    kills: int = 0

    @property
    def done(self) -> set[int]:
        return {job_id for job_id, _ in self.acked}

    @property
    def lost(self) -> set[int]:
        return self.committed - self.done - self.left - self.dead - self.unsure

    @property
    def unexpected(self) -> set[int]:
        return (self.done | self.left | self.dead) - self.committed - self.unsure

    @property
    def doubled(self) -> set[int]:
        """Jobs that two claimants held at once, or that went on after their end."""
        tokens: dict[int, list[int]] = defaultdict(list)
        for job_id, token in sorted(self.claims):
            tokens[job_id].append(token)
        found = {job_id for (job_id, _), times in self.claims.items() if times > 1}
        for job_id, held in tokens.items():
            for one, other in pairwise(held):
                lease = self.leases[job_id, one]
                if not lease.over and self.leases[job_id, other].observed_at < lease.lease_until:
                    found.add(job_id)
        ends = Counter(job_id for job_id, _ in self.acked.elements())
        ends.update(self.dead)
        found |= {job_id for job_id, times in ends.items() if times > 1}
        return found | {i for i, token in self.acked if i in tokens and tokens[i][-1] > token}

    @property
    def stranded(self) -> set[int]:
        return {job_id for job_id in self.strays if not self._slow(self.strays[job_id])}

    @property
    def slow(self) -> set[int]:
        """Below a mark, but of producers that were open too long: sweeps are to find these."""
        return self.strays.keys() - self.stranded

    def _slow(self, stray: Stray) -> bool:
        """Also if nobody knows when it was committed, because the session was killed."""
        if not stray.excusable:
            return False
        times = [
            t
            for t in (stray.seen_at, self.visible_by.get((stray.job_id, stray.token)))
            if t is not None
        ]
        return not times or min(times) - stray.stamp > OPEN_TOO_LONG

    def faulty(self) -> bool:
        """Whether it is certain already, while the run goes on."""
        with self.lock:
            return bool(self.stranded or self.doubled)

    def faults(self) -> dict[str, int]:
        return {
            "lost": len(self.lost),
            "unexpected": len(self.unexpected),
            "doubled": len(self.doubled),
            "stranded": len(self.stranded),
        }

    def figures(self) -> dict[str, int]:
        return {
            "committed": len(self.committed),
            "claims": len(self.claims),
            "acked": len(self.acked),
            "dead": len(self.dead),
            "left": len(self.left),
            "kills": self.kills,
            "unsure": len(self.unsure),
            "slow": len(self.slow),
            **self.faults(),
        }
