"""Changes to the installed engine: faults that a stress run must notice, and pauses that help it.

Each is (function, old text, new text), for `patch`.
"""

from __future__ import annotations

Change = tuple[str, str, str]

NO_SWEEP = ("_keep_house", "    perform _sweep_queue(queue_id, 1000);\n", "")


def paused(function: str, anchor: str) -> Change:
    """Sometimes waits before that text, as a process does that the machine does not run."""
    pause = "perform pg_sleep(random() * 0.3) where random() < 0.05;"
    return (function, anchor, f"    {pause}\n{anchor}")


SLOW_SPOTS: list[Change] = [
    # Before a producer takes its locks; after a new place is read, before a row is given it.
    paused("_announce", "    perform\n      pg_advisory_xact_lock_shared("),
    paused("retry_many", "  with updated as ("),
    paused("release_many", "  with updated as ("),
    (
        "enqueue",
        "and pg_try_advisory_xact_lock_shared(",
        "and case when random() < 0.05 then (pg_sleep(random() * 0.3), 0) is not null"
        " else true end and pg_try_advisory_xact_lock_shared(",
    ),
    # Between what a mark is made from and the mark.
    paused("_advance_marks", "    select j.run_at, j.id into first_ready"),
    paused("_advance_marks", "    insert into mark "),
    paused("_sweep_lane", "  select\n    array_agg(x.id order by x.id) filter (where x.spent)"),
    paused("_sweep_lane", "  select j.run_at, j.id into oldest"),
    paused("_sweep_lane", "  insert into mark "),
    # Between housekeeping and the claim itself.
    paused("claim", "  return query\n  with claimed"),
]

FAULTS: dict[str, list[Change]] = {
    "the clock is read before the slot's lock": [
        (
            "_announce",
            "    clock := _now();\n    exit when _slot(clock) = slot;",
            "    exit;",
        ),
        ("enqueue", "where _slot(s.clock) = _slot(current_timestamp)", ""),
    ],
    "the mark is taken from jobs that can be locked": [
        (
            "_advance_marks",
            "    order by j.run_at, j.id\n    limit 1;",
            "    order by j.run_at, j.id\n    limit 1\n    for update skip locked;",
        ),
    ],
    "old snapshots write marks": [
        ("_keep_house", "current_setting('transaction_isolation') <> 'read committed'", "false"),
    ],
    # Whoever has a transaction id below the snapshot's xmax is taken to have ended. But xmax is the
    # newest *finished* transaction plus one, and others that began earlier may still be open.
    "the bound is the newest finished transaction": [
        (
            "_settled",
            "  if pg_try_advisory_lock(lane_key)",
            "  return greatest(since, least(over, (\n"
            "    select max(j.enqueued_at) from job j\n"
            "    where j.lane_id = _settled.lane_id\n"
            "      and j.xmin::text::bigint"
            " < pg_snapshot_xmax(pg_current_snapshot())::text::bigint)));\n"
            "  if pg_try_advisory_lock(lane_key)",
        ),
    ],
    "open producers are ignored": [
        ("_settled", "return greatest(since, slot);", "return greatest(since, over);"),
    ],
    "a tail passes open producers": [
        ("_sweep_lane", "  settled := _settled(lane_id, last.tail);", "  settled := clock;"),
    ],
    "claims take what runs": [("claim", "          and r.lease_until is null\n", "")],
    "an expired lease is dropped": [
        (
            "_sweep_lane",
            "  recovered := coalesce(",
            "  delete from job j where j.id = any (lost);\n  recovered := coalesce(",
        ),
    ],
}
