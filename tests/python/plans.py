"""What PostgreSQL did inside the functions: the plans of their statements, by auto_explain."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from servers import Connection

# What may grow: none of these may be read from end to end.
GROWING = frozenset({"job", "dead_job", "done_job", "dedup", "mark", "lane"})
# What each index has to find by itself, and not leave to a filter.
BOUNDS = {
    "job_claim": ("(lane_id = ", "(ROW(run_at, id) >= ROW("),
    "job_pkey": ("(id = ",),
    "job_expires": ("(expires_at <= ",),
    "mark_pkey": ("(lane_id = ",),
    "lane_id": ("(id >= ", "(id <= "),
    "dead_job_pkey": ("(id = ",),
    "dead_job_dead_at": ("(queue_id = ", "(dead_at < "),
    "dedup_pkey": ("(queue_id = ", "(key = "),
    "done_job_pkey": ("(id = ",),
    "done_job_queue_id_done_at_idx": ("(queue_id = ", "(done_at > "),
}
NOTHING: Mapping[str, tuple[str, ...]] = {}
# History is read by the day: its parts count as one table.
PART = re.compile(r"^done_job_(\d+|forever)(?=_|$)")


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

    def scans(self) -> list[Scan]:
        """Of the growing tables."""
        return [
            Scan(node)
            for node in self.nodes()
            if Scan(node).table in GROWING and node["Node Type"] != "ModifyTable"
        ]

    def walks(self, most: int, also: Mapping[str, tuple[str, ...]] = NOTHING) -> list[str]:
        """Scans that read more than they are to: by what bounds them, and by what they read.

        `also`: bounds that will do as well as BOUNDS. Sorts, too: nothing big may be sorted to
        find its first rows.
        """
        text = " ".join(self.statement.split())[:70]
        faults = [
            f"{scan}: {text}"
            for scan in self.scans()
            if not scan.bounded(BOUNDS) and not scan.bounded(also)
        ]
        for node in self.nodes():
            scan = Scan(node)
            if (scan.table in GROWING or scan.kind.endswith("Sort")) and scan.rows > most:
                faults.append(f"{scan}, {scan.rows} rows: {text}")
        return faults


@dataclass(frozen=True)
class Scan:
    """A node that reads rows."""

    node: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.kind} {self.index} on {self.table}"

    @property
    def table(self) -> str:
        return PART.sub("done_job", str(self.node.get("Relation Name", "")))

    @property
    def kind(self) -> str:
        return str(self.node["Node Type"])

    @property
    def index(self) -> str:
        return PART.sub("done_job", str(self.node.get("Index Name", "")))

    def bounded(self, bounds: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether it reads one range of an index, or rows whose addresses another scan found."""
        if self.kind == "Tid Scan":
            return str(self.node.get("TID Cond", "")).startswith("(ctid = ANY (")
        told = str(self.node.get("Index Cond", ""))
        return (
            self.kind in ("Index Scan", "Index Only Scan")
            and self.index in bounds
            and all(part in told for part in bounds[self.index])
        )

    @property
    def rows(self) -> int:
        """Looked at, wanted or not."""
        each = float(self.node["Actual Rows"]) + float(self.node.get("Rows Removed by Filter", 0))
        return round(each * int(self.node["Actual Loops"]))

    @property
    def pages(self) -> int:
        return int(self.node["Shared Hit Blocks"]) + int(self.node["Shared Read Blocks"])


class Watched:
    """A session whose statements, nested ones included, tell their plans. Needs a superuser."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self._told: list[str] = []
        conn.add_notice_handler(self._hear)
        try:
            conn.execute("load 'auto_explain'")
        except psycopg.Error as error:
            pytest.skip(f"the server cannot tell its plans: {error}")
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
