"""plpgsql_check reads every function and finds nothing, with all its warnings on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rules import SCHEMA

if TYPE_CHECKING:
    from servers import Connection


# What it says and is not so. Each with the reason.
ACCEPTED = {
    # GRANT and REVOKE take no parameters; each name was quoted when the text was put together.
    ("_apply_grants", "text type variable is not sanitized"),
    # The oid of this schema's own table is the same for a statement, not for all time.
    ("_idle_key", "routine is marked as STABLE, should be IMMUTABLE"),
    ("_lane_key", "routine is marked as STABLE, should be IMMUTABLE"),
    # It locks rows, which a stable function may not.
    ("_dead_ids", "routine is marked as VOLATILE, should be STABLE"),
    # Its loop ends by RETURN alone.
    ("_take_key", "control reached end of function without RETURN"),
}


@pytest.fixture
def checker(admin: Connection) -> Connection:
    """The administrator's connection to a database with plpgsql_check; skips without it."""
    known = admin.execute("select 1 from pg_available_extensions where name = 'plpgsql_check'")
    if not known.fetchone():
        pytest.skip("the server has no plpgsql_check extension")
    admin.execute("create schema checker; create extension plpgsql_check schema checker")
    return admin


def findings(conn: Connection) -> list[str]:
    """What plpgsql_check says of the schema's functions, one line each."""
    rows = conn.execute(
        """
        select proname, c.lineno, c.level, c.message, c.detail, c.query
        from pg_proc
        join pg_language l on l.oid = prolang and lanname = 'plpgsql',
        lateral checker.plpgsql_check_function_tb(pg_proc.oid, all_warnings => true) c
        where pronamespace = %s::regnamespace and prorettype <> 'trigger'::regtype
        order by proname, c.lineno
        """,
        [SCHEMA],
    ).fetchall()
    return [
        f"{name}:{line}: {level}: {message}" + "".join(f" | {part}" for part in rest if part)
        for name, line, level, message, *rest in rows
        if (name, message) not in ACCEPTED
    ]


def test_nothing_found(checker: Connection) -> None:
    found = findings(checker)
    assert not found, "\n".join(found)


def test_a_planted_fault_is_found(checker: Connection) -> None:
    before = findings(checker)
    checker.execute(
        "create function pgq_sql._planted() returns bigint language plpgsql"
        " set search_path = pgq_sql, pg_temp as $$ declare unused text; begin return 1; end $$;"
        "create function pgq_sql._planted_too() returns bigint language plpgsql"
        " set search_path = pgq_sql, pg_temp"
        " as $$ begin return (select no_such_column from job); end $$"
    )
    found = [line for line in findings(checker) if line not in before]
    assert any("unused" in line for line in found), found
    assert any("no_such_column" in line for line in found), found
