"""`pgq demo`: real work through the queue, from an empty server to a table of figures."""

from __future__ import annotations

import logging
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from . import _install
from ._cli_base import FAILED, AsJson, reaching
from ._cli_output import print_json, progress
from ._cli_values import integer
from ._demo_server import Place, place
from ._demo_work import PINGS, QUEUE, Demo, standard_library
from ._releases import BASE
from .client import Client

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Figures: TypeAlias = dict[str, Any]

GO_ON = """\
Everything is left as it is. To go on: {psql}
  select job_id, reason, error from pgq_sql.dead_jobs;
  select * from pgq_sql.enqueue('demo', '{{"name": "mine"}}', delay => '5 s');
  select job_id, run_at, payload from pgq_sql.jobs;
  select job_id, token, payload from pgq_sql.claim('demo', 'me');
  select pgq_sql.ack(JOB_ID, TOKEN);
Or with the command: {pgq}
"""


def demo(
    dsn: Annotated[
        str,
        typer.Option(
            envvar="PGQ_DSN",
            help="Connection string. Default: libpq's variables (PGHOST …), else its own server.",
        ),
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder for the data of its own server. Default: a temporary one."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything as it is, to go on in psql.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option(parser=integer(1), metavar="INTEGER", help="Handlers at once.")
    ] = 8,
    limit: Annotated[
        int | None,
        typer.Option(parser=integer(1), metavar="INTEGER", help="No more files than this."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count the lines of Python's standard library, with a job for each file."""
    from rich.console import Console

    console = Console(highlight=False, quiet=as_json)
    with ExitStack() as stack:
        with progress("PostgreSQL is starting", None, quiet=as_json):
            where = stack.enter_context(place(dsn, data, keep))
        with reaching(where.dsn):
            change = _install.migrate(where.dsn)
        with Client(where.dsn) as client:
            figures = _run(client, console, concurrency, standard_library()[:limit])
        if as_json:
            print_json(figures | {"dsn": where.dsn, "stop": where.stop})
        for mistake in figures["mistakes"]:
            console.print(f"[red]mistake:[/] {mistake}")
        if figures["mistakes"]:
            raise typer.Exit(FAILED)
        if keep:
            _go_on(console, where)
        elif not where.started:
            _clean_up(console, where, made=change.start == BASE)


def _run(client: Client, console: Console, concurrency: int, paths: Sequence[Path]) -> Figures:
    run = Demo(client, concurrency)
    run.prepare()
    with (
        tempfile.TemporaryDirectory(prefix="pgq-demo-") as folder,
        _log_to(console),
        run.working(),
    ):
        with progress("files counted", len(paths), quiet=console.quiet) as show:
            rate = run.count_files(paths, show)

        late = Path(folder, "late.py")
        attempts, error = run.fail(late)
        console.print(f"late.py isn't there: {attempts} attempts, then in dead_jobs with {error}")
        late.write_text("# Here at last.\n")
        run.send(str(late))
        run.wait_for([str(late)])
        console.print("late.py is there now: enqueued again and counted")

        with progress("measuring how fast an idle worker wakes", None, quiet=console.quiet):
            pings = run.ping()

    names = [*map(str, paths), str(late)]
    figures = _figures(run, names, rate, pings)
    console.print(_table(figures))
    return figures


class _ConsoleHandler(logging.Handler):
    """Shows what the worker logs, such as each attempt that fails."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        now = datetime.fromtimestamp(record.created, UTC).astimezone()
        text = f"{now:%H:%M:%S.%f}"[:-3] + f"  {record.getMessage()}"
        self.console.print(text, style="dim", markup=False, soft_wrap=True)


@contextmanager
def _log_to(console: Console) -> Iterator[None]:
    log = logging.getLogger("pgq_sql.worker")
    handler = _ConsoleHandler(console)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _figures(run: Demo, names: Sequence[str], rate: float, pings: Sequence[float]) -> Figures:
    counted, report = run.work.results.values(), run.report
    return {
        "files": len(run.work.results),
        "lines_of_code": sum(one.code for one in counted),
        "lines_of_comment": sum(one.comment for one in counted),
        "blank_lines": sum(one.blank for one in counted),
        "acked": report.acked,
        "retried": report.retried,
        "dead": report.dead,
        "files_per_second": rate,
        "start_in_backlog_ms": _percentiles([run.work.waited[name] for name in names[:-1]]),
        "start_when_idle_ms": _percentiles(pings),
        "mistakes": run.mistakes(names),
    }


def _table(figures: Figures) -> Table:
    from rich.table import Table

    table = Table("", "", show_header=False)
    table.columns[1].justify = "right"
    for label, value in (
        ("files counted, each once", "{files:,}"),
        ("lines of code", "{lines_of_code:,}"),
        ("lines of comment", "{lines_of_comment:,}"),
        ("blank lines", "{blank_lines:,}"),
        ("jobs acked, retried, dead", "{acked:,}, {retried}, {dead}"),
        ("files per second, enqueue to ack", "{files_per_second:,.0f}"),
        ("enqueue to start in the backlog, p50 p95 p99", _cuts("start_in_backlog_ms", figures)),
        (
            f"enqueue to start when idle ({PINGS} jobs), p50 p95 p99",
            _cuts("start_when_idle_ms", figures),
        ),
    ):
        table.add_row(label, value.format_map(figures))
    return table


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"p{percent}": cuts[percent - 1] * 1000 for percent in (50, 95, 99)}


def _cuts(name: str, figures: Figures) -> str:
    cuts: dict[str, float] = figures[name]
    return "  ".join(f"{cut:,.1f}" for cut in cuts.values()) + " ms" if cuts else ""


def _go_on(console: Console, where: Place) -> None:
    # In a clone it is in the virtual environment, which nobody has to activate.
    pgq = "pgq" if shutil.which("pgq") else Path(sys.executable).with_name("pgq")
    own = f'{where.psql} "{where.dsn}"' if where.started else f"{where.psql}, as you connect to it"
    dsn = f' --dsn "{where.dsn}"' if where.started else ""
    text = GO_ON.format(psql=own, pgq=f"{pgq} jobs{dsn}")
    if where.stop:
        text += f"To stop the server: {where.stop}\n"
    # As it is: no wrapping of lines that are to be copied, no markup in them.
    console.print(text, end="", soft_wrap=True, markup=False)


def _clean_up(console: Console, where: Place, *, made: bool) -> None:
    if made:
        _install.migrate(where.dsn, to=BASE, downgrade=True)
        console.print("The schema pgq_sql has been removed again.")
    else:
        console.print(f"Left in schema pgq_sql: queue {QUEUE}, empty, with a dead job for a day.")
