"""What the answer to a settlement means, and who is to know of it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from ._log import note
from ._settlements import Settlement, Verb

TOO_LARGE = "result too large"
"""The answer of ack_many for such a job, which is not ended."""

ANSWERS: Mapping[Verb, str] = {
    "ack": "acked",
    "dead_letter": "dead",
    "release": "released",
    "retry": "retried",
}
# What the second sending is told if the first was carried out and only its answer got lost.
ANSWERS_IF_DONE: Mapping[Verb, Collection[str]] = {
    "ack": {"gone"},
    "dead_letter": {"gone"},
    "release": {"lost", "gone"},
    "retry": {"lost", "gone"},
}


def outcome(settlement: Settlement) -> str:
    """What a settlement counts as: acked, retried, dead, released or lost."""
    answer, verb = settlement.answer, settlement.verb
    course = settlement.job._course
    if course.ended or (course.ending and answer == "gone"):
        # Released when the worker stopped, perhaps, but its ack was committed before.
        return "acked"
    if settlement.sent and answer in ANSWERS_IF_DONE[verb]:
        last = verb == "retry" and settlement.job.attempt >= settlement.job.max_attempts
        return ANSWERS["dead_letter" if last else verb]
    return "lost" if answer is None or answer == "gone" else answer


def tell(settlement: Settlement, outcome: str) -> None:
    """Log what somebody should know."""
    job, why = settlement.job, settlement.headline
    if outcome == "lost":
        note(logging.WARNING, job, ": %s before its %s", settlement.answer, settlement.verb)
    elif outcome == "dead":
        note(logging.ERROR, job, " is dead: %s", why)
    elif outcome == "retried":
        note(logging.WARNING, job, " will run again: %s", why)
    elif outcome == "acked" and settlement.error is not None:
        note(logging.ERROR, job, " failed after its ack: %s", why)
