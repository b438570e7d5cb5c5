"""What `pgq` reads from a command line, and how its tables fit a terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
import typer
from rich.console import Console

from pgq_sql import _cli_base


def test_a_narrow_terminal_keeps_the_numbers() -> None:
    row = (123456789, "a" * 50, datetime(2030, 1, 1, tzinfo=UTC), "b" * 80, timedelta(seconds=90))
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    for whole in (False, True):
        table = _cli_base.grid(("id", "queue", "due at", "payload", "age"), [row], 60, whole=whole)
        with console.capture() as capture:
            console.print(table)
        shown = capture.get()
        assert all(text in shown for text in ("123456789", "2030-01-01T00:00:00Z", "1m30s"))
        assert (shown.count("\n") == 2) != whole
        assert (shown.count("a") == 50 + 4) == whole


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("500ms", 0.5), ("10s", 10), ("5m", 300), ("2h", 7200), ("1d", 86400)),
        *(("1h30m", 5400), ("2w", 1209600), ("0s", 0), ("1.5s", 1.5)),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    span = _cli_base.duration(text)
    assert span == timedelta(seconds=seconds)
    assert _cli_base.duration(_cli_base.brief(span)) == span


@pytest.mark.parametrize(
    "text", ["", "10", "s", "10 s", "-1s", "1y", "1h-1m", "٣s", "9" * 30 + "d"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        _cli_base.duration(text)


def test_instants() -> None:
    assert _cli_base.instant("2030-01-31T12:00:00Z") == datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert _cli_base.plain(_cli_base.instant("2030-01-31T12:00:00+01:00")) == "2030-01-31T11:00:00Z"
    for text in ("2030-01-31T12:00:00", "tomorrow", "2030-01-31"):
        with pytest.raises(typer.BadParameter):
            _cli_base.instant(text)
