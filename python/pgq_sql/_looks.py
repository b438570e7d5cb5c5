"""When to look into a queue: at once while there is work, then less and less often."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ._outage import jittered

FIRST_PAUSE = 0.01
SHORTEST_PAUSE = 0.001
BUSY_AFTER = 3
"""Looks in a row that found something, after which notifications are not worth their cost."""


@dataclass(slots=True, eq=False)
class Source:
    """One queue, as its worker sees it."""

    name: str
    poll_interval: float
    next_look: float = 0.0
    woken: bool = True
    empty: bool = False
    """The last look found nothing."""
    told: bool = False
    """Its failure has been logged."""
    _in_vain: int = 0
    _in_luck: int = 0

    @property
    def watched(self) -> bool:
        """Whether to be notified of new jobs."""
        return self._in_luck < BUSY_AFTER

    def wake(self) -> None:
        """Look at once: there may be a job."""
        self.woken = True
        self._in_vain = 0

    def looks_at(self) -> float:
        """When to look next, on the monotonic clock."""
        return -math.inf if self.woken else self.next_look

    def found(self, asked: int, jobs: int, due_in: float | None) -> None:
        """Note what a look has brought."""
        now = time.monotonic()
        self.told = False
        self.empty = not jobs
        if jobs:
            self._in_vain = 0
            self._in_luck += 1
            # As many as asked for: there are more. Fewer: that was all, or all that could be had.
            self.next_look = now if jobs >= asked else now + FIRST_PAUSE
            return
        pause = min(FIRST_PAUSE * 2 ** min(self._in_vain, 30), self.poll_interval)
        self._in_vain += 1
        self._in_luck = 0
        self.next_look = now + jittered(pause)
        if due_in is not None and due_in > 0:
            self.next_look = min(self.next_look, now + max(due_in, SHORTEST_PAUSE))

    def failed(self) -> None:
        """Look again much later: it cannot be looked into."""
        # Nor along with an ack, which would fail with it.
        self.empty = True
        self.next_look = time.monotonic() + jittered(self.poll_interval)
