"""A job queue in PostgreSQL: the binding for Python."""

from ._handling import DeadLetter, Retry, RunningJob, Snooze
from .client import Client
from .errors import (
    Closed,
    InvalidArgument,
    InvalidJson,
    InvalidState,
    JobNotFound,
    LeaseLost,
    NotAllowed,
    PayloadTooLarge,
    PgqError,
    QueueNotFound,
    UnknownOption,
    VersionMismatch,
)
from .models import Enqueued, Extension, Heartbeat, Job, Outcome, Swept
from .worker import Report, Worker

__all__ = [
    "Client",
    "Closed",
    "DeadLetter",
    "Enqueued",
    "Extension",
    "Heartbeat",
    "InvalidArgument",
    "InvalidJson",
    "InvalidState",
    "Job",
    "JobNotFound",
    "LeaseLost",
    "NotAllowed",
    "Outcome",
    "PayloadTooLarge",
    "PgqError",
    "QueueNotFound",
    "Report",
    "Retry",
    "RunningJob",
    "Snooze",
    "Swept",
    "UnknownOption",
    "VersionMismatch",
    "Worker",
]
