"""The words that functions take and answer."""

from __future__ import annotations

from typing import Literal, TypeAlias

# Taken.
Backoff: TypeAlias = Literal["fixed", "linear", "exponential"]
Capability: TypeAlias = Literal["producer", "worker", "observer", "admin"]
DedupMode: TypeAlias = Literal["ignore", "replace"]
State: TypeAlias = Literal[
    "ready", "scheduled", "suspended", "running", "dead", "done", "cancelled"
]

# Answered to who makes jobs.
Made: TypeAlias = Literal["inserted", "existing", "replaced"]

# Answered to who has a lease.
Acked: TypeAlias = Literal["acked", "lost", "gone"]
Dead: TypeAlias = Literal["dead", "lost", "gone"]
Extended: TypeAlias = Literal["extended", "lost", "gone"]
Released: TypeAlias = Literal["released", "lost", "gone"]
Retried: TypeAlias = Literal["retried", "dead", "lost", "gone"]

# Answered to who controls a job.
Cancelled: TypeAlias = Literal["cancelled", "gone"]
Promoted: TypeAlias = Literal["promoted", "ready", "running", "suspended", "gone"]
Reprioritized: TypeAlias = Literal[
    "reprioritized", "ready", "scheduled", "suspended", "running", "gone"
]
Resumed: TypeAlias = Literal["resumed", "ready", "scheduled", "running", "gone"]
Suspended: TypeAlias = Literal["suspended", "running", "gone"]

# Answered to who looks.
Severity: TypeAlias = Literal["error", "warning", "info"]
