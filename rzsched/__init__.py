"""A job scheduler on Redis: at least once, never lost, and safe when twice."""

from rzsched.aio import AsyncClient
from rzsched.answers import DeadJob, QueueStats, WorkerInfo
from rzsched.app import App, Job, Task
from rzsched.client import Client
from rzsched.context import Context
from rzsched.cron_answers import CronRun, CronStatus
from rzsched.errors import (
    ConnectionFailed,
    CronNotFound,
    InvalidCron,
    InvalidName,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobTimeout,
    NotDurable,
    PayloadError,
    PayloadTooLarge,
    RzschedError,
    ServerUnsuitable,
    UnknownTask,
)
from rzsched.hooks import JobEvent
from rzsched.job import JobId, JobSpec, JobStatus, State
from rzsched.retry import Backoff, Dead, Retry

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncClient",
    "Backoff",
    "Client",
    "ConnectionFailed",
    "Context",
    "CronNotFound",
    "CronRun",
    "CronStatus",
    "Dead",
    "DeadJob",
    "InvalidCron",
    "InvalidName",
    "Job",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "JobId",
    "JobNotFound",
    "JobSpec",
    "JobStatus",
    "JobTimeout",
    "NotDurable",
    "PayloadError",
    "PayloadTooLarge",
    "QueueStats",
    "Retry",
    "RzschedError",
    "ServerUnsuitable",
    "State",
    "Task",
    "UnknownTask",
    "WorkerInfo",
]
