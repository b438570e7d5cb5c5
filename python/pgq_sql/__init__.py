"""A job queue in PostgreSQL: the binding for Python."""

from ._consumers import BatchConsumer, Consumer, Handlers
from ._jobs import Batch, Lost, RunningJob
from ._joining import AsyncJoinable, Joinable
from ._settlements import DeadLetter, Retry, Snooze
from ._tasks import AsyncBatch, AsyncHandlers, AsyncRunningJob
from .client import AsyncClient, Client
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
from .models import (
    Enqueued,
    Extension,
    Finding,
    Heartbeat,
    Job,
    JobCount,
    JobState,
    Letter,
    Outcome,
    QueueState,
    Swept,
)
from .worker import AsyncWorker, Report, Worker

__all__ = [
    "AsyncBatch",
    "AsyncClient",
    "AsyncHandlers",
    "AsyncJoinable",
    "AsyncRunningJob",
    "AsyncWorker",
    "Batch",
    "BatchConsumer",
    "Client",
    "Closed",
    "Consumer",
    "DeadLetter",
    "Enqueued",
    "Extension",
    "Finding",
    "Handlers",
    "Heartbeat",
    "InvalidArgument",
    "InvalidJson",
    "InvalidState",
    "Job",
    "JobCount",
    "JobNotFound",
    "JobState",
    "Joinable",
    "LeaseLost",
    "Letter",
    "Lost",
    "NotAllowed",
    "Outcome",
    "PayloadTooLarge",
    "PgqError",
    "QueueNotFound",
    "QueueState",
    "Report",
    "Retry",
    "RunningJob",
    "Snooze",
    "Swept",
    "UnknownOption",
    "VersionMismatch",
    "Worker",
]
