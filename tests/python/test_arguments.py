"""Each public function with each odd value in each place: a documented answer or SQLSTATE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Connection

DOCUMENTED = {"JQ001", "JQ002", "JQ003", "JQ004", "JQ005", "JQ006", "JQ007", "22023"}

# One value that is accepted, for each argument that has no default.
USUAL = {
    "queue": "'q'",
    "payloads": "array['1', '2']::jsonb[]",
    "worker": "'w'",
    "job_id": "1",
    "token": "1",
    "job_ids": "array[1, 2]::bigint[]",
    "tokens": "array[1, 1]::bigint[]",
    "role": "current_user",
    "capability": "'producer'",
    "dead_letter_queue": "'q'",
    "priority": "1",
}

ODD = {
    "text": [
        "''", "'a''b\"%s $1 \\'", "repeat('x', 100)", "repeat('x', 101)",
        "repeat('é', 60)", "E'\\n'", "'😀'", "'Q'",
        "'q' collate \"POSIX\"",
    ],
    "name": ["''", "'no such'"],
    "integer": ["0", "-1", "2147483647", "-2147483648"],
    "bigint": ["0", "-1", "9223372036854775807", "-9223372036854775808"],
    "double precision": ["0", "-1", "1e308", "'NaN'", "'Infinity'", "'-Infinity'"],
    "interval": [
        "'0'", "'-1 us'", "'9007199254740 ms'", "'9007199254741 ms'", "'178000000 years'",
        "'-178000000 years'", "'1 mon -30 days'",
    ],
    "timestamptz": [
        "'infinity'", "'-infinity'", "'294276-12-31'", "'4713-01-01 BC'", "'10000-01-01'",
    ],
    "boolean": ["true", "false"],
    "numrange": ["'empty'", "'(,)'", "'[-1,1]'", "'[1,)'", "'[0,0]'", "'[1e300,1e301]'", "'(1,1]'"],
    "jsonb": [
        "'null'", "'1'", "'\"x\"'", "'[]'", "'{\"a\": 1}'", "'1e1000'",
        "(repeat('[', 1000) || repeat(']', 1000))::jsonb",
    ],
}  # fmt: skip
for _element in ("text", "integer", "bigint", "interval", "timestamptz", "jsonb"):
    ODD[f"{_element}[]"] = [
        "'{}'",
        "'{null,null}'",
        "'{{null,null}}'",
        f"array[{ODD[_element][0]}, {ODD[_element][1]}]",
        f"array[{ODD[_element][0]}]",
        f"array[{ODD[_element][-1]}, {ODD[_element][-2]}]",
    ]
# Infinity came to intervals with PostgreSQL 17.
NEWER = {"interval": ["'infinity'", "'-infinity'"]}


def calls(conn: Connection) -> list[str]:
    """Every function called with one odd argument."""
    made = []
    for name, arguments, defaults in conn.execute(
        "select p.proname, array(select array[x.name, format_type(x.type, null)]"
        "   from unnest(p.proargnames, p.proargtypes::oid[]) with ordinality x(name, type, place)"
        "   where x.place <= p.pronargs), p.pronargdefaults"
        " from pg_proc p where p.pronamespace = 'pgq_sql'::regnamespace and p.proname !~ '^_'"
        " order by 1"
    ):
        assert isinstance(arguments, list)
        assert isinstance(defaults, int)
        usual = {a: USUAL[a] for a, _ in arguments[: len(arguments) - defaults]}
        for argument, kind in arguments:
            kind = kind.replace("timestamp with time zone", "timestamptz")
            values = ["null", *ODD[kind]]
            if conn.info.server_version >= 170000:
                values += NEWER.get(kind, [])
            for value in values:
                given = {**usual, argument: f"({value})::{kind}"}
                listed = ", ".join(f"{a} => {v}" for a, v in given.items())
                made.append(f"select * from pgq_sql.{name}({listed})")
    return made


def test_odd_arguments_are_answered_or_refused(
    conn: Connection, record_property: Callable[[str, object], None]
) -> None:
    conn.execute("select pgq_sql.create_queue('q')")
    conn.execute("select pgq_sql.enqueue_many('q', array_fill('{}'::jsonb, array[20]))")
    before = functions_and_tables(conn)
    made = calls(conn)
    wrong = []
    for call in made:
        try:
            with conn.transaction(force_rollback=True):
                conn.execute(call.encode())
        except psycopg.Error as error:
            if error.sqlstate not in DOCUMENTED:
                wrong.append(f"{error.sqlstate} {str(error).splitlines()[0]}: {call}")
    record_property("calls", len(made))
    assert not wrong, "\n".join(wrong)
    assert len(made) > 400
    assert functions_and_tables(conn) == before


def functions_and_tables(conn: Connection) -> list[tuple[object, ...]]:
    return conn.execute(
        "select oid::regprocedure::text from pg_proc where pronamespace = 'pgq_sql'::regnamespace"
        " union all select relname from pg_class where relnamespace = 'pgq_sql'::regnamespace"
        " order by 1"
    ).fetchall()


@pytest.mark.parametrize("payload", ['"\\u0000"', "{", "", "nan"])
def test_a_payload_that_is_not_json_is_refused(conn: Connection, payload: str) -> None:
    conn.execute("select pgq_sql.create_queue('q')")
    with pytest.raises(psycopg.DataError) as refused:
        conn.execute("select pgq_sql.enqueue('q', %s)", [payload])
    assert refused.value.sqlstate in {"22P02", "22P05"}
