"""`pgq demo`: real work through the queue, from an empty server to a table of figures."""

from __future__ import annotations

import logging
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import _install
from ._demo_server import Place, place
from ._demo_work import PINGS, QUEUE, Demo, standard_library
from ._releases import BASE
from .client import Client

GO_ON = """\
Everything is left as it is. To go on: {psql}
  select * from pgq_sql.dead_jobs;
  select * from pgq_sql.enqueue('demo', '{{"name": "mine"}}', delay => '5 s');
  select * from pgq_sql.jobs;
  select job_id, token, payload from pgq_sql.claim('demo', 'me');
  select pgq_sql.ack(JOB_ID, TOKEN);
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
    concurrency: Annotated[int, typer.Option(min=1, help="Handlers at once.")] = 8,
    limit: Annotated[int | None, typer.Option(min=1, help="No more files than this.")] = None,
) -> None:
    """Count the lines of Python's standard library, with a job for each file."""
    console = Console(highlight=False)
    with ExitStack() as stack:
        with console.status("PostgreSQL is starting"):
            where = stack.enter_context(place(dsn, data, keep))
        change = _install.migrate(where.dsn)
        with Client(where.dsn) as client:
            mistakes = _run(client, console, concurrency, standard_library()[:limit])
        if mistakes:
            for mistake in mistakes:
                console.print(f"[red]mistake:[/] {mistake}")
            raise typer.Exit(1)
        if keep:
            _go_on(console, where)
        elif not where.started:
            _clean_up(console, where, made=change.start == BASE)


def _run(client: Client, console: Console, concurrency: int, paths: Sequence[Path]) -> list[str]:
    run = Demo(client, concurrency)
    run.prepare()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="pgq-demo-") as folder,
        _log_to(console),
        run.working(),
    ):
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("files counted", total=len(paths))
            rate = run.count_files(paths, lambda done: progress.update(bar, completed=done))

        late = Path(folder, "late.py")
        attempts, error = run.fail(late)
        console.print(f"late.py isn't there: {attempts} attempts, then in dead_jobs with {error}")
        late.write_text("# Here at last.\n")
        run.send(str(late))
        run.wait_for([str(late)])
        console.print("late.py is there now: enqueued again and counted")

        with console.status("measuring how fast an idle worker wakes"):
            pings = run.ping()

    names = [*map(str, paths), str(late)]
    console.print(_table(run, names, rate, pings))
    return run.mistakes(names)


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


def _table(run: Demo, names: Sequence[str], rate: float, pings: Sequence[float]) -> Table:
    counted, report = run.work.results.values(), run.report
    waits = [run.work.waited[name] for name in names[:-1]]
    table = Table("", "", show_header=False)
    table.columns[1].justify = "right"
    for label, value in (
        ("files counted, each once", f"{len(run.work.results):,}"),
        ("lines of code", f"{sum(one.code for one in counted):,}"),
        ("lines of comment", f"{sum(one.comment for one in counted):,}"),
        ("blank lines", f"{sum(one.blank for one in counted):,}"),
        ("jobs acked, retried, dead", f"{report.acked:,}, {report.retried}, {report.dead}"),
        ("files per second, enqueue to ack", f"{rate:,.0f}"),
        ("enqueue to start in the backlog, p50 p95 p99", _percentiles(waits)),
        (f"enqueue to start when idle ({PINGS} jobs), p50 p95 p99", _percentiles(pings)),
    ):
        table.add_row(label, value)
    return table


def _percentiles(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return ""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return "  ".join(f"{cuts[percent - 1] * 1000:,.1f}" for percent in (50, 95, 99)) + " ms"


def _go_on(console: Console, where: Place) -> None:
    own = f'{where.psql} "{where.dsn}"' if where.started else f"{where.psql}, as you connect to it"
    text = GO_ON.format(psql=own)
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
