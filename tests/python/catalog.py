"""A schema as the catalog sees it, in a form that can be compared.

`read` answers everything that makes two installations differ for somebody: definitions, bodies,
settings, privileges, owners, comments, and the ledger. Names of the schema and of its owner are
replaced, object ids never appear. `leftovers` is what a whole database holds beyond a new one.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import sql

Connection = psycopg.Connection[Any]
Catalog = dict[str, Any]

# Each answers rows of a key and a value. pg_attver is where some servers count a column's changes.
SECTIONS: dict[str, LiteralString] = {
    "schema": """
        select 'schema', jsonb_build_object('owner', pg_get_userbyid(nspowner),
          'acl', nspacl::text[], 'comment', obj_description(oid, 'pg_namespace'))
        from pg_namespace where oid = %(schema)s""",
    "relations": """
        select relname, jsonb_build_object('kind', relkind, 'persistence', relpersistence,
          'owner', pg_get_userbyid(relowner), 'acl', relacl::text[], 'options', reloptions,
          'access method', (select amname from pg_am where pg_am.oid = relam),
          'tablespace', reltablespace, 'row security', array[relrowsecurity, relforcerowsecurity],
          'replica identity', relreplident, 'partition', pg_get_expr(relpartbound, oid),
          'view', case when relkind in ('v', 'm') then pg_get_viewdef(oid) end,
          'comment', obj_description(oid, 'pg_class'))
        from pg_class where relnamespace = %(schema)s and relkind <> 'i'""",
    "columns": """
        select relname || '.' || attname, jsonb_build_object(
          'place', row_number() over (partition by attrelid order by attnum),
          'type', format_type(atttypid, atttypmod), 'not null', attnotnull,
          'default', pg_get_expr(adbin, adrelid), 'identity', attidentity,
          'generated', attgenerated, 'acl', attacl::text[],
          'options', (select array_agg(o) from unnest(attoptions) o where o !~ '^pg_attver='),
          'collation', nullif(attcollation, 0)::regcollation::text, 'storage', attstorage,
          'compression', attcompression, 'statistics', attstattarget,
          'comment', col_description(attrelid, attnum))
        from pg_attribute a
        join pg_class c on c.oid = attrelid
        left join pg_attrdef on adrelid = attrelid and adnum = attnum
        where relnamespace = %(schema)s and relkind <> 'i' and attnum > 0 and not attisdropped""",
    "sequences": """
        select relname, to_jsonb(s) - 'seqrelid' || jsonb_build_object(
          'type', format_type(seqtypid, null), 'column', (
            select refobjid::regclass || '.' || attname
            from pg_depend
            join pg_attribute on attrelid = refobjid and attnum = refobjsubid
            where classid = 'pg_class'::regclass and objid = seqrelid and deptype in ('a', 'i')))
        from pg_sequence s join pg_class on oid = seqrelid where relnamespace = %(schema)s""",
    "constraints": """
        select coalesce(relname, typname) || '.' || conname, jsonb_build_object(
          'definition', pg_get_constraintdef(c.oid), 'validated', convalidated,
          'inherits', not connoinherit, 'comment', obj_description(c.oid, 'pg_constraint'))
        from pg_constraint c
        left join pg_class r on r.oid = conrelid
        left join pg_type t on t.oid = contypid
        where connamespace = %(schema)s""",
    "indexes": """
        select c.relname, jsonb_build_object('definition', pg_get_indexdef(indexrelid, 0, true),
          'options', reloptions, 'primary', indisprimary, 'clustered', indisclustered,
          'usable', indisvalid and indisready and indislive, 'identity', indisreplident,
          'owner', pg_get_userbyid(relowner), 'comment', obj_description(c.oid, 'pg_class'))
        from pg_index join pg_class c on c.oid = indexrelid where relnamespace = %(schema)s""",
    "triggers": """
        select relname || '.' || tgname, jsonb_build_object(
          'definition', pg_get_triggerdef(t.oid, true), 'enabled', tgenabled,
          'comment', obj_description(t.oid, 'pg_trigger'))
        from pg_trigger t join pg_class c on c.oid = tgrelid
        where relnamespace = %(schema)s and not tgisinternal""",
    "rules and policies": """
        select relname || '.' || name, to_jsonb(definition)
        from (
          select ev_class, rulename, pg_get_ruledef(oid) from pg_rewrite where rulename <> '_RETURN'
          union all
          select polrelid, polname, concat(polcmd, polpermissive, pg_get_expr(polqual, polrelid),
            pg_get_expr(polwithcheck, polrelid), polroles::regrole[]) from pg_policy
        ) x(relation, name, definition)
        join pg_class on oid = relation
        where relnamespace = %(schema)s""",
    "types": """
        select t.typname, jsonb_build_object('kind', t.typtype, 'acl', t.typacl::text[],
          'owner', pg_get_userbyid(t.typowner), 'base', format_type(t.typbasetype, t.typtypmod),
          'not null', t.typnotnull, 'default', t.typdefault,
          'labels', (select array_agg(enumlabel::text order by enumsortorder)
            from pg_enum where enumtypid = t.oid),
          'comment', obj_description(t.oid, 'pg_type'))
        from pg_type t where typnamespace = %(schema)s and typcategory <> 'A'""",
    "functions": """
        select format('%%s(%%s)', proname, pg_get_function_identity_arguments(oid)),
          jsonb_build_object('kind', prokind,
          'source', prosrc, 'body', pg_get_function_sqlbody(oid),
          'arguments', pg_get_function_arguments(oid), 'names', proargnames, 'modes', proargmodes,
          'result', pg_get_function_result(oid), 'set', proretset,
          'language', (select lanname from pg_language l where l.oid = prolang),
          'definer', prosecdef, 'volatility', provolatile, 'parallel', proparallel,
          'strict', proisstrict, 'leakproof', proleakproof, 'cost', procost, 'rows', prorows,
          'support', prosupport::text, 'settings', proconfig, 'acl', proacl::text[],
          'owner', pg_get_userbyid(proowner), 'comment', obj_description(oid, 'pg_proc'))
        from pg_proc where pronamespace = %(schema)s""",
    "other objects": """
        select pg_describe_object(classid, objid, 0), to_jsonb(deptype)
        from pg_depend
        where refclassid = 'pg_namespace'::regclass and refobjid = %(schema)s
          and classid <> all ('{pg_class,pg_proc,pg_type,pg_constraint}'::regclass[])""",
}


def read(conn: Connection, schema: str = "pgq_sql") -> Catalog:
    """Everything about a schema by section and name; empty if there is none."""
    with conn.transaction(force_rollback=True):
        # With this alone, names in the schema come out bare and all others qualified.
        conn.execute(sql.SQL("set local search_path = {}").format(sql.Identifier(schema)))
        found = conn.execute(
            "select oid, quote_ident(nspname), pg_get_userbyid(nspowner)"
            " from pg_namespace where nspname = %s",
            [schema],
        ).fetchone()
        if found is None:
            return {}
        oid, name, owner = found
        catalog: Catalog = {}
        for section, query in SECTIONS.items():
            rows = conn.execute(query, {"schema": oid}).fetchall()
            catalog[section] = {key: _general(value, name, owner) for key, value in sorted(rows)}
            assert len(catalog[section]) == len(rows), f"a key in {section} is not unique"
        ledger = sql.SQL("select version_num from {}.alembic_version order by 1")
        rows = conn.execute(ledger.format(sql.Identifier(schema))).fetchall()
        catalog["ledger"] = [release for (release,) in rows]
        return catalog


def _general(value: Any, schema: str, owner: str) -> Any:
    """The same for every schema name and owner. Only these places can hold them."""
    if isinstance(value, dict):
        if "owner" in value:
            value["owner"] = value["owner"].replace(owner, "<owner>")
        if value.get("acl"):
            value["acl"] = sorted(item.replace(owner, "<owner>") for item in value["acl"])
        if value.get("settings"):
            value["settings"] = [item.replace(schema, "<schema>") for item in value["settings"]]
    return value


def leftovers(conn: Connection) -> dict[str, list[str]]:
    """By catalog, what a database holds that a new one does not."""
    catalogs = conn.execute(
        "select c.oid::regclass::text from pg_class c join pg_attribute a on attrelid = c.oid"
        " where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared"
        " and attname = 'oid' and has_table_privilege(c.oid, 'select') order by 1"
    ).fetchall()
    queries = {
        name: sql.SQL("select {0}::text from {0} where oid >= 16384").format(sql.Identifier(name))
        for (name,) in catalogs
    }
    for name, column in (
        ("pg_description", "objoid"),
        ("pg_depend", "objid"),
        ("pg_seclabel", "objoid"),
        ("pg_init_privs", "objoid"),
    ):
        queries[name] = sql.SQL("select {0}::text from {0} where {1} >= 16384").format(
            sql.Identifier(name), sql.Identifier(column)
        )
    found = {name: [row for (row,) in conn.execute(query)] for name, query in queries.items()}
    return {name: rows for name, rows in found.items() if rows}
