"""When to look into a queue: at once while there is work, then less and less often."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ._consumers import AnyConsumer
from ._outage import jittered

FIRST_PAUSE = 0.01
SHORTEST_PAUSE = 0.001
AT_ONCE = 1000
"""Jobs to claim at most by one look: a transaction of some tens of milliseconds."""
DEAF_FOR = 1.0
"""Seconds at most for which notifications are not heard, after many that led to nothing."""
BUSY_AFTER = 3
"""Looks in a row that found something, after which notifications are not worth their cost."""


@dataclass(slots=True, eq=False)
class Source:
    """One queue, as its worker sees it."""

    name: str
    poll_interval: float
    consumer: AnyConsumer
    running: int = 0
    """Handlers that run, or wait for a place."""
    next_look: float = 0.0
    empty: bool = False
    """The last look found nothing."""
    idle: bool = False
    """So it did, and since then nothing has come; a job may be due later."""
    told: bool = False
    """Its failure has been logged."""
    _in_vain: int = 0
    _in_luck: int = 0
    _woken: bool = True
    _woken_look: bool = False
    _woken_in_vain: int = 0
    _hears_from: float = -math.inf

    @property
    def room(self) -> float:
        """For how many more handlers its limit leaves room."""
        limit = self.consumer.limit
        return math.inf if limit is None else limit - self.running

    @property
    def watched(self) -> bool:
        """Whether to be notified of new jobs."""
        return self._in_luck < BUSY_AFTER

    def wake(self) -> None:
        """There may be a job: look at once, unless that has been in vain again and again."""
        self._woken, self.idle = True, False
        if self._hears_from < time.monotonic() - self.poll_interval:
            self._woken_in_vain = 0
        if not self._woken_in_vain:
            self._in_vain = 0

    def look_again(self) -> None:
        """Look at once: what is known counts no more."""
        self.next_look, self.idle = -math.inf, False

    def looks_at(self) -> float:
        """When to look next, on the monotonic clock."""
        return min(self.next_look, self._hears_from) if self._woken else self.next_look

    @property
    def asks_when(self) -> bool:
        """Whether to ask too when the next job is due: not if there is one, or word of one."""
        return self.empty and not self._woken

    def looking(self) -> None:
        """A look begins: what comes from now on is for the next one."""
        self._woken_look, self._woken = self._woken, False

    def found(self, asked: int, jobs: int, due: bool, due_in: float | None) -> None:
        """Note what a look has brought; `due`: it was asked too when the next job is."""
        now = time.monotonic()
        self.told = False
        self.empty = not jobs
        self.idle = not jobs and due and (due_in is None or due_in > 0)
        if jobs:
            self._in_vain = self._woken_in_vain = 0
            self._hears_from = -math.inf
            self._in_luck += 1
            # As many as asked for: there are more. Fewer: that was all, or all that could be had.
            self.next_look = now if jobs >= asked else now + FIRST_PAUSE
            return
        pause = min(FIRST_PAUSE * 2 ** min(self._in_vain, 30), self.poll_interval)
        self._in_vain += 1
        self._in_luck = 0
        self.next_look = now + jittered(pause)
        if self._woken_look:
            # Others were faster, or somebody floods the channel.
            deaf_for = min(FIRST_PAUSE * 2**self._woken_in_vain, DEAF_FOR, self.poll_interval)
            self._hears_from = now + deaf_for
            self._woken_in_vain = min(self._woken_in_vain + 1, 30)
        if due_in is not None and due_in > 0:
            self.next_look = min(self.next_look, now + max(due_in, SHORTEST_PAUSE))

    def failed(self) -> None:
        """Look again much later: it cannot be looked into."""
        # Nor along with an ack, which would fail with it; nor is it waited for.
        self.empty = self.idle = True
        self.next_look = time.monotonic() + jittered(self.poll_interval)


def shares(sources: Sequence[Source], free: int) -> dict[Source, int]:
    """For how many jobs to ask each, where so many handlers are free: according to its weight."""
    if not sources:
        return {}
    total = sum(source.consumer.weight for source in sources)
    exact = {source: free * source.consumer.weight / total for source in sources}
    handlers = {source: int(share) for source, share in exact.items()}
    # Who gets what is left is drawn: over many rounds that is fair, and needs no memory.
    if rest := free - sum(handlers.values()):
        parts = [exact[source] - handlers[source] for source in sources]
        for source in random.choices(sources, parts, k=rest):  # noqa: S311
            handlers[source] += 1
    return {
        source: min(int(min(count, source.room)) * source.consumer.size, AT_ONCE)
        for source, count in handlers.items()
        if count
    }
