"""The worker's log. Lines about a job have `job_id`, `queue` and `attempt` as fields too."""

from __future__ import annotations

import logging

from .models import Job

log = logging.getLogger("pgq_sql.worker")


def note(level: int, job: Job, text: str, *values: object) -> None:
    """Log about a job; `text` goes on where its name and its queue's stand."""
    fields = {"job_id": job.job_id, "queue": job.queue, "attempt": job.attempt}
    log.log(level, f"job %s of %s{text}", job.job_id, job.queue, *values, extra=fields)
