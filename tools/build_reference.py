"""Write docs/reference/sql.md from the catalog of an installed schema: `make reference`.

What a function is called, takes and answers is read from PostgreSQL, what it means from its
COMMENT, who may call it from the access matrix. So the page says what the schema says.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "sql.md"
MEND = "make reference"

if TYPE_CHECKING:
    from psycopg import Connection

HEAD = """\
<!-- Written by tools/build_reference.py: edit the COMMENTs in sql/, then `make reference`. -->
# SQL reference

Call functions by their qualified names, with named arguments. `null` for an option means its
default.
Errors have the SQLSTATEs of [the error table](../../sql/README.md#errors).

"""

FUNCTIONS = """
select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
  obj_description(p.oid, 'pg_proc'),
  (select string_agg(c.capability, ', ' order by c.capability) from pgq_sql._capabilities() c
   where c.name = p.proname and c.kind = 'function')
from pg_proc p
where p.pronamespace = 'pgq_sql'::regnamespace and p.proname !~ '^_'
order by p.proname
"""

RELATIONS = """
select c.relname,
  coalesce(obj_description(c.oid, 'pg_class'), obj_description(c.reltype, 'pg_type')),
  (select string_agg(p.capability, ', ' order by p.capability) from pgq_sql._capabilities() p
   where p.name = c.relname and p.kind = 'view'),
  (select array_agg(array[a.attname::text, format_type(a.atttypid, a.atttypmod),
     coalesce(col_description(c.oid, a.attnum), '')] order by a.attnum)
   from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
from pg_class c
where c.relnamespace = 'pgq_sql'::regnamespace and c.relkind = any (%s)
order by c.relname
"""


def render(conn: Connection[tuple[object, ...]]) -> str:
    """The page, from a database with the schema pgq_sql."""
    parts = [HEAD, "## Functions\n"]
    for name, arguments, result, comment, capability in conn.execute(FUNCTIONS):
        given = _split(str(arguments))
        answered = [part.removeprefix("OUT ") for part in given if part.startswith("OUT ")]
        taken = [part for part in given if not part.startswith("OUT ")]
        answer = f"({', '.join(answered)})" if answered else str(result)
        call = f"{name}({_lines(taken)})\nreturns {answer}"
        parts.append(f"\n### {name}\n\n{comment}\n\n```sql\n{_plain(call)}\n```\n")
        parts.append(f"\nMay call it: {capability}.\n")
    parts.append("\n## Row types\n")
    parts += _relations(conn, "c")
    parts.append("\n## Views\n")
    parts += _relations(conn, "v")
    return "".join(parts)


def _relations(conn: Connection[tuple[object, ...]], kind: str) -> list[str]:
    parts = []
    for name, comment, capability, columns in conn.execute(RELATIONS, [[kind]]):
        assert isinstance(columns, list)
        rows = "".join(f"| {c} | {_plain(t)} | {d} |\n" for c, t, d in columns)
        allowed = f" May read it: {capability}." if capability else ""
        parts.append(f"\n### {name}\n\n{comment}{allowed}\n\n")
        parts.append(f"| column | type | meaning |\n|---|---|---|\n{rows}")
    return parts


def _lines(parts: list[str]) -> str:
    return ",".join(f"\n  {part}" for part in parts) + "\n" if parts else ""


def _split(text: str) -> list[str]:
    """Split at commas outside quotes: a default may hold one, such as '[0.8,1.2]'."""
    parts, quoted = [""], False
    for char in text:
        quoted ^= char == "'"
        if char == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _plain(text: str) -> str:
    text = re.sub(
        r" DEFAULT (.*?)(::[a-z ]+(\[\])?)?(?=,?$)", r" default \1", text, flags=re.MULTILINE
    )
    text = text.replace(" default NULL", " default null").replace("TABLE(", "table (")
    text = text.replace("timestamp with time zone", "timestamptz").replace("SETOF ", "setof ")
    return text.replace("pgq_sql.", "")


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say whether it is fresh."""
    sys.path.insert(0, str(ROOT / "tests" / "python"))
    import psycopg

    from servers import Choice, install

    server = Choice.of(None, {}).start()
    try:
        with server.database() as name:
            install(server.dsn(name, server.owner))
            with psycopg.connect(server.dsn(name, server.owner)) as conn:
                page = render(conn)
    finally:
        server.close()
    if "--check" in arguments:
        if not PAGE.exists() or PAGE.read_text() != page:
            print(f"{PAGE.relative_to(ROOT)} is stale\nmend: {MEND}")
            return 1
        return 0
    PAGE.write_text(page)
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
