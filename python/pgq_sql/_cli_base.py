"""What the commands share: where the database is, values on the command line, output, errors."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_args

import psycopg
import typer

from . import _install, _json
from ._conninfo import complete
from .client import Client
from .errors import translated
from .models import QueueState
from .words import Backoff, DedupMode, State

# Rich is imported where it is used: scripts that want JSON do without.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FAILED, USAGE, UNREACHABLE = 1, 2, 3

Dsn = Annotated[
    str,
    typer.Option(envvar="PGQ_DSN", help="Connection string; default: libpq's variables (PGHOST …)"),
]
Schema = Annotated[str, typer.Option(help="The schema that the queue is in.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")]


def fail(message: str, code: int) -> NoReturn:
    """One line, and an exit code that scripts may rely on."""
    print(f"pgq: {message}", file=sys.stderr)
    sys.exit(code)


def explain(error: BaseException) -> str:
    """An error in one line: what happened, to what, and what to do."""
    diag = getattr(error, "diag", None)
    detail = getattr(error, "detail", None) or getattr(diag, "message_detail", None)
    line = _install.one_line(error)
    if not detail:
        return line
    message = (getattr(diag, "message_primary", None) or str(error)).partition("\n")[0].rstrip(".")
    rest = line.removeprefix(message).removeprefix(".").strip()
    return " ".join(f"{message}. {str(detail).rstrip('.')}. {rest}".split())


def lost(error: BaseException) -> bool:
    """Whether the database cannot be reached: libpq's own errors, and those of a server's end."""
    if isinstance(error, _install.Unreachable):
        return True
    code = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg.OperationalError) and (
        code is None or code.startswith(("08", "57P"))
    )


def read_dsn(dsn: str) -> None:
    """Refuse what is no connection string."""
    try:
        complete(dsn)
    except psycopg.ProgrammingError as error:
        raise _install.Unreachable(
            f"not a connection string: {_install.one_line(error)}", hint=_install.WHERE
        ) from error


@contextmanager
def opened(dsn: str, schema: str) -> Iterator[Client]:
    """A client; refuses at once a schema that is missing or does not fit."""
    read_dsn(dsn)
    with Client(dsn, schema=schema, dumps=_dumps) as client:
        try:
            client.check()
        except psycopg.OperationalError as error:
            if error.sqlstate is not None:
                raise
            raise _install.Unreachable(_install.one_line(error), hint=_install.WHERE) from error
        yield client


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone; where nobody can answer, `--yes` has to."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"say --yes, as nobody can be asked: {question}")
    typer.confirm(question, abort=True, err=True)


# Values on the command line

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""In milliseconds."""

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[wdhms])")


def duration(text: str) -> timedelta:
    """Read `10s`, `5m`, `2h`, `1d`, `1h30m`, `500ms`."""
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise typer.BadParameter(f"{text} is not a duration such as 500ms, 10s, 5m, 2h, 1d, 1h30m")
    try:
        return timedelta(milliseconds=sum(float(number) * UNITS[unit] for number, unit in parts))
    except OverflowError as error:
        raise typer.BadParameter(f"{text} is too long") from error


def instant(text: str) -> datetime:
    """Read an instant in ISO 8601, which has to have a time zone."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text} is not an instant such as 2030-01-31T12:00:00Z"
        ) from error
    if read.utcoffset() is None:
        raise typer.BadParameter(f"{text} has no time zone: end it with Z or +01:00")
    return read


@dataclass(frozen=True, slots=True)
class Raw:
    """JSON as it was typed: numbers keep digits that a float would lose."""

    text: str


def json_value(text: str) -> Raw:
    """Read a JSON value, and refuse what the database could not store."""
    try:
        # As texts, numbers can have any size.
        value = json.loads(text, parse_constant=_no_constant, parse_float=str, parse_int=str)
        _json.dumps(value)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not JSON: {error}") from error
    return Raw(text)


def json_object(text: str) -> Raw:
    """Read a JSON object."""
    raw = json_value(text)
    if not text.lstrip().startswith("{"):
        raise typer.BadParameter("not a JSON object")
    return raw


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _dumps(value: object) -> str:
    return value.text if isinstance(value, Raw) else _json.dumps(value)


def jitter(text: str) -> tuple[float, float]:
    """Read `0.8,1.2`."""
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text} is not a range such as 0.8,1.2") from error
    return low, high


def one_of(words: object) -> Callable[[str], str]:
    """A reader of these words, and of no others."""
    known = get_args(words)

    def read(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"{text} is none of {', '.join(known)}")
        return text

    return read


backoff, dedup_mode, state = one_of(Backoff), one_of(DedupMode), one_of(State)


# Output


def plain(value: object) -> Any:
    """A value as JSON has it: instants in ISO 8601 and UTC, durations in seconds."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return "infinity" if value == timedelta.max else value.total_seconds()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def print_json(value: object) -> None:
    """One JSON document, whatever the terminal's encoding."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    print(json.dumps(plain(value), ensure_ascii=False, indent=2))


def brief(span: timedelta) -> str:
    """A duration as `duration` reads it."""
    if span == timedelta.max:
        return "for ever"
    left, parts = round(span.total_seconds() * 1000), []
    for unit, size in UNITS.items():
        if unit != "w" and left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts) or "0s"


def cell(value: object) -> str:
    """A value in one line, without what could steer a terminal."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return brief(value)
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        case dict() | list() | tuple():
            return clean(json.dumps(value, ensure_ascii=False))
    return clean(str(value))


