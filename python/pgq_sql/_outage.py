"""Failures of the database: told once, waited out with patience."""

from __future__ import annotations

import logging
import random
import threading
import time

import psycopg

from ._watch import Watch
from .errors import PgqError

UNREACHABLE = (psycopg.OperationalError, psycopg.InterfaceError)
"""Nothing is wrong with the call: the same one may succeed later."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


def jittered(seconds: float) -> float:
    """Somewhere around it, so that many workers don't come at once."""
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311


def one_line(error: BaseException) -> str:
    """The error for a log: one line."""
    details = (error.detail, error.hint) if isinstance(error, PgqError) else ()
    detail = f" ({'; '.join(filter(None, details))})" if any(details) else ""
    return " ".join(f"{type(error).__name__}: {error}{detail}".split())


class Outage:
    """What the parts of one worker know together: one warning at the start, one word at the end.

    When its watch is hurried, connections are cut by the worker itself, which is no outage.
    """

    def __init__(self, log: logging.Logger, watch: Watch | None = None) -> None:
        self._log = log
        self._watch = watch
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._since = 0.0

    def failed(self, part: str, error: BaseException) -> float:
        """Another failure; the answer is how many seconds to wait before the next try."""
        if self._watch is not None and self._watch.hurried:
            return FIRST_PAUSE
        with self._lock:
            if not self._failures:
                self._since = time.monotonic()
                self._log.warning("database: %s; trying again until it answers", one_line(error))
            else:
                self._log.debug("%s: %s", part, one_line(error))
            failures = self._failures[part] = self._failures.get(part, 0) + 1
        return jittered(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (min(failures, 10) - 1)))

    def over(self, part: str) -> None:
        """The database has answered this part."""
        if not self._failures:
            return
        with self._lock:
            if self._failures.pop(part, None) is not None and not self._failures:
                seconds = time.monotonic() - self._since
                self._log.info("database: answers again after %.1f s", seconds)
