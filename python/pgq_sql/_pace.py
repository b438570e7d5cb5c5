"""How fast the handlers are, so that the next jobs are there when they end."""

from __future__ import annotations

import time

AHEAD = 0.05
"""Seconds of work to claim ahead of the handlers."""
RATE_OVER = 0.2
"""Seconds over which to measure how fast the handlers are."""


class Pace:
    """The rate at which handlers end; guarded by whoever owns it."""

    def __init__(self) -> None:
        self.ended = 0
        self._rate = 0.0
        self._measured_at = 0.0

    def measure(self) -> None:
        """Take in how many have `ended` since the last time."""
        now = time.monotonic()
        elapsed = max(now - self._measured_at, 1e-6)
        rate = self.ended / elapsed
        self.ended, self._measured_at = 0, now
        self._rate += (rate - self._rate) * min(1.0, elapsed / RATE_OVER)

    @property
    def ahead(self) -> int:
        """How many more could begin before the next claim."""
        return int(self._rate * AHEAD)
