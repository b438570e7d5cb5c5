"""Waking a thread that sleeps."""

from __future__ import annotations

import math
import queue
from contextlib import suppress
from threading import TIMEOUT_MAX


class Bell:
    """Wakes one thread; any may ring it, and so may a signal handler.

    A ring stays until it is heard. That of a Condition is lost if a signal handler notifies
    between its thread's last look and its wait, which nobody else could do.
    """

    __slots__ = ("_rings",)

    def __init__(self) -> None:
        # The only thing to wait for whose put may interrupt its own get: the library says so.
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Wake it: first change what it is to find, then ring."""
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, seconds: float = math.inf) -> None:
        """Until somebody rings or has rung, but no longer than this."""
        with suppress(queue.Empty):
            self._rings.get(timeout=None if seconds == math.inf else min(seconds, TIMEOUT_MAX))
