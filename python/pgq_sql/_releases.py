"""The schema's releases: their SQL files, cut into statements.

A release is a folder of migrations/releases with three files. Upgrade N runs up(N) and
routines(N); downgrade N runs down(N) and routines(N-1), so no function is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import NamedTuple

BASE = "base"
"""The name of what comes before the first release: no schema at all."""


class Step(NamedTuple):
    """One release further, or one back."""

    start: str
    end: str
    statements: list[str]


@cache
def path() -> list[str]:
    """All releases of this package in order, from `base`."""
    folders = (entry.name for entry in _folder().iterdir())
    return [BASE, *sorted(name for name in folders if re.fullmatch(r"\d{4}", name))]


def after(release: str) -> str:
    """The next release, or the same one if it is the newest."""
    return path()[min(path().index(release) + 1, len(path()) - 1)]


def steps(start: str, end: str) -> Iterator[Step]:
    """The way from one release to another, up or down."""
    here, there = path().index(start), path().index(end)
    for before, after in pairwise(path()[here : there + 1]):
        yield Step(before, after, upgrade(after))
    for before, after in pairwise(path()[there : here + 1][::-1]):
        yield Step(before, after, downgrade(before))


def upgrade(release: str) -> list[str]:
    """The statements that lead to a release from the one before it."""
    return [*read(f"{release}/up.sql"), *read(f"{release}/routines.sql")]


def downgrade(release: str) -> list[str]:
    """The statements that lead from a release to the one before it."""
    before = path()[path().index(release) - 1]
    routines = () if before == BASE else read(f"{before}/routines.sql")
    return [*read(f"{release}/down.sql"), *routines]


@cache
def read(path: str) -> tuple[str, ...]:
    """The statements of a file in migrations/releases."""
    return tuple(split(_folder().joinpath(path).read_text("utf-8")))


def _folder() -> Traversable:
    return resources.files("pgq_sql._migrations.releases")


# What a semicolon may hide in, and the semicolon itself. A dollar quote needs a tag that does not
# continue a name (a$b$c is one name); so does the E of E'…'.
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<dollar>(?<![\w$])\$(?:[^\W\d]\w*)?\$)
      | (?P<escaped>(?<![\w$])[eE]'(?:[^'\\]|\\.|'')*')
      | (?P<quoted>'[^']*'|"[^"]*")
      | (?P<atomic>(?<![\w$])begin\s+atomic(?![\w$]))
      | (?P<end>;)
      | (?P<open>(?<![\w$])[eE]'|['"])
      | (?P<other>[\w$]+|.)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def split(text: str) -> Iterator[str]:
    """Cut SQL into statements, each with the comments before it and its semicolon."""
    start = at = 0
    empty = True
    while token := _TOKEN.match(text, at):
        at = token.end()
        match token.lastgroup:
            case "space":
                continue
            case "comment":
                at = _comment_end(text, at)
                continue
            case "dollar":
                at = text.find(token[0], at) + len(token[0])
                if at < token.end():
                    raise ValueError(f"{token[0]} is not closed")
            case "open":
                raise ValueError(f"{token[0][-1]} is not closed")
            case "atomic":
                raise ValueError("bodies in `begin atomic … end` are not understood, use $$ … $$")
            case "end":
                if not empty:
                    yield text[start:at].strip()
                start, empty = at, True
                continue
        empty = False
    if not empty:
        raise ValueError(f"no semicolon after: {text[start:].strip()[:60]}")


def _comment_end(text: str, at: int) -> int:
    """Where a block comment ends; they nest."""
    depth = 1
    while depth:
        edge = re.compile(r"/\*|\*/").search(text, at)
        if edge is None:
            raise ValueError("/* is not closed")
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
    return at
