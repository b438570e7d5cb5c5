"""Values on the command line: how `pgq` reads them, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NoReturn, get_args

import typer

from . import _json
from .words import Backoff, DedupMode, State

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""In milliseconds."""

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[wdhms])")


def duration(text: str) -> timedelta:
    """Read `10s`, `5m`, `2h`, `1d`, `1h30m`, `500ms`."""
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise typer.BadParameter(f"{text} is not a duration such as 500ms, 10s, 5m, 2h, 1d, 1h30m")
    try:
        return timedelta(milliseconds=sum(float(number) * UNITS[unit] for number, unit in parts))
    except OverflowError as error:
        raise typer.BadParameter(f"{text} is too long") from error


def instant(text: str) -> datetime:
    """Read an instant in ISO 8601, which has to have a time zone."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text} is not an instant such as 2030-01-31T12:00:00Z"
        ) from error
    if read.utcoffset() is None:
        raise typer.BadParameter(f"{text} has no time zone: end it with Z or +01:00")
    return read


@dataclass(frozen=True, slots=True)
class Raw:
    """JSON as it was typed: numbers keep digits that a float would lose."""

    text: str


def json_value(text: str) -> Raw:
    """Read a JSON value, and refuse what the database could not store."""
    try:
        # As texts, numbers can have any size.
        value = json.loads(text, parse_constant=_no_constant, parse_float=str, parse_int=str)
        _json.dumps(value)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not JSON: {error}") from error
    return Raw(text)


def json_object(text: str) -> Raw:
    """Read a JSON object."""
    raw = json_value(text)
    if not text.lstrip().startswith("{"):
        raise typer.BadParameter("not a JSON object")
    return raw


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def dumps(value: object) -> str:
    """The client's encoder."""
    return value.text if isinstance(value, Raw) else _json.dumps(value)


def integer(least: int | None = None) -> Callable[[object], int]:
    """A reader of integers, not below `least`."""

    def read(text: object) -> int:  # a default is one already
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", str(text)):
            raise typer.BadParameter(f"{text} is no number")
        value = int(str(text))
        if least is not None and value < least:
            raise typer.BadParameter(f"{text} is less than {least}")
        return value

    return read


def jitter(text: str) -> tuple[float, float]:
    """Read `0.8,1.2`."""
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text} is not a range such as 0.8,1.2") from error
    return low, high


def one_of(words: object) -> Callable[[str], str]:
    """A reader of these words, and of no others."""
    known = get_args(words)

    def read(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"{text} is none of {', '.join(known)}")
        return text

    return read


backoff, dedup_mode, state = one_of(Backoff), one_of(DedupMode), one_of(State)
