"""The long random form of test_stress: `make stress ARGS='--minutes 10'`.

One line a run; the seed in it, given as `--seed`, plays the same plan again. Stops with 1 at the
first fault.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from servers import Choice, install
from stress import Plan, Stress
from stress_plants import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from servers import Server
    from stress_ledger import Ledger


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    ends = time.monotonic() + options.minutes * 60
    server = Choice.of(options.pg, os.environ).start()
    try:
        print(f"{server.label}\nfirst seed {seed}", flush=True)
        with server.database(prefix="s_template") as template, load(options.load):
            install(server.dsn(template, server.owner))
            for runs in range(options.runs or sys.maxsize):
                if runs and time.monotonic() > ends:
                    break
                if not one(server, template, Plan.drawn(seed + runs, options.seconds), options):
                    return 1
        return 0
    finally:
        server.drop_role(server.owner)
        server.close()


def parser() -> argparse.ArgumentParser:
    told = argparse.ArgumentParser(prog="stress_run", description=__doc__)
    told.add_argument("--seed", type=int, help="of the first run; the next ones count up")
    told.add_argument("--minutes", type=float, default=1.0, help="start no run after that (1)")
    told.add_argument("--runs", type=int, help="at most so many")
    told.add_argument("--seconds", type=float, default=8.0, help="of each run (8)")
    told.add_argument(
        "--load", type=int, default=0, help="processes that only keep the machine busy"
    )
    told.add_argument("--pg", help="the server, as for pytest")
    told.add_argument("--plant", choices=FAULTS, help="with this fault in the engine")
    return told


def one(server: Server, template: str, plan: Plan, options: argparse.Namespace) -> bool:
    print(plan, flush=True)
    with server.database(template, prefix="s_stress") as name:
        planted = FAULTS[options.plant] if options.plant else []
        ledger = Stress(server.dsn(name, server.owner), plan, *planted).run()
    good = not any(ledger.faults().values())
    figures = " ".join(f"{name}={count}" for name, count in ledger.figures().items())
    print(f"  {'ok' if good else 'FAULT'} {figures}", flush=True)
    if not good:
        explain(ledger)
        told = f"--seed {plan.seed} --seconds {plan.duration:g} --runs 1"
        told += f" --load {options.load}" if options.load else ""
        told += f" --pg {options.pg}" if options.pg else ""
        told += f" --plant '{options.plant}'" if options.plant else ""
        print(f'again: make stress ARGS="{told}"')
    return good


def explain(ledger: Ledger, most: int = 10) -> None:
    for name in ("lost", "unexpected", "doubled"):
        ids = sorted(getattr(ledger, name))
        if ids:
            print(f"  {name}: {ids[:most]}")
            for job_id in ids[:most]:
                leases = {t: lease for (i, t), lease in ledger.leases.items() if i == job_id}
                ends = sorted(t for i, t in ledger.acked if i == job_id)
                print(f"    {job_id}: {leases} acked by {ends}, dead {job_id in ledger.dead}")
    for job_id in sorted(ledger.stranded)[:most]:
        stray = ledger.strays[job_id]
        commit = ledger.visible_by.get((job_id, stray.token))
        times = {"run at": stray.run_at, "seen": stray.seen_at, "committed before": commit}
        told = ", ".join(f"{name} {time:%H:%M:%S.%f}" for name, time in times.items() if time)
        print(f"  stranded: {job_id}, token {stray.token}, placed {stray.stamp}, {told}")


@contextmanager
def load(count: int) -> Iterator[None]:
    """Keeps the machine busy with so many processes."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