def clean(text: str) -> str:
    """One line, without control characters."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+", " ", text)


def console() -> Console:
    """Where tables go: as wide as they like if it is no terminal."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=100_000)


LEAST = 6
"""Columns that are left of a text on a narrow terminal."""
GAP = 2


def grid(
    names: Sequence[str], rows: Iterable[Sequence[object]], width: int, *, whole: bool = False
) -> Table:
    """A table; numbers stand to the right. Texts that do not fit are cut, or if `whole` wrapped."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    lines = [list(row) for row in rows]
    columns = [[line[place] for line in lines] for place in range(len(names))]
    numbers = [_all(values, int | float | timedelta) for values in columns]
    widths = [
        max(map(len, [name, *map(cell, values)]))
        for name, values in zip(names, columns, strict=True)
    ]
    room = width - GAP * (len(names) - 1)
    if sum(widths) > room:
        _narrow(widths, room, names, columns)
    for name, number, size in zip(names, numbers, widths, strict=True):
        table.add_column(
            Text(name, style="bold"),
            justify="right" if number else "left",
            overflow="fold" if whole else "ellipsis",
            no_wrap=not (whole or number),
            width=size,
        )
    for line in lines:
        table.add_row(*(Text(cell(value)) for value in line))
    return table


def _narrow(
    widths: list[int], room: int, names: Sequence[str], columns: Sequence[Sequence[object]]
) -> None:
    """Names of numbers wrap; then texts give way, the longest first; numbers and instants stay."""
    texts = []
    for place, values in enumerate(columns):
        if _all(values, int | float | timedelta):
            widths[place] = max(map(len, [*names[place].split(), *map(cell, values)]))
        elif not _all(values, datetime):
            texts.append(place)
    while texts and sum(widths) > room:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= LEAST:
            return
        widths[widest] -= 1


def _all(values: Iterable[object], kind: Any) -> bool:
    """Whether there are values, and all of that kind."""
    given = [value for value in values if value is not None]
    return bool(given) and all(
        isinstance(value, kind) and not isinstance(value, bool) for value in given
    )


def print_table(
    names: Sequence[str], rows: Iterable[Sequence[object]], *, whole: bool = False
) -> None:
    """A table on a terminal; elsewhere columns of plain text, a line a row."""
    on = console()
    table = grid(names, rows, on.width, whole=whole)
    if on.is_terminal:
        on.print(table)
        return
    with on.capture() as capture:
        on.print(table)
    for line in capture.get().splitlines():
        print(line.rstrip())


def counted(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def clip(text: str, most: int = 80) -> str:
    """The beginning of a long text."""
    return text if len(text) <= most else text[: most - 1] + "…"


@contextmanager
def progress(what: str, total: int | None, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, where somebody sees it; the value moves it to a count."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as rich
    from rich.console import Console

    known = (rich.BarColumn(), rich.MofNCompleteColumn())
    with rich.Progress(
        rich.TextColumn("{task.description}"),
        *(known if total is not None else (rich.SpinnerColumn(),)),
        rich.TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False),
        redirect_stdout=False,  # which may lead elsewhere
        transient=True,
    ) as shown:
        task = shown.add_task(what, total=total)

        def show(count: int) -> None:
            text = what if total is not None else f"{what}: {count:,}"
            shown.update(task, completed=count, description=text)

        yield show


# What more than one command asks


def all_stats(client: Client) -> list[QueueState]:
    """The state of every queue, at one instant."""
    rows = client_rows(
        client, "select s.* from {schema}.queues q, {schema}.queue_stats(q.queue) s order by 1"
    )
    return [QueueState(*row[: len(fields(QueueState))]) for row in rows]


def client_rows(client: Client, query: str) -> list[tuple[Any, ...]]:
    """What a query on the schema's views answers."""
    with translated(), client._borrow() as conn:
        return client._run(conn, client._statements.fill(query), {}).fetchall()
