"""What the installed schema must look like: each rule answers its violations, one line each.

The rules read the catalog, not the sources, so that they hold however the schema was
installed. test_catalog.py runs them, and plants a violation for each to see it caught.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import LiteralString

from servers import Connection

SCHEMA = "pgq_sql"

# The contract of sql/README.md: every error that a function raises bears one of these.
SQLSTATES = frozenset(
    {
        "JQ001",  # no such queue
        "JQ002",  # lease lost
        "JQ003",  # no such job
        "JQ004",  # not possible in this state
        "JQ005",  # unknown option
        "JQ006",  # versions don't fit
        "JQ007",  # payload too large
        "22023",  # bad argument
        "42501",  # not allowed
        "0A000",  # server too old
        "25001",  # needs a READ COMMITTED transaction
    }
)

# Granting takes identifiers, which no static statement can.
DYNAMIC_SQL = frozenset({"_add_done_day", "_apply_grants", "_sweep_history"})

# Columns that claim, heartbeat and release change: in an index they would end HOT updates.
HOT_COLUMNS = frozenset({"attempt", "last_error", "lease_until", "token", "worker"})

# Alembic's own table, with Alembic's own DDL, so that it can take over from the other ways.
LEDGER = "alembic_version"

# Types that lose something: time zones, precision, key order's cost, or are SQL's leftovers.
UNWANTED_TYPES = frozenset(
    {"timestamp", "time", "timetz", "json", "varchar", "bpchar", "money", "float4", "int2vector"}
)

TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
  | (?P<string>  (?: \b[eE] )? '(?:[^'\\]|''|\\.)*' | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
  | (?P<quoted>  "(?:[^"]|"")*" )
  | (?P<word>    [A-Za-z_][A-Za-z0-9_$]* )
  | (?P<other>   \S )
    """,
    re.VERBOSE | re.DOTALL,
)

Rule = Callable[[Connection], list[str]]


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Split SQL into (kind, text); kinds: comment, string, quoted, word, other."""
    for match in TOKEN.finditer(text):
        kind = match.lastgroup
        yield ("string" if kind == "tag" else str(kind)), match.group()


def statements(body: str) -> Iterator[list[tuple[str, str]]]:
    """The tokens of a body, comments left out, cut at semicolons."""
    found: list[tuple[str, str]] = []
    for kind, text in tokens(body):
        if text == ";":
            yield found
            found = []
        elif kind != "comment":
            found.append((kind, text))
    yield found


def _strings(conn: Connection, query: LiteralString) -> list[str]:
    return [str(row[0]) for row in conn.execute(query, {"schema": SCHEMA}).fetchall()]


def _bodies(conn: Connection) -> list[tuple[str, str]]:
    rows = conn.execute(
        "select proname, prosrc from pg_proc"
        " where pronamespace = %s::regnamespace order by proname",
        [SCHEMA],
    ).fetchall()
    return [(str(name), str(body)) for name, body in rows]


def overloads(conn: Connection) -> list[str]:
    """One name, one function: a call never depends on how its literals are typed."""
    return _strings(
        conn,
        "select format('%%s has %%s versions', proname, count(*)) from pg_proc"
        " where pronamespace = %(schema)s::regnamespace group by proname having count(*) > 1",
    )


def unpinned_search_paths(conn: Connection) -> list[str]:
    """Every function looks in the schema and, last, in pg_temp: nobody can slip in a table.

    A function whose body is SQL was parsed when it was created, and looks nowhere.
    """
    rows = conn.execute(
        "select proname, (select substr(c, length('search_path=') + 1)"
        "   from unnest(proconfig) c where c like 'search_path=%%')"
        " from pg_proc where pronamespace = %s::regnamespace and prosqlbody is null"
        " order by proname",
        [SCHEMA],
    ).fetchall()
    return [
        f"{name}: search_path is {path}"
        for name, path in rows
        if str(path).replace('"', "").replace(" ", "") != f"{SCHEMA},pg_temp"
    ]


def open_to_public(conn: Connection) -> list[str]:
    """PUBLIC holds no privilege on the schema nor on anything in it."""
    return _strings(
        conn,
        """
        with acl (object, acl) as (
          select 'schema ' || nspname, coalesce(nspacl, acldefault('n', nspowner))
          from pg_namespace where oid = %(schema)s::regnamespace
          union all
          select 'function ' || proname, coalesce(proacl, acldefault('f', proowner))
          from pg_proc where pronamespace = %(schema)s::regnamespace
          union all
          select 'relation ' || relname, coalesce(relacl,
            acldefault(case relkind when 'S' then 's' else 'r' end::"char", relowner))
          from pg_class
          where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S')
          union all
          select format('column %%s.%%s', relname, attname), attacl
          from pg_attribute join pg_class on pg_class.oid = attrelid
          where relnamespace = %(schema)s::regnamespace and attacl is not null
          union all
          select 'type ' || typname, coalesce(typacl, acldefault('T', typowner))
          from pg_type where typnamespace = %(schema)s::regnamespace and typtype in ('d', 'e', 'r')
        )
        select format('%%s: %%s', object, privilege_type) from acl, aclexplode(acl)
        where grantee = 0 order by 1
        """,
    )


def public_functions_as_invoker(conn: Connection) -> list[str]:
    """Public functions run as their owner: they are the only door to the tables."""
    return _strings(
        conn,
        "select proname || ' is not security definer' from pg_proc"
        " where pronamespace = %(schema)s::regnamespace and proname !~ '^_' and not prosecdef"
        " order by proname",
    )


def without_comment(conn: Connection) -> list[str]:
    """Public functions, tables, types, views and views' columns say what they are."""
    return _strings(
        conn,
        """
        select 'function ' || proname from pg_proc
        where pronamespace = %(schema)s::regnamespace and proname !~ '^_'
          and obj_description(oid, 'pg_proc') is null
        union all
        select 'relation ' || relname from pg_class
        where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p', 'v', 'm')
          and relname <> 'alembic_version' and obj_description(oid, 'pg_class') is null
        union all
        select 'type ' || relname from pg_class
        where relnamespace = %(schema)s::regnamespace and relkind = 'c'
          and obj_description(reltype, 'pg_type') is null
        union all
        select format('column %%s.%%s', relname, attname)
        from pg_attribute join pg_class on pg_class.oid = attrelid
        where relnamespace = %(schema)s::regnamespace and relkind in ('v', 'm') and attnum > 0
          and not attisdropped and col_description(attrelid, attnum) is null
        union all
        select 'schema ' || nspname from pg_namespace
        where oid = %(schema)s::regnamespace and obj_description(oid, 'pg_namespace') is null
        order by 1
        """,
    )


