"""What `pgq` prints: JSON, tables that fit a terminal, progress."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ._cli_values import UNITS

# Rich is imported where it is used: scripts that want JSON do without.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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
"""Characters that are left of a text on a narrow terminal."""
READABLE = 16
"""Characters that a text should have there, before whole columns go."""
GAP = 2
NOTHING = "-"
"""Where a number is not known."""


@dataclass(frozen=True, eq=False, slots=True)
class _Column:
    name: str
    values: Sequence[object]

    @property
    def number(self) -> bool:
        return _all(self.values, int | float | timedelta)

    @property
    def firm(self) -> bool:
        """Whether it is of no use if cut."""
        return self.number or _all(self.values, datetime)

    @property
    def width(self) -> int:
        return max(map(len, [self.name, *map(cell, self.values)]))

    @property
    def narrow(self) -> int:
        """Its width where its name wraps."""
        return max(map(len, [*self.name.split(), *map(cell, self.values)]))

    @property
    def least(self) -> int:
        return self.narrow if self.firm else min(self.narrow, READABLE)

    @property
    def says(self) -> int:
        """How much: nothing, the same in each row, or more."""
        told = set(map(cell, self.values))
        return 0 if told <= {"", "no", NOTHING} else min(len(told), 2)


def grid(
    names: Sequence[str],
    rows: Iterable[Sequence[object]],
    width: int,
    *,
    whole: bool = False,
    spare: Sequence[str] = (),
) -> Table:
    """A table; numbers stand to the right. Texts that do not fit are cut, or if `whole` wrapped.

    Before texts are cut to less than can be read, columns named in `spare` go, those first that
    say nothing, then those that say the same in each row.
    """
    from rich.table import Table
    from rich.text import Text

    lines = [list(row) for row in rows]
    columns = [_Column(name, [line[at] for line in lines]) for at, name in enumerate(names)]
    for one in sorted(
        (one for one in columns if one.name in spare),
        key=lambda one: (one.says, spare.index(one.name)),
    ):
        if sum(each.least + GAP for each in columns) - GAP > width:
            columns.remove(one)
    widths = [one.width for one in columns]
    room = width - GAP * (len(columns) - 1)
    if sum(widths) > room:
        widths = _narrowed(columns, room)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for one, size in zip(columns, widths, strict=True):
        table.add_column(
            Text(one.name if len(one.name) <= size else one.name.replace(" ", "\n"), style="bold"),
            justify="right" if one.number else "left",
            overflow="fold" if whole else "ellipsis",
            no_wrap=not whole,
            width=size,
        )
    for line in zip(*(one.values for one in columns), strict=True):
        table.add_row(*(Text(cell(value)) for value in line))
    return table


def _narrowed(columns: Sequence[_Column], room: int) -> list[int]:
    """Names wrap; then texts give way, the longest first; numbers and instants stay."""
    widths = [one.narrow for one in columns]
    texts = [at for at, one in enumerate(columns) if not one.firm]
    while texts and sum(widths) > room:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= LEAST:
            break
        widths[widest] -= 1
    return widths


def _all(values: Iterable[object], kind: Any) -> bool:
    """Whether there are values, and all of that kind."""
    given = [value for value in values if value not in (None, NOTHING)]
    return bool(given) and all(
        isinstance(value, kind) and not isinstance(value, bool) for value in given
    )


def print_table(
    names: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    none: str = "",
    whole: bool = False,
    spare: Sequence[str] = (),
) -> None:
    """A table on a terminal; elsewhere columns of plain text, a line a row. `none`: of no rows."""
    rows = list(rows)
    if none and not rows:
        print(none, file=sys.stderr)
        return
    on = console()
    table = grid(names, rows, on.width, whole=whole, spare=spare)
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
