"""How a handler's run ends: what it may raise, and what that means for its job."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from ._consumers import AnyConsumer, BatchConsumer
from ._jobs import HeldJob
from ._json import Unreadable

Verb: TypeAlias = Literal["ack", "retry", "dead_letter", "release"]

ERROR_LIMIT = 4000
"""Characters of error text that are kept with a job."""
NAME_LIMIT = 300
MESSAGE_LIMIT = 1000
FRAMES = 6
LONGEST = timedelta(milliseconds=9_007_199_254_740)
"""What the schema takes for a duration."""


class Retry(Exception):
    """Raise it in a handler: run the job again after `delay`, or after its backoff."""

    def __init__(self, delay: timedelta | None = None, reason: str = "retry") -> None:
        super().__init__(reason)
        self.delay = None if delay is None else checked_delay(delay)


class DeadLetter(Exception):
    """Raise it in a handler: the job will never succeed; keep it among the dead."""

    def __init__(self, reason: str = "failed") -> None:
        super().__init__(reason)


class Snooze(Exception):
    """Raise it in a handler: not now, but after `delay`; costs no attempt."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = checked_delay(delay)


@dataclass(slots=True, eq=False)
class Settlement:
    """How a claim is to end."""

    job: HeldJob
    verb: Verb
    error: str | None = None
    delay: timedelta | None = None
    result: object = None
    answer: str | None = None
    sent: bool = False
    """It was sent and no answer came: it may have been carried out."""
    refused: int = 0

    @property
    def headline(self) -> str:
        """The first line of the error."""
        return (self.error or "").partition("\n")[0]


def ended(consumer: AnyConsumer, jobs: Sequence[HeldJob], answer: object) -> list[Settlement]:
    """The handler has returned."""
    if not isinstance(consumer, BatchConsumer):
        return [_one(consumer, jobs[0], answer)]
    if answer is None:
        return [_acked(job, None) for job in jobs]
    if not isinstance(answer, list | tuple) or len(answer) != len(jobs):
        found = f"{len(answer)} of them" if isinstance(answer, list) else type(answer).__name__
        error = TypeError(f"a batch handler answers None or {len(jobs)} results, not {found}")
        return failed(consumer, jobs, error)
    return [_one(consumer, job, one) for job, one in zip(jobs, answer, strict=True)]


def _one(consumer: AnyConsumer, job: HeldJob, answer: object) -> Settlement:
    if answer is None:
        return _acked(job, None)
    if isinstance(answer, BaseException):
        return _judged(consumer, job, answer)
    if isinstance(answer, type) or inspect.isgenerator(answer) or inspect.isawaitable(answer):
        # Nothing of it has run: `raise Retry` forgotten, a yield, an await.
        found = answer.__name__ if isinstance(answer, type) else type(answer).__name__
        return _judged(
            consumer, job, TypeError(f"the handler answered {found}, which is no result")
        )
    return _acked(job, answer)


def failed(
    consumer: AnyConsumer, jobs: Iterable[HeldJob], error: BaseException
) -> list[Settlement]:
    """The handler has raised: what that means for its jobs."""
    return [_judged(consumer, job, error) for job in jobs]


def unreadable(job: HeldJob) -> Settlement | None:
    """How a job ends that no handler can be given: None if it can."""
    for name, value in (("payload", job.payload), ("headers", job.headers)):
        if isinstance(value, Unreadable):
            return Settlement(job, "retry", f"its {name} cannot be read\n{error_text(value.error)}")
    return None


def too_slow(consumer: AnyConsumer, job: HeldJob) -> Settlement:
    """The handler's time is over."""
    assert consumer.timeout is not None
    seconds = consumer.timeout.total_seconds()
    return _judged(consumer, job, TimeoutError(f"the handler was not done after {seconds:g} s"))


def _acked(job: HeldJob, result: object) -> Settlement:
    if job._course.ending and not job._course.ended:
        # If it was committed this is told `gone`, which counts as done.
        return Settlement(job, "retry", "its ack was not committed")
    return Settlement(job, "ack", result=None if job._course.ended else result)


def _judged(consumer: AnyConsumer, job: HeldJob, error: BaseException) -> Settlement:
    try:
        return _judge(consumer, job, error)
    except BaseException as why:
        # An exception may be of any class, whose parts raise what they like.
        return Settlement(job, "retry", f"{_name(error)}, which cannot be read: {_name(why)}")


def _name(error: BaseException) -> str:
    try:
        return str(type(error).__qualname__)[:NAME_LIMIT]
    except BaseException:
        return "an exception"


def _judge(consumer: AnyConsumer, job: HeldJob, error: BaseException) -> Settlement:
    if job._course.ended:
        return Settlement(job, "ack", error=error_text(error))
    match error:
        case Retry():
            delay = None if error.delay is None else checked_delay(error.delay)
            return Settlement(job, "retry", reason_text(error), delay)
        case DeadLetter():
            return Settlement(job, "dead_letter", reason_text(error))
        case Snooze():
            return Settlement(job, "release", delay=checked_delay(error.delay))
    verb: Verb = "dead_letter" if isinstance(error, consumer.dead_letter_on) else "retry"
    return Settlement(job, verb, error_text(error))


def error_text(error: BaseException) -> str:
    """What to keep of an exception: type, message, cause, last frames."""
    lines: list[str] = []
    for part in (_headlines, _cause, _frames):
        try:
            lines += part(error)
        except BaseException:
            lines.append("(more cannot be read)")
    return _storable(lines)


def reason_text(wish: Retry | DeadLetter) -> str:
    """What to keep of a wish: the reason it gives, and the cause it was raised from."""
    return _storable([_message(wish), *_cause(wish)])


def _headlines(error: BaseException) -> list[str]:
    return [_headline(error)]


def _cause(error: BaseException) -> list[str]:
    return [] if error.__cause__ is None else [f"caused by {_headline(error.__cause__)}"]


def _frames(error: BaseException) -> list[str]:
    if error.__traceback__ is None:
        return []
    # The first frame is that of whoever called the handler.
    frames = traceback.extract_tb(error.__traceback__.tb_next, limit=-FRAMES)
    return [line.rstrip() for line in frames.format()]


def _storable(lines: Iterable[str]) -> str:
    # PostgreSQL stores neither NUL nor lone surrogates, and the text is not ours to refuse.
    text = "\n".join(lines)[:ERROR_LIMIT].replace("\0", "\\0")
    return text.encode("utf-8", "backslashreplace").decode()[:ERROR_LIMIT]


def _headline(error: BaseException) -> str:
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    name = f"{module}{kind.__qualname__}"[:NAME_LIMIT]
    message = _message(error)
    return name + (f": {message}" if message else "")


def _message(error: BaseException) -> str:
    try:
        return str(error)[:MESSAGE_LIMIT]
    except BaseException:
        return "(its text cannot be had)"


def checked_delay(delay: object) -> timedelta:
    """The delay, if the database can take it."""
    if not isinstance(delay, timedelta):
        raise TypeError(f"delay must be timedelta, not {type(delay).__name__}")
    if not timedelta(0) <= delay <= LONGEST:
        raise ValueError("delay must be from 0 to 285 years")
    return delay
