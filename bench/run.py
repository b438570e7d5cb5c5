"""Measure side by side: `make bench`, `bench/run.py --only sustained --repeat 5`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
import traceback
from datetime import UTC, datetime

from report import PAGE, RESULTS, told, write
from result import Result, Run, path
from scenario import Scenario, Size
from scenarios import SCENARIOS
from server import Server


def main() -> int:
    """Measure, print, save each result as soon as it is there, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="whose name contains this")
    parser.add_argument("--long", action="store_true", help="those too that take ten minutes each")
    parser.add_argument("--missing", action="store_true", help="those that have no result yet")
    parser.add_argument("--repeat", type=int, default=3, help="rounds")
    parser.add_argument("--seconds", type=int, default=5, help="of a run, where it is free")
    parser.add_argument("--quick", action="store_true", help="see that all works; no figures")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    options = parser.parse_args()
    if options.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name}{' (long)' if scenario.long else ''}")
        return 0
    folder, page = RESULTS, PAGE
    size, repeat = Size(options.seconds), options.repeat
    if options.quick:
        folder = RESULTS / "quick"
        page = folder / "performance.md"
        size, repeat = Size(seconds=1, part=0.1), 1
    chosen = [
        scenario
        for scenario in SCENARIOS
        if (any(part in scenario.name for part in options.only))
        or (not options.only and (options.long or not scenario.long))
    ]
    if options.missing:
        chosen = [one for one in chosen if not path(folder, one.name).exists()]
    if not chosen:
        parser.error("no such scenario: see --list")
    command = f'make bench ARGS="{shlex.join(sys.argv[1:])}"' if sys.argv[1:] else "make bench"
    failed: list[str] = []
    with Server.embedded() as server:
        facts = {**server.about(), "CPUs": str(len(os.sched_getaffinity(0)))}
        for place, scenario in enumerate(chosen, 1):
            began = time.monotonic()
            print(f"[{place}/{len(chosen)}] {scenario.name}", flush=True)
            try:
                runs = measure(server, scenario, size, min(repeat, scenario.repeat or repeat))
            except Exception:
                failed.append(scenario.name)
                traceback.print_exc()
                continue
            date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
            result = Result(scenario.name, date, command, facts, runs)
            result.save(folder)
            print(
                f"{told(scenario, result)}\n  took {time.monotonic() - began:.0f} s\n", flush=True
            )
    write(folder, page)
    if failed:
        print(f"failed: {'; '.join(failed)}")
    return len(failed)


def measure(server: Server, scenario: Scenario, size: Size, repeat: int) -> dict[str, list[Run]]:
    """All rounds; in each, the contenders take turns."""
    runs: dict[str, list[Run]] = {}
    for number in range(repeat):
        for contender, run in scenario.round(server, size, number).items():
            runs.setdefault(contender, []).append(run)
        print(f"  round {number + 1} of {repeat} is done", flush=True)
    return runs


if __name__ == "__main__":
    sys.exit(main())
