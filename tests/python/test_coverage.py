"""How much of the functions the pgTAP tests run, by plpgsql_check's profiler.

Statements and branches, summed over all functions; the report prints each one.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from conftest import dbname_of
from servers import psql
from test_pgtap import FILES

if TYPE_CHECKING:
    from servers import Connection, Server

STATEMENTS = 0.95
BRANCHES = 0.90

# Each function's share, and how many statements it has.
COVERAGE = """
    select p.proname::text,
      (select count(*) from checker.plpgsql_profiler_function_statements_tb(p.oid)),
      checker.plpgsql_coverage_statements(p.oid),
      checker.plpgsql_coverage_branches(p.oid)
    from pg_proc p
    join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
    where p.pronamespace = 'pgq_sql'::regnamespace
      -- It fails on polymorphic functions: _dims.
      and 'anyarray'::regtype <> all (p.proargtypes::oid[])
    order by 3, 4, 1"""


@pytest.fixture
def profiled(server: Server, database: str, admin: Connection) -> str:
    """The administrator's URI of a database with pgTAP where every session is profiled."""
    loaded = admin.execute("show shared_preload_libraries").fetchone()
    if loaded is None or "plpgsql_check" not in str(loaded[0]):
        pytest.skip("the server does not preload plpgsql_check")
    admin.execute("create schema tap; create extension pgtap schema tap")
    admin.execute("create schema checker; create extension plpgsql_check schema checker")
    return server.dsn(dbname_of(database))


def test_coverage(profiled: str, admin: Connection) -> None:
    program = psql()
    assert program is not None
    for path in FILES:
        subprocess.run(
            [program, "-X", "-q", "-f", str(path), profiled],
            env={**os.environ, "PGOPTIONS": "-c plpgsql_check.profiler=on"},
            capture_output=True,
            check=False,
            timeout=120,
        )

    admin.execute("set search_path = pgq_sql")  # the profiler reads the functions without theirs
    rows = [
        (str(name), int(str(count)), float(str(statements)), float(str(branches)))
        for name, count, statements, branches in admin.execute(COVERAGE)
    ]

    total = sum(count for _, count, _, _ in rows)
    statements = sum(count * share for _, count, share, _ in rows) / total
    branches = sum(count * share for _, count, _, share in rows) / total
    table = "\n".join(f"{name:30} {s:6.1%} {b:6.1%}" for name, _, s, b in rows)
    print(f"\n{table}\n{'all':30} {statements:6.1%} {branches:6.1%}")
    assert statements >= STATEMENTS, table
    assert branches >= BRANCHES, table
