"""JSON comes back as it went in, or is refused before any SQL."""

from __future__ import annotations

import enum
import json
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgq_sql import InvalidArgument, InvalidJson
from pgq_sql._json import dumps, loads

Pair = namedtuple("Pair", "a b")


class Colour(enum.StrEnum):
    RED = "red"


def circle() -> list[object]:
    inner: list[object] = []
    inner.append(inner)
    return inner


def deep(levels: int = 100_000) -> object:
    value: object = None
    for _ in range(levels):
        value = [value]
    return value


REFUSED = {
    "NUL": ({"a": "x\0y"}, "$.a: NUL cannot be stored"),
    "NUL in a key": ({"a\0": 1}, "$: a key: NUL cannot be stored"),
    "NaN": ([1, float("nan")], "$[1]: nan is not JSON"),
    "infinity": ({"a": {"b": float("inf")}}, "$.a.b: inf is not JSON"),
    "lone surrogate": (["\ud800"], "$[0]: a lone surrogate is not text"),
    "surrogate in a key": ({"\udfff": 1}, "$: a key: a lone surrogate is not text"),
    "key that is a number": ({1: 2}, "$: a key is int, not str"),
    "keys that would collide": ({1: "a", "1": "b"}, "$: a key is int, not str"),
    "key that is None": ({"a": {None: 1}}, "$.a: a key is NoneType, not str"),
    "tuple": ({"a": (1, 2)}, "$.a: tuple is not JSON"),
    "named tuple": (Pair(1, 2), "$: Pair is not JSON"),
    "bytes": (b"x", "$: bytes is not JSON"),
    "set": ([{1}], "$[0]: set is not JSON"),
    "datetime": ({"at": datetime.now(UTC)}, "$.at: datetime is not JSON"),
    "Decimal": (Decimal(1), "$: Decimal is not JSON"),
    "UUID": (UUID(int=0), "$: UUID is not JSON"),
    "object": (object(), "$: object is not JSON"),
    "itself": (circle(), "the value contains itself, or is nested too deeply"),
    "too deep": (deep(), "the value contains itself, or is nested too deeply"),
    "too many digits": (10**5000, "4300"),
}


@pytest.mark.parametrize(("value", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(value: object, problem: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        dumps(value)
    assert problem in str(caught.value)


def test_refusal_is_a_value_error_with_the_code_of_a_bad_argument() -> None:
    with pytest.raises(InvalidArgument, match="NUL") as caught:
        dumps("\0")
    assert isinstance(caught.value, ValueError)
    assert caught.value.sqlstate == "22023"


def test_refusal_does_not_show_the_value() -> None:
    with pytest.raises(InvalidJson) as caught:
        dumps({"password": "secret\0"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -0.0,
        1e300,
        2**70,
        "",
        "ä€😀",
        "\\u0000",
        "\\\\u0000 and \\u0000",
        "\u2028\x7f\x01",
        [],
        {},
        {"": [None, {"a": []}]},
        OrderedDict(b=1, a=2),
        Colour.RED,
    ],
)
def test_accepted(value: object) -> None:
    assert loads(dumps(value)) == value


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
anything = st.recursive(
    scalars | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(), max_size=3) | st.integers(), inner)
        | st.tuples(inner)
    ),
    max_leaves=10,
)


@given(anything)
def test_equal_or_refused(value: object) -> None:
    try:
        text = dumps(value)
    except InvalidJson:
        return
    text.encode()
    assert json.loads(text) == value
    assert "\0" not in text
