"""What is measured, and what is to be reached."""

from __future__ import annotations

from calls import Enqueueing
from course import Course
from drain import Drain
from latency import Latency
from memory import Memory
from pickup import Pickup
from result import Aim
from scenario import Scenario
from sessions import Sessions
from shape import ORDERS, Content, Contents, Statistics
from steady import Steady
from workers import (
    ASYNC,
    BARE,
    BATCHES,
    LISTENER,
    PGQUEUER,
    PGQUEUER_ONE,
    PGQUEUER_TUNED,
    PROCRASTINATE,
    THREADS,
)

RATE = "jobs_per_second"
COSTS = (RATE, "cpu_us", "wal_bytes", "wal_records", "wal_pages", "commits", "hot_share")


def aims(plain: float = 0, floor: float = 0, figure: str = RATE) -> tuple[Aim, ...]:
    """At least so many times what the others do."""
    return tuple(
        Aim(figure, bound, against=against)
        for against, bound in (("plain", plain), ("floor", floor))
        if bound
    )


LIFE = (
    *(Aim(figure, 0.65, against="plain", at_most=True) for figure in ("wal_bytes", "wal_records")),
    Aim("hot_share", 0.995),
)

STEADY = (
    Steady(
        name="claim+ack, batches of 100",
        about="2 sessions, a backlog of two million",
        parts=("claim", "ack"),
        clients=2,
        n=100,
        backlog=2_000_000,
        figures=COSTS,
        aims=aims(plain=1.2, floor=0.75),
    ),
    Steady(
        name="claim+ack, batches of 10",
        about="2 sessions, a backlog of 800,000",
        parts=("claim", "ack"),
        clients=2,
        n=10,
        backlog=800_000,
        figures=COSTS,
    ),
    *(
        Steady(
            name=f"claim+ack, one at a time, {clients} client{'s' if clients > 1 else ''}",
            about="a backlog of 100,000",
            parts=("claim", "ack"),
            clients=clients,
            backlog=100_000,
            figures=COSTS,
            aims=aims(plain=1.1),
        )
        for clients in (1, 8)
    ),
    Steady(
        name="enqueue, 1 client",
        about="one job a call and transaction; nobody is idle",
        parts=("enqueue",),
        clients=1,
        figures=(RATE, "cpu_us", "notifications"),
    ),
    Steady(
        name="enqueue, 8 clients",
        about="one job a call and transaction; nobody is idle; a session listens and counts",
        parts=("enqueue",),
        clients=8,
        figures=(RATE, "cpu_us", "notifications"),
        aims=(*aims(plain=0.9), Aim("notifications", 0, at_most=True)),
    ),
    Steady(
        name="enqueue_many of 100",
        about="2 sessions",
        parts=("enqueue_many",),
        clients=2,
        n=100,
        aims=aims(plain=0.8),
    ),
    Steady(
        name="a job's life, batches of 100",
        about="2 sessions enqueue, claim and ack in turn; a backlog of 1,000",
        parts=("enqueue_many", "claim", "ack"),
        clients=2,
        n=100,
        backlog=1_000,
        figures=COSTS,
        aims=LIFE,
    ),
    Steady(
        name="a job's life, one at a time",
        about="2 sessions enqueue, claim and ack in turn; a backlog of 1,000",
        parts=("enqueue", "claim", "ack"),
        clients=2,
        backlog=1_000,
        figures=COSTS,
        aims=LIFE,
    ),
    Steady(
        name="claim+ack, sustained",
        about="2 minutes, 2 sessions, batches of 100: enqueue, claim and ack in turn, a backlog of "
        "100,000; the time of claim and ack alone counts",
        parts=("enqueue_many", "claim", "ack"),
        clients=2,
        n=100,
        backlog=100_000,
        seconds=120,
        figures=("claim_ack_per_second", *COSTS),
        aims=aims(plain=1.5, figure="claim_ack_per_second"),
        long=True,
    ),
)

KEEPS_UP = Aim("input_kept", 0.95)

COURSES = (
    Course(name="nothing held", about="60 s, for comparison", held="nothing", repeat=1),
    Course(
        name="snapshot held",
        about="60 s, read-only, REPEATABLE READ, from a fresh install on",
        held="snapshot",
        aims=(Aim("cycles_kept", 0.8), Aim("jobs_kept", 0.8)),
    ),
    Course(
        name="snapshot held for ten minutes",
        about="the same for longer",
        held="snapshot",
        seconds=600,
        compared=False,
        repeat=1,
        aims=(Aim("cycles_kept", 0.8), Aim("jobs_kept", 0.8)),
        long=True,
    ),
    Course(
        name="writer idle in transaction",
        about="60 s; it wrote into another table",
        held="writer",
        aims=(Aim("cycles_kept", 0.6), Aim("jobs_kept", 0.6)),
    ),
    Course(
        name="producer idle in transaction",
        about="60 s after it enqueued into the same lane; then it commits",
        held="producer",
        figures=(
            "cycles_first",
            "cycles_last",
            "claim_ms_first",
            "claim_ms_last",
            "backlog_end",
            "late_seconds",
        ),
        aims=(KEEPS_UP, Aim("late_seconds", 3, at_most=True)),
    ),
)

