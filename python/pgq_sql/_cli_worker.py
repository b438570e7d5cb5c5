"""`pgq worker`: a process that runs the handlers of a module."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, NoReturn

import typer

from . import _install
from ._cli_base import FAILED, AsJson, Dsn, Schema, allowed, fail, read_dsn
from ._cli_output import clean, plain, print_json
from ._cli_values import duration, integer
from ._consumers import BatchConsumer, Consumer, is_coroutine_function
from .client import AsyncClient, Client
from .worker import AsyncWorker, Report, Worker

LEVELS = ("debug", "info", "warning", "error")


def _level(text: str) -> str:
    if text not in LEVELS:
        raise typer.BadParameter(f"{text} is none of {', '.join(LEVELS)}")
    return text


def worker(
    handlers: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:HANDLERS",
            help="Where to find a mapping of queues to functions; from this folder or installed.",
        ),
    ],
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            parser=integer(1),
            metavar="INTEGER",
            help="Handlers at once. Default: 8; async 100.",
        ),
    ] = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            parser=integer(0),
            metavar="INTEGER",
            help="Claim at most so many ahead. Default: 100; async 1000.",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--worker", help="Label of its claims. Default: host, process.")
    ] = None,
    poll_interval: Annotated[
        Any, typer.Option(parser=duration, metavar="DURATION", help="Look at least so often.")
    ] = "5s",
    drain_timeout: Annotated[
        Any,
        typer.Option(
            parser=duration, metavar="DURATION", help="How long to wait for handlers at the end."
        ),
    ] = "30s",
    listen: Annotated[
        bool, typer.Option("--listen/--no-listen", help="LISTEN for new jobs, or only poll.")
    ] = True,
    listener_dsn: Annotated[
        str | None, typer.Option(help="Where to LISTEN, if --dsn leads to a pooler that cannot.")
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when no job is ready.")
    ] = False,
    log_level: Annotated[
        str,
        typer.Option(parser=_level, metavar="LEVEL", help="debug, info, warning or error: stderr."),
    ] = "info",
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Run handlers for the jobs of their queues until SIGTERM or Ctrl-C; a second one: at once.

    At the end it prints what it did.
    """
    if poll_interval <= timedelta(0):
        raise typer.BadParameter("must be longer than 0", param_hint="--poll-interval")
    found = load(handlers)
    # The module may have set up logging of its own, which this leaves as it is.
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    options: dict[str, Any] = {
        "concurrency": concurrency,
        "prefetch": prefetch,
        "worker": label,
        "poll_interval": poll_interval,
        "drain_timeout": drain_timeout,
        "listen": listen,
        "listener_dsn": listener_dsn,
    }
    options = {name: value for name, value in options.items() if value is not None}
    read_dsn(dsn)
    read_dsn(listener_dsn or "", "Check --listener-dsn.")
    # A database that is away is waited for: hence no look at it beforehand.
    with allowed(dsn, schema, "worker"):
        if any(map(_is_async, found.values())):
            report = asyncio.run(_run_async(dsn, schema, found, options, until_idle))
        else:
            with Client(dsn, schema=schema) as client:
                report = Worker(client, found, **options).run(signals=True, until_idle=until_idle)
    if as_json:
        print_json(report)
    else:
        print(", ".join(f"{name} {count}" for name, count in plain(report).items()))


async def _run_async(
    dsn: str, schema: str, found: Mapping[str, Any], options: dict[str, Any], until_idle: bool
) -> Report:
    async with AsyncClient(dsn, schema=schema) as client:
        worker = AsyncWorker(client, found, **options)
        return await worker.run(signals=True, until_idle=until_idle)


def load(reference: str) -> Mapping[str, Any]:
    """The mapping that `module:name` stands for."""
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise _wrong(reference, "say MODULE:HANDLERS, for example app.jobs:HANDLERS")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = None
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Another that it imports is missing: that is the module's own failure.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            _failed(module_name, error)
        raise _wrong(reference, f"there is no module {error.name}") from error
    except Exception as error:
        _failed(module_name, error)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise _wrong(reference, f"there is no {name} in {module_name}") from error
    if not isinstance(found, Mapping) or not found:
        raise _wrong(reference, "is not a mapping of queues to functions, with at least one")
    for queue, handler in found.items():
        if not isinstance(queue, str) or not callable(_bare(handler)):
            raise _wrong(reference, f"what it has for {queue} is no function for a queue")
    if len(set(map(_is_async, found.values()))) > 1:
        raise _wrong(reference, "has functions and coroutine functions: start a worker for each")
    return found


def _bare(handler: Any) -> Any:
    return handler.handler if isinstance(handler, Consumer | BatchConsumer) else handler


def _is_async(handler: Any) -> bool:
    return is_coroutine_function(_bare(handler))


def _failed(module: str, error: Exception) -> NoReturn:
    where = ""
    if not isinstance(error, SyntaxError):  # which says it itself
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({frame.filename}, line {frame.lineno})"
    message = clean(f"{type(error).__name__}: {error}{where}")
    fail(f"importing {module} failed: {message}", FAILED)


def _wrong(reference: str, why: str) -> typer.BadParameter:
    return typer.BadParameter(f"{reference}: {why}", param_hint="MODULE:HANDLERS")
