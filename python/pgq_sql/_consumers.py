"""Handlers, and how a worker is to run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from ._jobs import Batch, RunningJob
from .errors import InvalidArgument

Handler: TypeAlias = Callable[[RunningJob], object]
BatchHandler: TypeAlias = Callable[[Batch], object]

HEAVIEST = 1_000_000

H = TypeVar("H", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    weight: float = 1
    """Its share of the worker while several queues have work: 3 gets three times what 1 gets."""
    limit: int | None = None
    """How many of its handlers may run at once, within the worker's concurrency."""
    timeout: timedelta | None = None
    """How long a handler may run. Then its job is retried, and a coroutine is cancelled.

    A thread cannot be stopped: `job.lost` tells it, and it keeps its place until it returns.
    """
    dead_letter_on: tuple[type[BaseException], ...] = ()
    """Exceptions that mean that the job will never succeed."""

    def __post_init__(self) -> None:
        if not (0 < self.weight <= HEAVIEST):
            raise InvalidArgument(f"weight must be more than 0, and at most {HEAVIEST:,}")
        if self.limit is not None and self.limit < 1:
            raise InvalidArgument("limit must be at least 1")
        if self.timeout is not None:
            if not isinstance(self.timeout, timedelta):
                raise TypeError(f"timeout must be timedelta, not {type(self.timeout).__name__}")
            if self.timeout <= timedelta(0):
                raise InvalidArgument("timeout must be positive")
        if not isinstance(self.dead_letter_on, tuple):
            raise TypeError("dead_letter_on must be a tuple of exception types")
        for kind in self.dead_letter_on:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError("dead_letter_on must be a tuple of exception types")


@dataclass(frozen=True, slots=True)
class Consumer(_Options, Generic[H]):
    """A handler with options: it is called with one job."""

    handler: H
    size: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class BatchConsumer(_Options, Generic[H]):
    """A handler that is called with a `Batch`: one to `size` jobs that were ready together.

    It answers None, and all are acked; or a list as long as the batch with the result of each job,
    or an exception, which means for that job what it would mean if it was raised. If it raises,
    that is so for all of them: one bad job can send the others to the dead.
    """

    handler: H
    _: KW_ONLY
    size: int = 100
    """How many jobs at most; it counts as one handler of the worker's concurrency."""

    def __post_init__(self) -> None:
        _Options.__post_init__(self)
        if self.size < 1:
            raise InvalidArgument("size must be at least 1")


Handlers: TypeAlias = Mapping[str, Handler | Consumer[Handler] | BatchConsumer[BatchHandler]]
"""What a worker takes: each queue's handler."""
AnyConsumer: TypeAlias = Consumer[Any] | BatchConsumer[Any]


def consumers(handlers: Mapping[str, object]) -> dict[str, AnyConsumer]:
    """Each queue's consumer; a bare handler is one without options."""
    found: dict[str, AnyConsumer] = {
        queue: one if isinstance(one, Consumer | BatchConsumer) else Consumer(one)
        for queue, one in handlers.items()
    }
    for queue, consumer in found.items():
        if not callable(consumer.handler):
            raise TypeError(f"the handler of {queue} must be a function")
    return found


def is_coroutine_function(handler: object) -> bool:
    """Whether it is to be awaited; an object may have a __call__ that is."""
    call = getattr(type(handler), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def refuse_coroutines(consumers: Mapping[str, AnyConsumer]) -> None:
    """Threads cannot run them: what they answer would be awaited by nobody."""
    for queue, consumer in consumers.items():
        if is_coroutine_function(consumer.handler):
            raise TypeError(f"the handler of {queue} must be an ordinary function")
