"""The installed schema keeps the rules of rules.py, and each rule catches its violation."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

import psycopg
import pytest
from psycopg import sql

from rules import (
    RULES,
    SCHEMA,
    Rule,
    dynamic_sql,
    indexed_hot_columns,
    narrow_numbers,
    open_to_public,
    overloads,
    public_functions_as_invoker,
    raise_problems,
    replaced_clock,
    unassigned_doors,
    undocumented_errors,
    unpinned_search_paths,
    unwanted_types,
    without_comment,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import AsRole
    from servers import Connection, Server

PREPARE: LiteralString = "set search_path = pgq_sql, pg_temp"

# A public function that breaks several rules at once; the planted cases vary it.
LOOSE: LiteralString = (
    "create function planted(a int) returns void language plpgsql as $$ begin end $$"
)

PLANTED: list[tuple[Rule, LiteralString, str]] = [
    (overloads, f"{LOOSE}; create function planted(a text) returns int return 1", "planted has 2"),
    (unpinned_search_paths, LOOSE, "planted: search_path is None"),
    (
        unpinned_search_paths,
        f"{LOOSE}; alter function planted set search_path = pg_temp, pgq_sql",
        "planted: search_path is pg_temp, pgq_sql",
    ),
    (
        unpinned_search_paths,
        f"{LOOSE}; alter function planted set search_path = pgq_sql",
        "planted",
    ),
    (open_to_public, LOOSE, "function planted: EXECUTE"),
    (open_to_public, "grant usage on schema pgq_sql to public", "schema pgq_sql: USAGE"),
    (open_to_public, "grant select on jobs to public", "relation jobs: SELECT"),
    (open_to_public, "grant select (id) on job to public", "column job.id: SELECT"),
    (open_to_public, "create sequence s; grant usage on s to public", "relation s: USAGE"),
    (open_to_public, "create domain d as text", "type d: USAGE"),
    (public_functions_as_invoker, LOOSE, "planted is not security definer"),
    (without_comment, LOOSE, "function planted"),
    (without_comment, "create table planted (id bigint)", "relation planted"),
    (without_comment, "create view planted as select 1 as one", "column planted.one"),
    (
        undocumented_errors,
        "create function planted() returns void language plpgsql as"
        " $$ begin raise exception 'no code'; end $$",
        "planted: no documented SQLSTATE",
    ),
    (
        dynamic_sql,
        "create function planted(a text) returns void language plpgsql as"
        " $$ begin execute a; end $$",
        "planted executes dynamic SQL",
    ),
    (narrow_numbers, "create function planted(job_id int) returns int return 1", "planted.job_id"),
    (narrow_numbers, "create function planted(out seq int) return 1", "planted.seq is integer"),
    (narrow_numbers, "create table planted (parent_id int)", "planted.parent_id is integer"),
    (narrow_numbers, "create table planted (a serial)", "sequence planted_a_seq is integer"),
    (unwanted_types, "create table planted (at timestamp)", "planted.at is timestamp"),
    (unwanted_types, "create table planted (name varchar(20))", "planted.name is varchar"),
    (
        replaced_clock,
        "create or replace function _now() returns timestamptz language sql"
        " as $$ select current_setting('test.now')::timestamptz $$",
        "_now() is:  select current_setting",
    ),
    (indexed_hot_columns, "create index planted on job (id, lease_until)", "contains lease_until"),
    (indexed_hot_columns, "create index planted on job (id) include (token)", "contains token"),
    (indexed_hot_columns, "create index planted on job (id) where worker is null", "worker"),
    (indexed_hot_columns, "create index planted on job ((attempt + 1))", "contains attempt"),
    (unassigned_doors, LOOSE, "function planted is in no capability"),
    (unassigned_doors, "create view planted as select 1", "view planted is in no capability"),
    (unassigned_doors, "drop function sweep", "function sweep is in the matrix and does not exist"),
    (
        unassigned_doors,
        "create or replace function _capabilities()"
        " returns table (name text, kind text, capability text) language sql"
        " as $$ values ('claim', 'function', 'anyone'), ('ack', 'function', 'owner'),"
        " ('ack', 'function', 'worker') $$",
        "claim: unknown capability anyone",
    ),
]


@pytest.fixture(scope="module")
def installed(server: Server, template: str) -> Iterator[Connection]:
    """One database for all rules: they only read, and what is planted is rolled back."""
    with (
        server.database(template) as name,
        psycopg.connect(server.dsn(name, server.owner), autocommit=True) as conn,
    ):
        yield conn


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: Rule, installed: Connection) -> None:
    found = rule(installed)
    assert not found, "\n".join([str(rule.__doc__), *found])


@pytest.mark.parametrize(
    ("rule", "plant", "told"), PLANTED, ids=[f"{p[0].__name__}-{n}" for n, p in enumerate(PLANTED)]
)
def test_rule_catches(rule: Rule, plant: LiteralString, told: str, installed: Connection) -> None:
    before = rule(installed)
    with installed.transaction(force_rollback=True):
        installed.execute(f"{PREPARE}; {plant}")
        found = [line for line in rule(installed) if line not in before]
    assert any(told in line for line in found), found


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, _, _ in PLANTED} == set(RULES)


@pytest.mark.parametrize(
    "body",
    [
        "begin raise exception using errcode = 'JQ001', message = 'no such queue'; end",
        "begin raise exception 'no such job' using errcode = 'JQ003', hint = 'a; b'; end",
        "begin raise sqlstate '22023' using message = 'bad -- not a comment'; end",
        "begin raise notice 'Anything'; end",
        "begin raise exception '%', sqlerrm using errcode = sqlstate, detail = item; end",
        "begin perform 1; exception when others then raise; end",
        "-- raise exception 'only spoken of'\nbegin end",
        "begin perform 'raise exception'; end",
    ],
)
def test_good_raise(body: str) -> None:
    assert list(raise_problems(body)) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("begin raise exception 'no code'; end", "no documented SQLSTATE"),
        ("begin raise exception 'x' using errcode = 'P0001'; end", "no documented SQLSTATE"),
        ("begin raise exception 'x' using errcode = code; end", "no documented SQLSTATE"),
        ("begin RAISE 'a default level' using hint = 'x'; end", "no documented SQLSTATE"),
        ("begin raise sqlstate 'XX000' using message = 'x'; end", "no documented SQLSTATE"),
        ("begin raise exception using errcode = 'JQ001'; end", "no literal message"),
        ("begin raise exception 'Shout' using errcode = 'JQ001'; end", "begins with a capital"),
        ("begin if true then raise exception 'x'; end if; end", "no documented SQLSTATE"),
    ],
)
def test_bad_raise(body: str, told: str) -> None:
    problems = list(raise_problems(body))
    assert len(problems) == 1
    assert problems[0].startswith(told) or told in problems[0]


def test_a_stranger_can_do_nothing(as_role: AsRole, conn: Connection) -> None:
    stranger = as_role()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute("select pgq_sql.sweep()")

    # Even one who may look into the schema reaches nothing in it.
    conn.execute(
        sql.SQL("grant usage on schema {} to {}").format(
            sql.Identifier(SCHEMA), sql.Identifier(stranger.info.user)
        )
    )
    reachable = stranger.execute(
        """
        select 'function ' || proname from pg_proc
        where pronamespace = %(schema)s::regnamespace and has_function_privilege(oid, 'execute')
        union all
        select 'relation ' || relname from pg_class
        where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p', 'v', 'm')
          and (has_table_privilege(oid, 'select, insert, update, delete, truncate')
            or has_table_privilege(oid, 'references, trigger')
            or has_any_column_privilege(oid, 'select, insert, update, references'))
        union all
        select 'sequence ' || relname from pg_class
        where relnamespace = %(schema)s::regnamespace
          and case when relkind = 'S' then has_sequence_privilege(oid, 'usage, select, update') end
        """,
        {"schema": SCHEMA},
    ).fetchall()
    assert reachable == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute("select pgq_sql.sweep()")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute("select * from pgq_sql.jobs")


@pytest.mark.parametrize("capability", ["producer", "worker", "observer", "admin"])
def test_a_capability_opens_its_doors_and_no_other(
    capability: str, as_role: AsRole, conn: Connection
) -> None:
    granted = conn.execute(
        "select kind, name from pgq_sql._capabilities() c where c.capability = %s order by 1, 2",
        [capability],
    ).fetchall()
    holder = as_role(capability)
    reachable = holder.execute(
        """
        select 'function', proname::text from pg_proc
        where pronamespace = %(schema)s::regnamespace and has_function_privilege(oid, 'execute')
        union all
        select case relkind when 'v' then 'view' else 'table' end, relname from pg_class
        where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p', 'v', 'm')
          and (has_table_privilege(oid, 'select') or has_any_column_privilege(oid, 'select'))
        union all
        select 'changeable', relname from pg_class
        where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p', 'v', 'm')
          and (has_table_privilege(oid, 'insert, update, delete, truncate')
            or has_any_column_privilege(oid, 'insert, update'))
        order by 1, 2
        """,
        {"schema": SCHEMA},
    ).fetchall()
    assert granted
    assert reachable == granted
