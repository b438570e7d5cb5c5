"""Runs each pgTAP file of tests/sql in a database of its own and counts its assertions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from conftest import dbname_of
from servers import ROOT, Connection, Server, psql

if TYPE_CHECKING:
    from pathlib import Path

Record = Callable[[str, object], None]

FILES = sorted((ROOT / "tests" / "sql").glob("*.sql"))

PLAN = re.compile(r"1\.\.(\d+)(?:\s+#\s*skip.*)?", re.IGNORECASE)
RESULT = re.compile(r"(not )?ok\b\s*(\d+)?\s*(?:- )?(.*?)(?:#\s*(todo|skip)\b.*)?", re.IGNORECASE)


@dataclass
class Tap:
    """What a TAP stream said."""

    plans: list[int] = field(default_factory=list[int])
    passed: int = 0
    failed: list[str] = field(default_factory=list[str])

    @property
    def problems(self) -> list[str]:
        """Why the file did not pass; empty if it did."""
        run = self.passed + len(self.failed)
        found = list(self.failed)
        if len(self.plans) != 1:
            found.append(f"{len(self.plans)} plans instead of one")
        elif self.plans[0] != run:
            found.append(f"{self.plans[0]} assertions planned, {run} run")
        elif run == 0:
            found.append("no assertion")
        return found


def parse(output: str) -> Tap:
    """Read TAP; what belongs to no assertion is a diagnostic."""
    tap = Tap()
    for line in output.splitlines():
        if plan := PLAN.fullmatch(line):
            tap.plans.append(int(plan[1]))
        # Subtests are indented: the outer line that sums them up counts.
        elif result := RESULT.fullmatch(line):
            if result[1] and (result[4] or "").lower() != "todo":
                tap.failed.append(line)
            else:
                tap.passed += 1
    return tap


@pytest.fixture
def pgtap(server: Server, database: str, admin: Connection) -> str:
    """The administrator's URI of a database with pgTAP; skips where the server has none."""
    if psql() is None:
        pytest.skip("no psql on PATH")
    if not admin.execute("select 1 from pg_available_extensions where name = 'pgtap'").fetchone():
        pytest.skip("the server has no pgtap extension")
    admin.execute("create schema tap; create extension pgtap schema tap")
    return server.dsn(dbname_of(database))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_pgtap(path: Path, pgtap: str, record_property: Record) -> None:
    program = psql()
    assert program is not None
    command = [program, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", str(path), pgtap]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    tap = parse(done.stdout)
    problems = tap.problems
    if done.returncode:
        problems.append(f"psql ended with {done.returncode}")
    assert not problems, "\n".join([*problems, done.stdout, done.stderr])
    record_property("assertions", tap.passed)


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("1..2\nok 1 - a\nok 2", None),
        ("1..1\n    1..1\n    ok 1 - inner\nok 1 - outer", None),
        ("1..1\nok 1\n1..1", "2 plans instead of one"),
        ("ok 1 - a\n", "0 plans instead of one"),
        ("1..2\nok 1 - a\n", "2 assertions planned, 1 run"),
        ("1..2\nok 1 - a\nnot ok 2 - b\n# why", "not ok 2 - b"),
        ("1..1\nnot ok 1 - b # TODO later\n", None),
        ("1..1\nok 1 - b # SKIP not here\n", None),
        ("1..0\n", "no assertion"),
        ("", "0 plans instead of one"),
    ],
)
def test_tap_parser(output: str, problem: str | None) -> None:
    assert parse(output).problems == ([] if problem is None else [problem])
