"""What PostgreSQL did inside the functions: the plans of their statements, by auto_explain."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from servers import Connection

# What may grow: none of these may be read from end to end.
GROWING = frozenset({"job", "dead_job", "mark", "lane"})
WALKS = frozenset({"Seq Scan", "Bitmap Heap Scan", "Sample Scan"})


@dataclass(frozen=True)
class Plan:
    """One executed statement: its text, and its tree of nodes as EXPLAIN (format json) has it."""

    statement: str
    root: dict[str, Any]

    def nodes(self) -> Iterator[dict[str, Any]]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])

    @property
    def buffers(self) -> int:
        """Pages touched, by the statements inside too."""
        return int(self.root["Shared Hit Blocks"]) + int(self.root["Shared Read Blocks"])

    def walks(self) -> list[str]:
        """The growing tables that are read from end to end."""
        text = " ".join(self.statement.split())[:70]
        return [
            f"{node['Node Type']} on {node['Relation Name']}: {text}"
            for node in self.nodes()
            if node["Node Type"] in WALKS and node.get("Relation Name") in GROWING
        ]

    def conditions(self, index: str) -> list[str]:
        """How the scans of an index are bounded."""
        return [
            str(node.get("Index Cond", ""))
            for node in self.nodes()
            if node.get("Index Name") == index
        ]


class Watched:
    """A session whose statements, nested ones included, tell their plans. Needs a superuser."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self._told: list[str] = []
        conn.add_notice_handler(self._hear)
        conn.execute("load 'auto_explain'")
        for setting, value in (
            ("log_analyze", "on"),
            ("log_buffers", "on"),
            ("log_timing", "off"),
            ("log_nested_statements", "on"),
            ("log_format", "json"),
        ):
            conn.execute(f"set auto_explain.{setting} = {value}".encode())

    def _hear(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        self._told.append(diagnostic.message_primary or "")

    def run(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run without listening."""
        return self.conn.execute(query.encode(), parameters).fetchall()

    def plans(self, query: str, parameters: Sequence[object] = ()) -> list[Plan]:
        """Run, and answer the plans of all that ran; the last is the query's own."""
        self.conn.execute("set auto_explain.log_min_duration = 0; set client_min_messages = log")
        self._told.clear()
        try:
            self.run(query, parameters)
        finally:
            self.conn.execute("set auto_explain.log_min_duration = -1; reset client_min_messages")
        trees = [
            json.loads(text.partition("plan:\n")[2]) for text in self._told if "plan:\n" in text
        ]
        return [Plan(tree["Query Text"], tree["Plan"]) for tree in trees if "Plan" in tree]
