"""The SQL behind each method: static text with named arguments, and values made safe for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from psycopg import sql

from .errors import InvalidArgument

# An argument has the same type in every function that takes it.
TYPES = {
    "after": "bigint",
    "bound": "integer",
    "capability": "text",
    "dead_ids": "bigint[]",
    "dead_letter_queue": "text",
    "dedup_key": "text",
    "dedup_keys": "text[]",
    "dedup_mode": "text",
    "delay": "interval",
    "delays": "interval[]",
    "dry_run": "boolean",
    "error": "text",
    "errors": "text[]",
    "expires_in": "interval",
    "extend": "interval",
    "extends": "interval[]",
    "force": "boolean",
    "headers": "jsonb",
    "job_id": "bigint",
    "job_ids": "bigint[]",
    "keep_dead": "interval",
    "keep_done": "interval",
    "max_attempts": "integer",
    "max_payload": "integer",
    "n": "integer",
    "notify": "boolean",
    "options": "jsonb",
    "payload": "jsonb",
    "payload_has": "jsonb",
    "payloads": "jsonb[]",
    "priorities": "integer[]",
    "priority": "integer",
    "progress": "jsonb",
    "progresses": "jsonb[]",
    "queue": "text",
    "reset": "text[]",
    "result": "jsonb",
    "results": "jsonb[]",
    "retry_backoff": "text",
    "retry_delay": "interval",
    "retry_factor": "double precision",
    "retry_jitter": "numrange",
    "retry_max_delay": "interval",
    "role": "name",
    "run_at": "timestamptz",
    "run_ats": "timestamptz[]",
    "state": "text",
    "token": "bigint",
    "tokens": "bigint[]",
    "visibility_timeout": "interval",
    "worker": "text",
}
# The one name that means two things: for enqueue_many, each job has its own.
PLURAL = {("enqueue_many", "headers"): "jsonb[]"}

# Where None is a value (JSON's null) and not the absence of one.
NULLABLE = frozenset({"payload", "payloads"})

# What most functions cannot do without. None goes to them, whose refusal says more than that there
# is no function with so few arguments; where such an argument is optional, its default is null.
REQUIRED = frozenset(
    {
        "capability",
        "dead_letter_queue",
        "job_id",
        "job_ids",
        "queue",
        "role",
        "token",
        "tokens",
        "worker",
    }
)
REQUIRED_BY = frozenset({("reprioritize", "priority")})

MAY_BE_NULL = NULLABLE | REQUIRED
"""Where None is sent as an argument of its own, and not left to the default."""

# Where the longest timedelta means for ever.
FOREVER = frozenset({"keep_dead", "keep_done"})

Values = dict[str, object]
Adapter: TypeAlias = Callable[[str, object], object]
"""Makes a value safe to send; is told its name too, for the error."""


class Statements:
    """Makes the calls of one schema's functions."""

    def __init__(self, schema: str, dumps: Callable[[object], str]) -> None:
        if not schema or "\0" in schema:
            raise InvalidArgument("a schema name is not empty and has no NUL in it")
        # psycopg takes a bare % for the start of an argument.
        self._schema = sql.Identifier(schema).as_string(None).replace("%", "%%")
        self._calls: dict[tuple[str, ...], tuple[bytes, list[tuple[str, Adapter]]]] = {}
        self._adapters: dict[str, Adapter] = {**_ADAPTERS, "jsonb": lambda _, value: dumps(value)}

    def call(self, function: str, arguments: Mapping[str, object]) -> tuple[bytes, Values]:
        """The statement and its values; an option that is None is left to its default."""
        given = {
            name: value
            for name, value in arguments.items()
            if value is not None or name in MAY_BE_NULL or (function, name) in REQUIRED_BY
        }
        key = (function, *given)
        # Made once: what is looked up here is a good part of what a call costs.
        known = self._calls.get(key)
        if known is None:
            adapters = [(name, self._adapter(name, type_of(function, name))) for name in given]
            known = self._calls[key] = self._text(function, given), adapters
        text, adapters = known
        return text, {name: adapt(name, given[name]) for name, adapt in adapters}

    def fill(self, template: str) -> bytes:
        """A statement that is more than one call: `{schema}` becomes the schema's name."""
        return template.replace("{schema}", self._schema).encode()

    def _text(self, function: str, names: Iterable[str]) -> bytes:
        arguments = ", ".join(f"{name} => %({name})s::{type_of(function, name)}" for name in names)
        return self.fill(f"select * from {{schema}}.{function}({arguments})")  # noqa: S608

    def _adapter(self, name: str, kind: str) -> Adapter:
        adapt = self._adapters[kind.removesuffix("[]")]
        if name not in NULLABLE:
            adapt = _or_null(adapt)
        return _each(adapt) if kind.endswith("[]") else adapt


def type_of(function: str, argument: str) -> str:
    """The SQL type of a function's argument."""
    return PLURAL.get((function, argument)) or TYPES[argument]


def _or_null(adapt: Adapter) -> Adapter:
    return lambda name, value: None if value is None else adapt(name, value)


def _each(adapt: Adapter) -> Adapter:
    def adapt_each(name: str, value: object) -> object:
        if value is None and name not in NULLABLE:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise _wrong(name, "a sequence", value)
        return [adapt(name, item) for item in value]

    return adapt_each


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(name, "str", value)
    # psycopg would send the name of an enumeration's member instead of its text.
    return str.__str__(value)


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int):
        raise _wrong(name, "int", value)
    return int(value)


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float):
        raise _wrong(name, "a number", value)
    return float(value)


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "bool", value)
    return value


def _duration(name: str, value: object) -> timedelta | str:
    if not isinstance(value, timedelta):
        raise _wrong(name, "timedelta", value)
    if value == timedelta.max and name in FOREVER:
        return "infinity"
    return value


def _instant(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise _wrong(name, "datetime", value)
    if value.utcoffset() is None:
        raise InvalidArgument(
            f"{name} must have a time zone", hint="For example datetime.now(UTC)."
        )
    return value


def _span(name: str, value: object) -> str:
    match value:
        case (int() | float() as low, int() | float() as high):
            return f"[{low},{high}]"
    raise _wrong(name, "a pair of numbers", value)


def _wrong(name: str, wanted: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


_ADAPTERS: dict[str, Adapter] = {
    "bigint": _whole,
    "boolean": _truth,
    "double precision": _number,
    "integer": _whole,
    "interval": _duration,
    "name": _text,
    "numrange": _span,
    "text": _text,
    "timestamptz": _instant,
}
