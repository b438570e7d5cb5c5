"""The command `pgq`.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 database not reachable, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version as version_of
from typing import Annotated, cast

import psycopg

from . import _install
from ._releases import BASE
from .errors import PgqError

try:
    import typer

    from . import _cli_act, _cli_doctor, _cli_enqueue, _cli_look, _cli_worker
    from ._cli_base import (
        FAILED,
        UNREACHABLE,
        USAGE,
        AsJson,
        Dsn,
        Schema,
        explain,
        fail,
        lost,
        reaching,
    )
    from ._cli_output import clean, print_json
    from .demo import demo
except ModuleNotFoundError as error:
    sys.exit(f"pgq needs {error.name}: pip install 'pgq_sql[cli]'")

app = typer.Typer(
    name="pgq",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Start = Annotated[str, typer.Option("--from", help="The release that is there.")]
End = Annotated[str, typer.Option("--to", help="A release such as 0001, or head, or base (none).")]
Check = Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if not at --to.")]
Downgrade = Annotated[
    bool, typer.Option("--downgrade", help="Go back to --to, which loses data; base removes all.")
]


def migrate(
    dsn: Dsn = "",
    to: End = _install.HEAD,
    schema: Schema = _install.SCHEMA,
    check: Check = False,
    downgrade: Downgrade = False,
    as_json: AsJson = False,
) -> None:
    """Install the schema, or bring it to another release, in one transaction."""
    if downgrade and to == _install.HEAD:
        raise typer.BadParameter("--downgrade needs --to: a release, or base to remove the schema")
    if check:
        target = _install.resolve(to)
        with reaching(dsn), _install.connect(dsn) as conn:
            found = _install.installed(conn, schema)
        if as_json:
            print_json({"schema": schema, "start": found, "end": target})
        else:
            print(f'schema "{schema}" is at {found}')
        _install.refuse_unknown(found, schema)
        if found != target:
            fail(f"{target} is wanted. Run: pgq migrate", FAILED)
        return
    with reaching(dsn):
        change = _install.migrate(dsn, to=to, schema=schema, downgrade=downgrade)
    if as_json:
        print_json({"schema": schema, "start": change.start, "end": change.end})
    elif change.start == change.end:
        print(f'schema "{schema}" is at {change.end}: nothing to do')
    else:
        print(f'schema "{schema}" went from {change.start} to {change.end}')


def sql(
    start: Start = BASE,
    to: End = _install.HEAD,
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Print what migrate would run, for somebody else to run."""
    first, last = _install.resolve(start), _install.resolve(to)
    script = ["begin;", *_install.script(schema, first, last), "commit;"]
    if as_json:
        print_json({"schema": schema, "start": first, "end": last, "statements": script})
        return
    if isinstance(sys.stdout, io.TextIOWrapper):  # a schema's name may not fit its encoding
        sys.stdout.reconfigure(encoding="utf-8")
    print("-- One transaction. With psql: psql -v ON_ERROR_STOP=1 -f FILE", end="\n\n")
    print(*script, sep="\n\n")


def version(as_json: AsJson = False) -> None:
    """Print the version of the package and the release of the schema that it is made for."""
    package, release = version_of("pgq_sql"), _install.resolve(_install.HEAD)
    if as_json:
        print_json({"package": package, "schema_release": release})
    else:
        print(f"pgq_sql {package}, schema release {release}")


def _version_only(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version_only, help="As `pgq version`."),
    ] = False,
) -> None:
    """A job queue in PostgreSQL."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(USAGE)


for panel, commands in {
    "Install": (migrate, sql, version),
    "Look": (*_cli_look.commands, *_cli_doctor.commands),
    "Act": (_cli_act.create, *_cli_enqueue.commands, *_cli_act.commands),
    "Work": (_cli_worker.worker, demo),
}.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


def main() -> None:
    """Run the command; errors that are not bugs come out as one line."""
    try:
        _run()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            # Who reads has enough. Python would flush once more, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(FAILED)


_Wrong = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""Any wrong usage, also what typer finds."""


def _run() -> None:
    try:
        # Not as typer would end it, with errors in boxes.
        sys.exit(app(standalone_mode=False))
    except _Wrong as error:
        message = clean(error.format_message()).removeprefix("Invalid value: ").rstrip(". ")
        message = message[:1].lower() + message[1:] + ("" if message.endswith("?") else ".")
        path = error.ctx.command_path if error.ctx else "pgq"
        fail(f"{message} See {path} --help.", USAGE)
    except typer.Abort:
        fail("nothing was done", FAILED)
    except (PgqError, psycopg.Error) as error:
        if lost(error):
            fail(explain(error), UNREACHABLE)
        fail(explain(error), USAGE if isinstance(error, _install.UnknownRelease) else FAILED)


if __name__ == "__main__":
    main()
