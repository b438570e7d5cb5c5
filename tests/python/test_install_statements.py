"""Cutting SQL into statements, which is how every way but psql's own runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pglast
import pytest

from pgq_sql._releases import split
from servers import ROOT

CUTS = {
    "select 1; select 2;": ["select 1;", "select 2;"],
    "": [],
    " ; ;; -- nothing\n /* at ; all */": [],
    "-- before; it\nselect 1; -- after\n": ["-- before; it\nselect 1;"],
    "select /* a /* ; */ ; */ 1;": ["select /* a /* ; */ ; */ 1;"],
    "select 'a;''b;', \"c;\"\"d;\";": ["select 'a;''b;', \"c;\"\"d;\";"],
    r"select E'\';', e'\\'; select 1;": [r"select E'\';', e'\\';", "select 1;"],
    r"select '\'; select 1;": [r"select '\';", "select 1;"],
    "select type'a'; select 1;": ["select type'a';", "select 1;"],
    "do $$ ; $a$ ; $$; select 1;": ["do $$ ; $a$ ; $$;", "select 1;"],
    "do $a$ ; $$ ; $b$ $a $a$; select 1;": ["do $a$ ; $$ ; $b$ $a $a$;", "select 1;"],
    "select a$b$c; select 1;": ["select a$b$c;", "select 1;"],
    "select $1; select $2;": ["select $1;", "select $2;"],
    "select 1 - -1; select 2 / 1 * 3;": ["select 1 - -1;", "select 2 / 1 * 3;"],
}


@pytest.mark.parametrize(("text", "statements"), CUTS.items())
def test_statements(text: str, statements: list[str]) -> None:
    assert list(split(text)) == statements


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 1", "no semicolon after: select 1"),
        ("select 1; select 2 -- x;", "no semicolon after: select 2 -- x;"),
        ("select 'a;", "' is not closed"),
        ('select "a;', '" is not closed'),
        ("select E'a\\';", "' is not closed"),
        ("do $$ ;", r"\$\$ is not closed"),
        ("do $a$ ; $A$;", r"\$a\$ is not closed"),
        ("/* /* */ ;", r"/\* is not closed"),
        ("create function f() returns int begin atomic select 1; end;", "begin atomic"),
    ],
)
def test_text_that_cannot_be_cut(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(split(text))


def test_statements_are_what_postgres_takes_them_for() -> None:
    """PostgreSQL's own parser is the judge, on every file that is installed."""
    parse: Callable[[str], Any] = pglast.parse_sql
    files = [*(ROOT / "migrations/releases").rglob("*.sql")]
    assert len(files) >= 6
    for path in files:
        text = path.read_text("utf-8")
        ours = [parse(each)[0].stmt for each in split(text)]
        assert ours == [each.stmt for each in parse(text)]