FEW = Content("1,000 ready")
MANY = (
    Content("1,000,000 ready", ready=1_000_000),
    Content("1,000,000 due tomorrow", tomorrow=1_000_000),
    Content("100,000 at infinity", waiting=100_000),
    Content("20 priorities", priorities=20),
)
LOADED, *UNKNOWN = ORDERS

SHAPES = (
    *(
        Contents(
            name=f"content of the queue, batches of {n}",
            about="2 sessions enqueue, claim and ack in turn, so that each content stays as it is; "
            "the time of claim and ack alone counts; all but the first hold 1,000 ready jobs too",
            contents=(FEW, *MANY),
            n=n,
            aims=tuple(
                Aim("claim_ack_per_second", 0.8, contender=one.name, against=FEW.name)
                for one in MANY
            ),
        )
        for n in (10, 100)
    ),
    Statistics(
        name="bulk load of 300,000",
        about="2 sessions, batches of 10; no autovacuum, ANALYZE only where named; sessions opened "
        "before the load have claimed eight times, so that their plans are cached",
        aims=tuple(
            Aim(figure, 0.8, contender=order, against=LOADED)
            for order in UNKNOWN
            for figure in (RATE, "first_second")
        ),
    ),
)

WAKING = Latency(
    name="idle consumer, one job",
    about="enqueue called to job in hand; bare is INSERT with NOTIFY, LISTEN, SELECT; in turn",
    aims=(Aim("p50_ms", 2, against="bare", at_most=True),),
)

CROWDS = tuple(
    Sessions(
        name=f"100 sessions, batches of {n}",
        about="claim and ack from one queue; a job claimed twice would end the run",
        n=n,
        backlog=backlog,
        aims=(
            Aim(RATE, 0.7, contender="100 sessions", against="8 sessions"),
            Aim("errors", 0, contender="100 sessions", at_most=True),
            Aim("double_claims", 0, contender="100 sessions", at_most=True),
        ),
    )
    for n, backlog in ((1, 100_000), (10, 400_000))
)

DRAINING = Drain(
    name="worker, no-op handlers",
    about="one process, 50,000 queued jobs; from the first handler called to the last job settled. "
    "Bare is claim and ack of 1,000 in turn, one connection, no worker. Ours is AsyncWorker, and "
    "Worker, as they come, on asyncio's own loop. pgqueuer 1.6: asyncpg, uvloop, its autovacuum "
    "settings, 5 managers with batches of 10, as in its own benchmark; tuned: 2 managers with "
    "batches of 1,000, the fastest found, for comparison: the aims are against what it documents. "
    "procrastinate 3.10: uvloop, concurrency 30, jobs deleted when done; it gets 5,000 jobs. Both "
    "are as durable as ours",
    subjects=(BARE, ASYNC, BATCHES, THREADS, PGQUEUER, PGQUEUER_TUNED, PROCRASTINATE),
    fewer=(PROCRASTINATE.name,),
    aims=(
        Aim(RATE, 0.5, against=BARE.name),
        Aim(RATE, 20, against=PROCRASTINATE.name),
        *(
            Aim(RATE, bound, contender=one.name, against=PGQUEUER.name)
            for one, bound in ((ASYNC, 2), (BATCHES, 3))
        ),
    ),
)

ENQUEUEING = Enqueueing(
    name="enqueue through the client",
    about="one job a call and transaction; bare is the same statement through psycopg, prepared "
    "and in binary as the client's; in turn, 50 calls each",
    aims=(
        Aim(RATE, 0.8, against="bare"),
        Aim(RATE, 0.8, contender="ours, async", against="bare, async"),
    ),
)

PICKUP = Pickup(
    name="idle worker, one job",
    about="enqueue called to handler begun, in another process; all wait at once, and get jobs in "
    "turn. Bare is INSERT with NOTIFY, LISTEN, SELECT. Ours is AsyncWorker, and Worker, as they "
    "come. pgqueuer 1.6: asyncpg, uvloop, one manager as it comes",
    subjects=(LISTENER, ASYNC, THREADS, PGQUEUER_ONE),
    aims=tuple(
        Aim("p50_ms", bound, contender=one.name, against=other.name, at_most=True)
        for one in (ASYNC, THREADS)
        for other, bound in ((LISTENER, 2), (PGQUEUER_ONE, 1))
    ),
)

MEMORY = Memory(
    name="memory of a worker, a million jobs",
    about="no-op handlers; enqueued by another process in batches of 1,000, so that the backlog "
    "stays below 11,000; means of a hundred samples or more of each tenth of the jobs",
    subjects=(ASYNC, THREADS),
    aims=tuple(
        Aim("rss_grown", 1.05, contender=one.name, at_most=True) for one in (ASYNC, THREADS)
    ),
    long=True,
    repeat=1,
)

WORKERS = (DRAINING, ENQUEUEING, PICKUP, MEMORY)

SCENARIOS: tuple[Scenario, ...] = (*STEADY, *COURSES, *SHAPES, WAKING, *CROWDS, *WORKERS)