def undocumented_errors(conn: Connection) -> list[str]:
    """Every raise bears a literal SQLSTATE of the documented set, its message in lower case."""
    return [
        f"{name}: {problem}" for name, body in _bodies(conn) for problem in raise_problems(body)
    ]


def raise_problems(body: str) -> Iterator[str]:
    """What is wrong with the raise statements of a function body."""
    for statement in statements(body):
        words = [text.lower() if kind == "word" else text for kind, text in statement]
        if "raise" not in words:
            continue
        rest = words[words.index("raise") + 1 :]
        if not rest or rest[0] in {"debug", "log", "info", "notice", "warning"}:
            continue
        shown = " ".join(["raise", *rest])[:70]
        code = _following(rest, "errcode", skip="=") or _following(rest, "sqlstate")
        # A handler that adds to an error hands on the code it caught.
        handed_on = "errcode = sqlstate" in " ".join(rest)
        if not handed_on and (code is None or code.strip("'") not in SQLSTATES):
            yield f"no documented SQLSTATE in: {shown}"
        message = _following(rest, "message", skip="=") or next(
            (text for text in rest[:2] if text.startswith("'") and text != code), None
        )
        if message is None:
            yield f"no literal message in: {shown}"
        elif message[1:2].isupper():
            yield f"message begins with a capital in: {shown}"


def _following(words: list[str], word: str, skip: str = "") -> str | None:
    if word not in words:
        return None
    rest = [text for text in words[words.index(word) + 1 :] if text not in (skip, ":")]
    return rest[0] if rest and rest[0].startswith("'") else None


def dynamic_sql(conn: Connection) -> list[str]:
    """No statement is put together from text, but for a short list of functions."""
    return [
        f"{name} executes dynamic SQL"
        for name, body in _bodies(conn)
        if name not in DYNAMIC_SQL
        and any(kind == "word" and text.lower() == "execute" for kind, text in tokens(body))
    ]


