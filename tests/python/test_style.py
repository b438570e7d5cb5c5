"""The sources under sql/ keep one form, so that a reader knows where to look for what.

A function's file: a header (`-- name: one sentence.`, then Locks, Raises and, if need be, Notes),
the function with all its attributes before the body, and its comment. One function per file,
except that private helpers of a public function may stand with it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rules import SCHEMA, statements, tokens
from servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SQL = ROOT / "sql"
FUNCTIONS = sorted((SQL / "functions").rglob("*.sql"))
TABLES = sorted((SQL / "tables").glob("*.sql"))
TYPES = sorted((SQL / "schema").glob("*.sql"))
VIEWS = sorted((SQL / "views").glob("*.sql"))

MOST_COLUMNS = 100
MOST_LINES = 200

ATTRIBUTES = {
    "language": r"\blanguage (plpgsql|sql)\b",
    "volatility": r"\b(volatile|stable|immutable)\b",
    "security": r"\bsecurity definer\b",
    "search_path": r"\bset search_path from current\b",
}


def layout_problems(text: str) -> Iterator[str]:
    """Faults of any source file: width, white space, letter case, names that tie it down."""
    lines = text.split("\n")
    if lines[-1] or text.endswith("\n\n"):
        yield "does not end with one newline"
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_COLUMNS:
            yield f"line {number}: {len(line)} columns"
        if line != line.rstrip() or "\t" in line:
            yield f"line {number}: a tab or trailing space"
        if re.search(r"\s(and|or)$", line) and "--" not in line:
            yield f"line {number}: and/or ends the line instead of leading the next"
    for word in words(text):
        if word != word.lower():
            yield f"upper case: {word}"
        if word == SCHEMA:
            yield f"names the schema {SCHEMA}, which is free"


def words(text: str) -> Iterator[str]:
    """The keywords and identifiers of a source, those in function bodies included."""
    for kind, token in tokens(text):
        if kind == "word":
            yield token
        elif kind == "string" and token.startswith("$"):
            tag = token[: token.index("$", 1) + 1]
            yield from words(token[len(tag) : -len(tag)])


def defined(text: str, kind: str) -> list[str]:
    """The names that a source creates."""
    return re.findall(rf"^create (?:or replace )?{kind} (\w+)", text, re.MULTILINE)


def header(text: str) -> list[str]:
    """The comment lines at the top, without their dashes."""
    lines: list[str] = []
    for line in text.split("\n"):
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").removeprefix(" "))
    return lines


def header_problems(text: str, name: str) -> Iterator[str]:
    """Faults of the header that every source has."""
    lines = header(text)
    first = lines[: lines.index("")] if "" in lines else lines
    sentence = " ".join(first)
    if not lines or not lines[0].startswith(f"{name}: "):
        yield f"header does not begin with '-- {name}: '"
    elif not re.search(r"[.:]( |$)", sentence.removeprefix(f"{name}: ")):
        yield "header has no sentence"


def function_problems(text: str, name: str) -> Iterator[str]:
    """Faults of a function's file."""
    yield from header_problems(text, name)
    marks = [line.split()[0] for line in header(text) if re.match(r"(Locks|Raises|Notes):", line)]
    if marks not in (["Locks:", "Raises:"], ["Locks:", "Raises:", "Notes:"]):
        yield f"header has {' '.join(marks) or 'no marks'} instead of Locks:, Raises: (and Notes:)"
    if text.count("\n") > MOST_LINES:
        yield f"{text.count(chr(10))} lines"
    names = defined(text, "function")
    if name not in names or any(other != name and not other.startswith("_") for other in names):
        yield f"defines {', '.join(names) or 'no function'}"
    for made in names:
        if not re.search(rf"^comment on function {made}\b", text, re.MULTILINE):
            yield f"no comment on function {made}"
    for statement in statements(text):
        if [token for _, token in statement[:1]] == ["create"]:
            yield from attribute_problems(statement)


