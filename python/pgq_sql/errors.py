"""Exceptions, one for each SQLSTATE that the queue's functions raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg


class PgqError(Exception):
    """What the queue refuses. Faults of the database itself stay psycopg's exceptions."""

    code = ""

    def __init__(
        self,
        message: str,
        *,
        sqlstate: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate or self.code
        self.detail = detail
        self.hint = hint
        # Tracebacks print notes; str() stays the one line.
        for label, text in (("detail", detail), ("hint", hint)):
            if text:
                self.add_note(f"{label}: {text}")


class QueueNotFound(PgqError):
    """There is no queue of that name."""

    code = "JQ001"


class LeaseLost(PgqError):
    """Another claim holds the job, or the lease ran out."""

    code = "JQ002"


class JobNotFound(PgqError):
    """There is no such job."""

    code = "JQ003"


class InvalidState(PgqError):
    """That is not possible in the state that the job or the queue is in."""

    code = "JQ004"


class UnknownOption(PgqError):
    """`options` has a key that this schema doesn't know."""

    code = "JQ005"


class VersionMismatch(PgqError):
    """The schema is missing, too old or too new for this package."""

    code = "JQ006"


class PayloadTooLarge(PgqError):
    """Payload, headers or result exceed the queue's `max_payload`, or progress its 65536 bytes."""

    code = "JQ007"


class InvalidArgument(PgqError, ValueError):
    """A value that is out of its range or has the wrong form."""

    code = "22023"


class InvalidJson(InvalidArgument):
    """A value that JSON, or PostgreSQL's jsonb, cannot hold unchanged."""


class NotAllowed(PgqError):
    """The role lacks the capability; `grant_access` gives it."""

    code = "42501"


class Closed(PgqError):
    """The client or the worker was closed."""

    code = "08003"


_BY_SQLSTATE = {
    error.code: error
    for error in (
        QueueNotFound,
        LeaseLost,
        JobNotFound,
        InvalidState,
        UnknownOption,
        VersionMismatch,
        PayloadTooLarge,
        InvalidArgument,
        NotAllowed,
    )
}
# Only our own functions are called by name: if one is missing, the schema is.
_BY_SQLSTATE |= dict.fromkeys(("3F000", "42883"), VersionMismatch)

MIGRATE = "Check the name of the schema, or run `pgq migrate` (--schema NAME)."


@contextmanager
def translated() -> Iterator[None]:
    """Turn the database errors that are the queue's own into this module's exceptions."""
    try:
        yield
    except psycopg.Error as error:
        known = from_database(error)
        if known is None:
            raise
        raise known from error


def from_database(error: BaseException) -> PgqError | None:
    """The exception for an error of any driver, or what a library made of it.

    None if it isn't the queue's own.
    """
    if isinstance(error, PgqError):
        return None
    error = _of_the_driver(error)
    sqlstate, message, detail, hint = _told(error)
    if sqlstate is None:
        # psycopg refused a value before it sent anything, such as a NUL in a text.
        return InvalidArgument(str(error)) if isinstance(error, psycopg.DataError) else None
    kind = _BY_SQLSTATE.get(sqlstate)
    if kind is None and sqlstate.startswith("22"):
        kind = InvalidArgument
    if kind is None:
        return None
    return kind(
        message or str(error),
        sqlstate=sqlstate,
        detail=detail,
        hint=hint if kind is not VersionMismatch else MIGRATE,
    )


def _of_the_driver(error: BaseException) -> BaseException:
    """What a driver raised: SQLAlchemy and Django wrap it, SQLAlchemy asyncpg's even twice."""
    while not isinstance(error, psycopg.Error):
        inner = getattr(error, "orig", None) or error.__cause__
        if inner is None:
            break
        error = inner
    return error


def _told(error: Any) -> Iterable[str | None]:
    """What the server said: SQLSTATE, message, detail and hint."""
    if hasattr(error, "diag"):  # psycopg, psycopg2
        diag = error.diag
        sqlstate = getattr(error, "sqlstate", diag.sqlstate)
        return sqlstate, diag.message_primary, diag.message_detail, diag.message_hint
    if error.args and isinstance(error.args[0], dict):  # pg8000
        return map(error.args[0].get, "CMDH")
    names = ("sqlstate", "message", "detail", "hint")  # asyncpg
    return (getattr(error, name, None) for name in names)
