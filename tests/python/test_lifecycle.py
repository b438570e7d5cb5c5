"""What pgTAP's transaction on PostgreSQL 15 cannot show: real time, newer servers, huge values."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from pgq_sql import Client, InvalidArgument
from test_concurrency import scalar

if TYPE_CHECKING:
    from servers import Connection


def test_pop_ends_all_that_it_answers(conn: Connection) -> None:
    """However short the lease: to claim a thousand jobs takes longer than this one."""
    conn.execute("select pgq_sql.create_queue('q', visibility_timeout => '1 ms')")
    conn.execute("select pgq_sql.enqueue_many('q', array_fill('1'::jsonb, array[1000]))")
    assert scalar(conn, "select count(*) from pgq_sql.pop('q', 1000)") == 1000
    assert scalar(conn, "select count(*) from pgq_sql.jobs") == 0


@pytest.mark.parametrize("style", ["SQL, DMY", "SQL, MDY", "German", "Postgres"])
def test_days_of_history_do_not_depend_on_the_caller(conn: Connection, style: str) -> None:
    """A time zone's letters may mean another zone, and 03-04 another day, when read back."""
    conn.execute("select set_config('datestyle', %s, false)", [style])
    conn.execute("set timezone = 'Asia/Kolkata'")
    conn.execute("select pgq_sql.create_queue('q', keep_done => '1 day')")
    conn.execute("reset datestyle; set timezone = 'UTC'")
    bounds = conn.execute(
        "select pg_get_expr(c.relpartbound, c.oid) from pg_class c"
        " where c.relkind = 'r' and c.relname like 'done\\_job\\_2%%'"
    ).fetchall()
    assert len(bounds) == 1
    assert str(bounds[0][0]).count(" 00:00:00+00'") == 2


class TestForever:
    """Intervals are infinite from PostgreSQL 17 on."""

    @pytest.fixture(autouse=True)
    def newer(self, conn: Connection) -> None:
        if conn.info.server_version < 170000:
            pytest.skip("intervals are finite before PostgreSQL 17")

    def test_infinity_keeps(self, conn: Connection) -> None:
        conn.execute(
            "select pgq_sql.create_queue('q', keep_done => 'infinity', keep_dead => 'infinity')"
        )
        conn.execute("select pgq_sql.enqueue_many('q', array['1', '2']::jsonb[])")
        conn.execute(
            "select case payload when '1' then pgq_sql.ack(job_id, token)"
            " else pgq_sql.dead_letter(job_id, token) end from pgq_sql.claim('q', 'w', 2)"
        )
        assert conn.execute("select count(*) from pgq_sql.sweep()").fetchone() == (7,)
        assert conn.execute(
            "select payload, keep_until::text from pgq_sql.done_jobs"
        ).fetchall() == [(1, "infinity")]
        assert scalar(conn, "select payload from pgq_sql.dead_jobs") == 2

    def test_from_python(self, conn: Connection, database: str) -> None:
        with Client(database) as client:
            client.create_queue("q", keep_done=timedelta.max, keep_dead=timedelta.max)
            with pytest.raises(InvalidArgument):
                client.create_queue("r", expires_in=timedelta.max)
        kept = conn.execute("select keep_done::text, keep_dead::text from pgq_sql.queues")
        assert kept.fetchone() == ("infinity", "infinity")

    @pytest.mark.parametrize(
        "setting",
        [
            "keep_done => '-infinity'",
            "keep_dead => '-infinity'",
            "expires_in => 'infinity'",
            "visibility_timeout => 'infinity'",
            "retry_delay => 'infinity'",
        ],
    )
    def test_infinity_is_refused(self, conn: Connection, setting: str) -> None:
        with pytest.raises(psycopg.Error) as refused:
            conn.execute(f"select pgq_sql.create_queue('q', {setting})".encode())
        assert refused.value.sqlstate == "22023"


# To build a letter around a value takes more stack than to read it.
TOO_DEEP = """
    do $$
    declare
      p jsonb := '1';
    begin
      loop
        p := jsonb_build_array(p);
      end loop;
    exception when statement_too_complex then
      perform pgq_sql.enqueue('q', p, expires_in => '0');
    end $$"""


def test_what_cannot_become_a_letter_stops_nobody(conn: Connection) -> None:
    """It is dead, in `dead_jobs`; those that died with it are letters."""
    conn.execute("select pgq_sql.create_queue('letters'), pgq_sql.create_queue('other')")
    conn.execute("select pgq_sql.create_queue('q', dead_letter_queue => 'letters')")
    conn.execute("select pgq_sql.enqueue('q', '\"flat\"', expires_in => '0')")
    conn.execute(TOO_DEEP)
    conn.execute("select pgq_sql.enqueue('other')")
    assert scalar(conn, "select count(*) from pgq_sql.claim('other', 'w')") == 1
    conn.execute("select pgq_sql.sweep()")
    letters = conn.execute("select payload -> 'payload' from pgq_sql.jobs where queue = 'letters'")
    assert letters.fetchall() == [("flat",)]
    assert scalar(conn, "select array_agg(job_id) from pgq_sql.dead_jobs") == [2]


@pytest.mark.parametrize(
    "setting", ["standard_conforming_strings = off", "quote_all_identifiers = on"]
)
def test_settings_of_the_session_change_nothing(conn: Connection, setting: str) -> None:
    conn.execute("select pgq_sql.create_queue('q', keep_done => '1 day')")
    conn.execute("select pgq_sql._add_done_day('2001-01-01')")
    conn.execute(f"set {setting}".encode())
    dropped = "select count from pgq_sql.sweep() where task = 'history'"
    assert scalar(conn, dropped) == 1
    assert conn.execute("select * from pgq_sql.doctor()").fetchall() == []


def test_a_temporary_table_is_not_taken_for_a_day_of_history(conn: Connection) -> None:
    conn.execute("select pgq_sql.create_queue('q', keep_done => '1 day')")
    (day,) = conn.execute("select pgq_sql._done_day('2001-01-01')").fetchone() or ("",)
    conn.execute(f"create temp table {day} ()".encode())
    conn.execute("select pgq_sql._add_done_day('2001-01-01')")
    assert scalar(conn, f"select to_regclass('pgq_sql.{day}') is not null") is True