def attribute_problems(statement: list[tuple[str, str]]) -> Iterator[str]:
    """Faults of one create function: the contract stands before the body, whole."""
    private = any(token.startswith("_") for _, token in statement[:5])
    places = (n for n, (_, token) in enumerate(statement) if token == "return" or token[0] == "$")
    body = next(places, None)
    if body is None:
        yield "no body"
        return
    # A body in SQL is parsed when it is created: no search_path decides what its names mean.
    quoted = statement[body][1] != "return"
    if quoted and body != len(statement) - 1:
        yield "attributes after the body"
    contract = " ".join(token for _, token in statement[:body])
    for what, pattern in ATTRIBUTES.items():
        # A private function runs as the public one that calls it: as the owner.
        spared = (private and what == "security") or (not quoted and what == "search_path")
        if not re.search(pattern, contract) and not spared:
            yield f"no {what} before the body"


def relation_problems(text: str, name: str, kind: str) -> Iterator[str]:
    """Faults of a table's, a type's or a view's file."""
    yield from header_problems(text, name)
    if defined(text, kind) != [name]:
        yield f"defines {', '.join(defined(text, kind)) or f'no {kind}'}"
    if not re.search(rf"^comment on {kind} {name}\b", text, re.MULTILINE):
        yield f"no comment on {kind} {name}"


def name_of(path: Path) -> str:
    return str(path.relative_to(SQL))


def must_be_empty(problems: Iterator[str]) -> None:
    found = list(problems)
    assert not found, "\n".join(found)


def test_there_are_sources() -> None:
    assert FUNCTIONS
    assert TABLES
    assert VIEWS


@pytest.mark.parametrize("path", [*FUNCTIONS, *TABLES, *TYPES, *VIEWS], ids=name_of)
def test_layout(path: Path) -> None:
    must_be_empty(layout_problems(path.read_text()))


@pytest.mark.parametrize("path", FUNCTIONS, ids=name_of)
def test_function(path: Path) -> None:
    must_be_empty(function_problems(path.read_text(), path.stem))


@pytest.mark.parametrize("path", TABLES, ids=name_of)
def test_table(path: Path) -> None:
    must_be_empty(relation_problems(path.read_text(), path.stem, "table"))


@pytest.mark.parametrize("path", TYPES, ids=name_of)
def test_type(path: Path) -> None:
    must_be_empty(relation_problems(path.read_text(), path.stem, "type"))


@pytest.mark.parametrize("path", VIEWS, ids=name_of)
def test_view(path: Path) -> None:
    must_be_empty(relation_problems(path.read_text(), path.stem, "view"))


GOOD = """\
-- greet: says good day.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function greet(name text)
returns text
language plpgsql
stable
security definer
set search_path from current
as $$
begin
  return 'Good day, ' || name;
end
$$;

comment on function greet is 'Says good day.';
"""


def test_a_good_file_passes() -> None:
    assert list(layout_problems(GOOD)) == []
    assert list(function_problems(GOOD, "greet")) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("begin", "BEGIN", "upper case: BEGIN"),
        ("returns text", "RETURNS text", "upper case: RETURNS"),
        ("return 'Good day, '", f"return {' ' * 100}'Good day, '", "columns"),
        ("begin", "\tbegin", "a tab"),
        ("begin", "begin ", "trailing space"),
        ("|| name;", "and\n    true;", "ends the line"),
        ("'Good day, ' ||", "pgq_sql.hello() ||", "names the schema"),
        ("day.';\n", "day.';", "one newline"),
    ],
)
def test_bad_layout_is_caught(old: str, new: str, told: str) -> None:
    assert old in GOOD
    assert any(told in problem for problem in layout_problems(GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("-- greet: says good day.", "-- Says good day.", "header does not begin"),
        ("-- greet: says good day.", "-- greet: says", "no sentence"),
        ("-- Locks:  none.\n", "", "Raises: instead of"),
        ("-- Raises: nothing.", "-- Raises nothing.", "Locks: instead of"),
        ("function greet(", "function meet(", "defines meet"),
        ("comment on", "create function other() as $$ $$;\ncomment on", "defines greet, other"),
        ("comment on function greet", "comment on function great", "no comment on function greet"),
        ("stable\n", "", "no volatility"),
        ("security definer\n", "", "no security"),
        ("set search_path from current\n", "set search_path = pg_temp\n", "no search_path"),
        ("$$;", "$$\nparallel safe;", "attributes after the body"),
        ("begin\n", "begin\n" + "\n" * 200, "lines"),
    ],
)
def test_bad_function_is_caught(old: str, new: str, told: str) -> None:
    assert old in GOOD
    assert any(told in problem for problem in function_problems(GOOD.replace(old, new, 1), "greet"))
