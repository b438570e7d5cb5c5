"""What the command and the metrics read from the schema's views."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from .client import Client
from .errors import translated
from .models import QueueState


def all_stats(client: Client) -> list[QueueState]:
    """The state of every queue, at one instant."""
    rows = view_rows(
        client, "select s.* from {schema}.queues q, {schema}.queue_stats(q.queue) s order by 1"
    )
    # A later schema may answer more columns.
    return [QueueState(*row[: len(fields(QueueState))]) for row in rows]


def view_rows(client: Client, query: str) -> list[tuple[Any, ...]]:
    """What a query answers; `{schema}` in it stands for the schema's name."""
    with translated(), client._borrow() as conn:
        return client._run(conn, client._statements.fill(query), {}).fetchall()
