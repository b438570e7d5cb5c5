"""Run pgspot over the release that sql/ makes, for the default schema. Nothing is ignored.

pgspot reads text, so what the installer settles at run time is written out for it:

* `set search_path from current` becomes the path that the installer has set by then, since
  pgspot accepts a path only if it sees one;
* a body in SQL (`return …`), which pgspot cannot read, becomes a quoted one with that path: the one
  it is parsed under when it is created;
* a variable of a row type of ours becomes a record: pgspot does not know the type and holds an
  assignment to one field of it for a mistake;
* created functions and views get their schema, the first of that path. Without it pgspot
  holds `create or replace` for unsafe: somebody might have put a function there before. Here
  nobody can: the prelude refuses a schema in which anyone but the owner may create.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASES = ROOT / "migrations" / "releases"
SCHEMA = "pgq_sql"
PATH = f"{SCHEMA}, pg_temp"


def rendered(release: str) -> str:
    """Write out a release's SQL as it runs in the default schema."""
    sql = "\n".join((RELEASES / release / f"{part}.sql").read_text() for part in ("up", "routines"))
    sql = sql.replace("set search_path from current", f"set search_path = {PATH}")
    sql = re.sub(
        r"^return (.*?);$",
        rf"set search_path = {PATH}\nas $$ select \1 $$;",
        sql,
        flags=re.MULTILINE | re.DOTALL,
    )
    rows = "|".join(re.findall(r"^create (?:table|type) (\w+)", sql, re.MULTILINE))
    sql = re.sub(
        rf"^(  \w+(?: constant)?) (?:{rows})( :=|;)", r"\1 record\2", sql, flags=re.MULTILINE
    )
    sql = re.sub(
        r"^(create (?:or replace )?(?:function|view)) (\w+)",
        rf"\1 {SCHEMA}.\2",
        sql,
        flags=re.MULTILINE,
    )
    return f"create schema {SCHEMA};\nset local search_path = {PATH};\n{sql}"


def spot(sql: str) -> subprocess.CompletedProcess[str]:
    """Let pgspot read it; the answer's code is 0 if it found nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(sql)
        file.flush()
        return subprocess.run(
            [str(Path(sys.executable).parent / "pgspot"), file.name],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def main() -> int:
    """Run pgspot on the newest release, and on it with a planted fault."""
    newest = max(path.name for path in RELEASES.iterdir() if path.is_dir() and path.name.isdigit())
    sql = rendered(newest)
    # The check of the check: the same text with one path taken away must not pass.
    planted = spot(sql.replace(f"set search_path = {PATH}\n", "", 1))
    if planted.returncode == 0:
        print("pgspot overlooked a function without search_path")
        return 1
    done = spot(sql)
    print(done.stdout.strip())
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
