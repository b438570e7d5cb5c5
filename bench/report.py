"""Write docs/performance.md and its plot from the results, and from nothing else."""

from __future__ import annotations

import argparse
from pathlib import Path

from plot import plot
from result import Aim, Result
from scenario import Scenario
from scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "performance.md"

LABELS = {
    "jobs_per_second": "jobs/s",
    "claim_ack_per_second": "jobs/s of claim and ack alone",
    "first_second": "jobs in the first second",
    "cpu_us": "server CPU us a job",
    "client_us": "client CPU us a job",
    "wal_bytes": "WAL bytes a job",
    "wal_records": "WAL records a job",
    "wal_pages": "page images a job",
    "commits": "commits a job",
    "hot_share": "HOT share of updates",
    "notifications": "notifications sent",
    "cycles_first": "cycles/s, first 10 s",
    "cycles_last": "last 10 s",
    "full_cycles_first": "those with jobs/s, first",
    "full_cycles_last": "last",
    "cycles_kept": "cycles/s, last / first",
    "jobs_last": "jobs/s, last",
    "jobs_kept": "jobs/s, last / first",
    "input_kept": "jobs out / in at the end",
    "claim_ms_first": "ms a claim, first",
    "claim_ms_last": "last",
    "p95_ms_first": "p95 ms, first",
    "p95_ms_last": "p95 ms, last",
    "backlog_end": "backlog at the end",
    "late_seconds": "s from commit to claimed",
    "claim_ms": "ms a claim",
    "ack_ms": "ms an ack",
    "p50_ms": "p50 ms",
    "p95_ms": "p95 ms",
    "p99_ms": "p99 ms",
    "errors": "errors",
    "double_claims": "jobs claimed twice",
    "rss_first": "MiB in memory, first tenth",
    "rss_last": "last tenth",
    "rss_grown": "MiB, last / first",
}

Measured = list[tuple[Scenario, Result | None]]


def verdict(aim: Aim, result: Result) -> tuple[str, str, str, str]:
    """Say what was compared, what was reached, the aim, and whether it was reached."""
    compared = f"{aim.contender}, {LABELS[aim.figure]}" + (
        f", against {aim.against}" if aim.against else ""
    )
    times = " x" if aim.against else ""
    bound = f"{'at most' if aim.at_most else 'at least'} {aim.bound:g}{times}"
    if not aim.measured(result):
        return compared, "", bound, "not measured"
    value = aim.value(result)
    return (
        compared,
        f"{value:.2f}{times}" if aim.against else number(value),
        bound,
        "reached" if aim.reached(result) else "short",
    )


def number(value: float) -> str:
    """Write it with three digits or more."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def told(scenario: Scenario, result: Result) -> str:
    """Medians and aims of a scenario, for the terminal."""
    lines = [f"{scenario.name}: {scenario.about}"]
    for contender in result.runs:
        ones = [
            f"{LABELS[figure]} {number(result.median(contender, figure))}"
            for figure in scenario.figures
            if result.has(contender, figure)
        ]
        lines.append(f"  {contender}: {'; '.join(ones)}")
    lines += ["  {} = {}, aim {}: {}".format(*verdict(aim, result)) for aim in scenario.aims]
    return "\n".join(lines)


def page(measured: Measured, picture: str) -> str:
    """Write the page."""
    done = [(scenario, result) for scenario, result in measured if result is not None]
    lines = ["# Performance", "", "Written by `bench/report.py` from what `make bench` measured."]
    lines += [*about(done), ""]
    lines += ["| scenario | compared | reached | aim | |", "|---|---|---|---|---|"]
    for scenario, result in measured:
        if result is None:
            lines.append(f"| {scenario.name} | not measured | | | |")
        elif not scenario.aims:
            lines.append(f"| {scenario.name} | see below | | none | |")
        else:
            for aim in scenario.aims:
                cells = verdict(aim, result)
                lines.append(f"| {scenario.name} | {' | '.join(cells[:3])} | {mark(cells[3])} |")
    if done:
        lines += ["", f"![Time courses and ratios]({picture})", "", "## Medians"]
        for scenario, result in done:
            lines += ["", *section(scenario, result)]
    return "\n".join(lines) + "\n"


def about(done: list[tuple[Scenario, Result]]) -> list[str]:
    """Describe where and how the results were made."""
    notes = [
        "",
        "*plain* is a textbook queue (one table, a partial index on unclaimed jobs, SKIP LOCKED, "
        "UPDATE, DELETE); *floor* is bare statements on our table, with no function and no rule. "
        "Only ratios within one run mean anything. How it is measured: "
        "[bench](../bench/README.md).",
    ]
    servers = {tuple(sorted(result.server.items())) for _, result in done}
    for server in sorted(servers):
        notes += ["", "Server: " + ", ".join(f"{name} {value}" for name, value in server) + "."]
    runs: dict[str, list[str]] = {}
    for scenario, result in done:
        runs.setdefault(result.command, []).append(scenario.name)
    for command, names in runs.items():
        which = "" if len(runs) == 1 else f": {'; '.join(names)}"
        notes += ["", f"Measured with `{command}`{which}."]
    return notes


def section(scenario: Scenario, result: Result) -> list[str]:
    """All medians of a scenario."""
    figures = [
        figure
        for figure in scenario.figures
        if any(result.has(contender, figure) for contender in result.runs)
    ]
    lines = [f"### {scenario.name}", "", f"{scenario.about[0].upper()}{scenario.about[1:]}.", ""]
    lines.append(f"| | {' | '.join(LABELS[figure] for figure in figures)} | runs |")
    lines.append("|---|" + "---:|" * (len(figures) + 1))
    for contender, runs in result.runs.items():
        cells = [
            number(result.median(contender, figure)) if result.has(contender, figure) else ""
            for figure in figures
        ]
        lines.append(f"| {contender} | {' | '.join(cells)} | {len(runs)} |")
    return [*lines, "", f"{result.date}."]


def mark(word: str) -> str:
    """Make a shortfall visible."""
    return word if word == "reached" else f"**{word}**"


def write(folder: Path, target: Path, scenarios: tuple[Scenario, ...] = SCENARIOS) -> None:
    """Write the page, and the plot beside it."""
    measured = [(scenario, Result.load(folder, scenario.name)) for scenario in scenarios]
    picture = target.with_suffix(".png")
    target.write_text(page(measured, picture.name))
    done = [(scenario, result) for scenario, result in measured if result]
    if done:
        plot(done, picture)
    print(f"wrote {target}")


def main() -> None:
    """Write the page anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    write(RESULTS, PAGE)


if __name__ == "__main__":
    main()
