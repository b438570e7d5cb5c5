"""JSON that comes back as it went in, or is refused before any SQL.

`json.dumps` turns `{1: 2}` into `{"1": 2}`, tuples into lists and NaN into something that isn't
JSON; jsonb cannot hold NUL, nor a half of a surrogate pair.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .errors import InvalidJson

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

Dumps = Callable[[object], str | bytes]
Loads = Callable[[str], object]


def dumps(value: object) -> str:
    """Encode a value; InvalidJson says where it is not JSON."""
    try:
        text = _encode(value)
        # Reading it again finds every silent conversion, at the speed of the C decoder.
        fits = json.loads(text) == value and _stores(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJson(_problem(value) or str(error)) from error
    if not fits:
        problem = _problem(value)
        if problem is not None:
            raise InvalidJson(problem)
    return text


def loads(text: str) -> object:
    """Decode what the database answered."""
    return json.loads(text)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What stands for JSON that cannot be decoded, where that must not be an exception."""

    error: BaseException


def tolerant(loads: Loads) -> Loads:
    """Answer Unreadable where `loads` raises: of many rows one must not spoil the others."""

    def decode(text: str) -> object:
        try:
            return loads(text)
        except Exception as error:
            return Unreadable(error)

    return decode


def checked(dumps: Dumps) -> Callable[[object], str]:
    """Let somebody else's encoder answer bytes, but nothing that cannot be sent."""

    def encode(value: object) -> str:
        text = dumps(value)
        if isinstance(text, bytes):
            return text.decode()
        if not _encodes(text):
            raise InvalidJson("the encoder answered a lone surrogate")
        return text

    return encode


def _stores(text: str) -> bool:
    return "\\u0000" not in text and _encodes(text)


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problem(value: object) -> str | None:
    try:
        return _look(value, "$")
    except RecursionError:
        return "the value contains itself, or is nested too deeply"


def _look(value: object, path: str) -> str | None:
    """What is wrong, and where; never the value, which may be a secret."""
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, str):
        return _look_text(value, path)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path}: {value} is not JSON"
    if isinstance(value, list):
        return _first(_look(item, f"{path}[{index}]") for index, item in enumerate(value))
    if isinstance(value, dict):
        return _first(_look_item(key, item, path) for key, item in value.items())
    return f"{path}: {type(value).__name__} is not JSON"


def _look_item(key: object, item: object, path: str) -> str | None:
    if not isinstance(key, str):
        return f"{path}: a key is {type(key).__name__}, not str"
    return _look_text(key, f"{path}: a key") or _look(item, f"{path}.{key}")


def _look_text(text: str, path: str) -> str | None:
    if "\0" in text:
        return f"{path}: NUL cannot be stored"
    return None if _encodes(text) else f"{path}: a lone surrogate is not text"


def _first(problems: Iterable[str | None]) -> str | None:
    return next(filter(None, problems), None)
