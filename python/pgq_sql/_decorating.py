"""Decorators of handlers: for functions and coroutine functions, for jobs and batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

from ._consumers import is_coroutine_function
from .models import Job

Work: TypeAlias = Job | Sequence[Job]
"""What a handler is called with: a job, or a batch of one queue's jobs."""
Within: TypeAlias = Callable[[Work], AbstractContextManager[Callable[[object], None]]]
"""Makes the context to run a handler in; it is told what the handler answers."""

HandlerKind = TypeVar("HandlerKind", bound=Callable[..., Any])


def around(handler: HandlerKind, within: Within) -> HandlerKind:
    """The handler, run in a context; of the same kind as it was."""
    if not callable(handler):
        raise TypeError(
            f"decorate the handler itself, a function or coroutine function,"
            f" not {type(handler).__name__}"
        )
    call = cast("Callable[[Work], Any]", handler)
    if is_coroutine_function(handler):

        @wraps(call)
        async def run_coroutine(work: Work) -> object:
            with within(work) as done:
                answer: object = await call(work)
                done(answer)
                return answer

        return cast("HandlerKind", run_coroutine)

    @wraps(call)
    def run(work: Work) -> object:
        with within(work) as done:
            answer: object = call(work)
            done(answer)
            return answer

    return cast("HandlerKind", run)


def jobs_of(work: Work) -> Sequence[Job]:
    """The jobs that one call of a handler is for."""
    return [work] if isinstance(work, Job) else work
