"""Every way of installing leads to the same schema, and back to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

import catalog
from servers import Server
from ways import NEWEST, ODD, WAYS, Way, alembic, application, pgq, psql

Connection = psycopg.Connection[Any]

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


@pytest.fixture
def empty(empty_database: str) -> Iterator[Connection]:
    """A look at the database that is installed into."""
    with psycopg.connect(empty_database, autocommit=True) as conn:
        yield conn


@every_way
def test_up_down_up(
    way: Way, empty_database: str, empty: Connection, conn: Connection, tmp_path: Path
) -> None:
    wanted = catalog.read(conn)
    way.up(empty_database, "pgq_sql", tmp_path)
    assert catalog.read(empty) == wanted
    way.down(empty_database, "pgq_sql", tmp_path)
    empty.execute("drop table if exists public.alembic_version")  # an application's own
    assert catalog.leftovers(empty) == {}
    way.up(empty_database, "pgq_sql", tmp_path)
    assert catalog.read(empty) == wanted


@every_way
def test_any_schema_name(
    way: Way, empty_database: str, empty: Connection, conn: Connection, tmp_path: Path
) -> None:
    way.up(empty_database, ODD, tmp_path)
    assert catalog.read(empty, ODD) == catalog.read(conn)
    assert catalog.read(empty) == {}
    way.down(empty_database, ODD, tmp_path)
    empty.execute("drop table if exists public.alembic_version")
    assert catalog.leftovers(empty) == {}


def test_two_schemas_in_one_database(empty_database: str, empty: Connection) -> None:
    pgq(empty_database, "migrate")
    pgq(empty_database, "migrate", "--schema", "Jobs")
    assert catalog.read(empty) == catalog.read(empty, "Jobs")
    pgq(empty_database, "migrate", "--schema", "Jobs", "--downgrade", "--to", "base")
    assert catalog.read(empty) != {}
    assert catalog.read(empty, "Jobs") == {}


def test_alembic_takes_over_from_psql(database: str, conn: Connection) -> None:
    before = catalog.read(conn)
    assert NEWEST in alembic(database, "current").out
    alembic(database, "upgrade", "head")
    assert catalog.read(conn) == before
    alembic(database, "downgrade", "base")
    assert catalog.leftovers(conn) == {}


def test_an_application_takes_over_from_psql(
    database: str, conn: Connection, tmp_path: Path
) -> None:
    before = catalog.read(conn)
    alembic(database, "upgrade", "head", cwd=application(tmp_path, "pgq_sql", "psycopg"))
    assert catalog.read(conn) == before


def test_the_ledger_says_what_the_functions_say(conn: Connection) -> None:
    ledger = conn.execute("select version_num from pgq_sql.alembic_version").fetchall()
    assert ledger == conn.execute("select pgq_sql.schema_version()").fetchall() == [(NEWEST,)]


def test_installed_schema_works(empty_database: str, empty: Connection) -> None:
    pgq(empty_database, "migrate", "--schema", ODD)
    quoted = '"' + ODD.replace('"', '""') + '"'
    calls = f"""
        select {quoted}.create_queue('mail');
        select outcome from {quoted}.enqueue('mail', '{{"to": "a"}}');
        select payload from {quoted}.claim('mail', 'w');
    """
    told = psql(empty_database, "-At", text=calls).out
    assert told.split("\n")[:3] == ["t", "inserted", '{"to": "a"}']


def test_a_schema_that_was_made_for_us(empty_database: str, empty: Connection) -> None:
    empty.execute("create schema pgq_sql")
    pgq(empty_database, "migrate")
    assert catalog.read(empty)["ledger"] == [NEWEST]


def test_removing_leaves_what_others_put_there(empty_database: str, empty: Connection) -> None:
    pgq(empty_database, "migrate")
    empty.execute("create table pgq_sql.theirs (id int)")
    pgq(empty_database, "migrate", "--downgrade", "--to", "base")
    left = "select relname from pg_class where relnamespace = 'pgq_sql'::regnamespace"
    assert empty.execute(left).fetchall() == [("theirs",)]


def test_removing_refuses_what_others_depend_on(empty_database: str, empty: Connection) -> None:
    pgq(empty_database, "migrate")
    before = catalog.read(empty)
    empty.execute("create view public.theirs as select * from pgq_sql.queues")
    told = pgq(empty_database, "migrate", "--downgrade", "--to", "base", fails=True)
    assert "other objects depend on it" in told.err
    assert catalog.read(empty) == before


def test_removing_takes_back_what_was_granted(
    server: Server, database: str, conn: Connection
) -> None:
    name, _ = server.create_role()
    conn.execute("select pgq_sql.grant_access(%s, 'worker')", [name])
    pgq(database, "migrate", "--downgrade", "--to", "base")
    server.drop_role(name)  # would fail if it still had a privilege somewhere


CHANGES: dict[str, LiteralString] = {
    "column": "alter table queue add column x int",
    "type": "alter table access_grant alter column capability type varchar(20)",
    "default": "alter table queue alter column name set default 'x'",
    "identity": "alter table job alter column id set generated by default",
    "sequence": "alter sequence queue_id_seq cache 7",
    "constraint": "alter table queue add constraint x check (id > 0)",
    "index": "create index x on queue (created_at)",
    "storage": "alter table queue set (fillfactor = 50)",
    "body": "create or replace function _now() returns timestamptz language plpgsql volatile"
    " set search_path from current as $$ begin return now(); end $$",
    "volatility": "alter function _now stable",
    "definer": "alter function _now security definer",
    "setting": "alter function _now set work_mem = '1MB'",
    "search_path": "alter function _announce reset search_path",
    "privilege": "grant execute on function _now to public",
    "column privilege": "grant select (id) on queue to public",
    "schema privilege": "grant usage on schema pgq_sql to public",
    "comment": "comment on function _now is 'another'",
    "column comment": "comment on column queue.id is 'another'",
    "view": "create view x as select 1 as one",
    "new type": "create type x as enum ('a')",
    "trigger": "create trigger x before truncate on queue execute function"
    " suppress_redundant_updates_trigger()",
    "policy": "create policy x on queue",
    "rule": "create rule x as on delete to queue do nothing",
    "collation": "create collation x (locale = 'C')",
    "ledger": "update alembic_version set version_num = '0000'",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_comparison_sees(change: LiteralString, conn: Connection) -> None:
    before = catalog.read(conn)
    conn.execute("set search_path = pgq_sql, pg_temp")
    conn.execute(change)
    assert catalog.read(conn) != before


@pytest.mark.parametrize(
    "make",
    ["create schema x", "create table x ()", "create function x() returns int return 1",
     "create type x as enum ()", "create collation x (locale = 'C')",
     "alter default privileges grant select on tables to public",
     "select lo_create(0)"],
)  # fmt: skip
def test_the_search_for_leftovers_sees(make: LiteralString, empty: Connection) -> None:
    assert catalog.leftovers(empty) == {}
    empty.execute(make)
    assert catalog.leftovers(empty) != {}
