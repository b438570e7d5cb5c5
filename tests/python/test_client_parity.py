"""The client and the schema say the same: functions, arguments, types, columns; both ways."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

from pgq_sql import (
    Client,
    Enqueued,
    Extension,
    Finding,
    Heartbeat,
    Job,
    JobCount,
    JobState,
    Letter,
    Outcome,
    QueueState,
    Swept,
)
from pgq_sql._statements import MAY_BE_NULL, PLURAL, REQUIRED_BY, TYPES, type_of
from servers import Connection

# What the client has of its own.
OWN = {"check", "close"}

OUTCOMES = (
    "ack_many",
    "dead_letter_many",
    "enqueue_many",
    "redrive",
    "release_many",
    "retry_many",
)
ANSWERS: dict[str, Any] = {
    "claim": Job,
    "count_jobs": JobCount,
    "doctor": Finding,
    "get_job": JobState,
    "list_jobs": JobState,
    "pop": Job,
    "queue_stats": QueueState,
    "redrive_queue": Letter,
    "enqueue": Enqueued,
    "heartbeat": Heartbeat,
    "heartbeat_many": Extension,
    "sweep": Swept,
    **dict.fromkeys(OUTCOMES, Outcome),
}

ARGUMENTS = """
    select p.proname::text, a.name, format_type(a.type, null)
    from pg_proc p
    cross join unnest(
      p.proargnames[1:p.pronargs], p.proargtypes::oid[]) with ordinality a (name, type, place)
    where p.pronamespace = 'pgq_sql'::regnamespace and p.proname !~ '^_'
    order by p.proname, a.place"""
REQUIRED = """
    select p.proname::text, a.name
    from pg_proc p
    cross join unnest(p.proargnames[1:p.pronargs - p.pronargdefaults]) a (name)
    where p.pronamespace = 'pgq_sql'::regnamespace and p.proname !~ '^_'
    order by p.proname"""
COLUMNS = """
    select p.proname::text as function, a.name, a.place
    from pg_proc p
    cross join unnest(p.proargnames, p.proargmodes) with ordinality a (name, mode, place)
    where p.pronamespace = 'pgq_sql'::regnamespace and p.proname !~ '^_' and a.mode in ('o', 't')
    union all
    select p.proname::text, a.attname::text, a.attnum
    from pg_proc p
    join pg_type t on t.oid = p.prorettype and t.typtype = 'c'
    join pg_attribute a on a.attrelid = t.typrelid
    where p.pronamespace = 'pgq_sql'::regnamespace and p.proname !~ '^_'
    order by function, place"""
FUNCTIONS = """
    select proname::text from pg_proc
    where pronamespace = 'pgq_sql'::regnamespace and proname !~ '^_'"""


def methods() -> dict[str, list[str]]:
    """The client's methods, and what they take for the function of the same name."""
    return {
        name: list(inspect.signature(method).parameters)[1:]
        for name, method in inspect.getmembers(Client, inspect.isfunction)
        if not name.startswith("_") and name not in OWN
    }


def test_every_function_is_a_method_and_the_reverse(conn: Connection) -> None:
    assert sorted(methods()) == sorted(str(name) for (name,) in conn.execute(FUNCTIONS))


def test_arguments_have_the_same_names(conn: Connection) -> None:
    functions: dict[str, list[str]] = {name: [] for name in methods()}
    for function, argument, _ in conn.execute(ARGUMENTS):
        functions[str(function)].append(str(argument))
    assert {name: sorted(names) for name, names in functions.items()} == {
        name: sorted(set(names) - {"conn"}) for name, names in methods().items()
    }


def test_every_method_joins_a_transaction() -> None:
    assert [name for name, arguments in methods().items() if arguments[-1] != "conn"] == []


def test_arguments_have_the_types_that_they_are_sent_as(conn: Connection) -> None:
    rows = [(str(f), str(a), str(t)) for f, a, t in conn.execute(ARGUMENTS)]
    spelled = {
        "timestamp with time zone": "timestamptz",
        "timestamp with time zone[]": "timestamptz[]",
    }
    wrong = [
        f"{function}: {argument} is {kind}, sent as {type_of(function, argument)}"
        for function, argument, kind in rows
        if type_of(function, argument) != spelled.get(kind, kind)
    ]
    assert wrong == []
    assert set(TYPES) == {argument for _, argument, _ in rows}
    assert set(PLURAL) <= {(function, argument) for function, argument, _ in rows}


@pytest.mark.parametrize("function", ANSWERS)
def test_answers_have_the_columns_as_fields(conn: Connection, function: str) -> None:
    columns = [column for name, column, _ in conn.execute(COLUMNS) if name == function]
    assert columns == [field.name for field in fields(ANSWERS[function])]


def test_none_for_what_is_required_reaches_the_function(conn: Connection) -> None:
    """Which refuses it. Left out, it would be a call of a function that does not exist."""
    required: list[tuple[str, str]] = [
        (str(function), str(name)) for function, name in conn.execute(REQUIRED)
    ]
    assert ("ack", "token") in required
    assert [one for one in required if one[1] not in MAY_BE_NULL and one not in REQUIRED_BY] == []