def narrow_numbers(conn: Connection) -> list[str]:
    """Ids, tokens and counters are bigint, in tables, arguments and sequences."""
    return _strings(
        conn,
        r"""
        with named (place, name, type) as (
          select relname, attname, atttypid
          from pg_attribute join pg_class on pg_class.oid = attrelid
          where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p', 'v', 'm', 'c')
            and attnum > 0
          union all
          select proname, arg.name, arg.type
          from pg_proc,
            unnest(proargnames, coalesce(proallargtypes, proargtypes::oid[])) arg (name, type)
          where pronamespace = %(schema)s::regnamespace
        )
        select format('%%s.%%s is %%s', place, name, type::regtype) from named
        where name ~ '^_?(id|.*_ids?|tokens?|seq|ordinal|count)$'
          and type in ('int2'::regtype, 'int4'::regtype, 'int2[]'::regtype, 'int4[]'::regtype)
        union all
        select format('sequence %%s is %%s', relname, seqtypid::regtype)
        from pg_sequence join pg_class on pg_class.oid = seqrelid
        where relnamespace = %(schema)s::regnamespace and seqtypid <> 'int8'::regtype
        order by 1
        """,
    )


def unwanted_types(conn: Connection) -> list[str]:
    """Instants have a zone, text has no length, documents are jsonb."""
    rows = conn.execute(
        "select relname, attname, typname from pg_attribute"
        " join pg_class on pg_class.oid = attrelid join pg_type t on t.oid = atttypid"
        " where relnamespace = %s::regnamespace and relkind in ('r', 'p', 'v', 'm') and attnum > 0"
        " and relname <> %s order by 1, 2",
        [SCHEMA, LEDGER],
    ).fetchall()
    return [f"{table}.{column} is {name}" for table, column, name in rows if name in UNWANTED_TYPES]


def replaced_clock(conn: Connection) -> list[str]:
    """The clock is the database's: a test's clock must never be installed."""
    row = conn.execute(
        "select coalesce(pg_get_function_sqlbody(oid), prosrc) from pg_proc"
        " where proname = '_now' and pronamespace = %s::regnamespace",
        [SCHEMA],
    ).fetchone()
    body = None if row is None else row[0]
    return [] if body == "RETURN clock_timestamp()" else [f"_now() is: {body}"]


def indexed_hot_columns(conn: Connection) -> list[str]:
    """No index knows a column that a claim changes, neither as a key nor in its predicate."""
    rows = conn.execute(
        "select indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index"
        " join pg_class on pg_class.oid = indrelid where relnamespace = %s::regnamespace"
        " order by 1",
        [SCHEMA],
    ).fetchall()
    found: list[str] = []
    for index, definition in rows:
        # The words in front name the index and its table, not columns.
        columns = str(definition).partition(" USING ")[2]
        words = {text for kind, text in tokens(columns) if kind == "word"}
        found.extend(f"{index} contains {word}" for word in sorted(words & HOT_COLUMNS))
    return found


def unassigned_doors(conn: Connection) -> list[str]:
    """The matrix of capabilities names every public function and view, and nothing else."""
    return _strings(
        conn,
        """
        with existing (kind, name) as (
          select 'function', proname::text from pg_proc
          where pronamespace = %(schema)s::regnamespace
          union all
          select 'view', relname::text from pg_class
          where relnamespace = %(schema)s::regnamespace and relkind in ('v', 'm')
        ), matrix as (
          select * from pgq_sql._capabilities()
        )
        select format('%%s %%s is in no capability', kind, name) from existing
        where name !~ '^_' and (kind, name) not in (select m.kind, m.name from matrix m)
        union all
        select format('%%s %%s is in the matrix and does not exist', kind, name) from matrix
        where (kind, name) not in (select e.kind, e.name from existing e)
        union all
        select format('%%s: unknown capability %%s', name, capability) from matrix
        where capability not in ('producer', 'worker', 'observer', 'admin', 'owner')
        union all
        select format('%%s: the owner''s and somebody else''s', name) from matrix
        group by name having bool_or(capability = 'owner') and count(*) > 1
        order by 1
        """,
    )


RULES: tuple[Rule, ...] = (
    overloads,
    unpinned_search_paths,
    open_to_public,
    public_functions_as_invoker,
    without_comment,
    undocumented_errors,
    dynamic_sql,
    narrow_numbers,
    unwanted_types,
    replaced_clock,
    indexed_hot_columns,
    unassigned_doors,
)
