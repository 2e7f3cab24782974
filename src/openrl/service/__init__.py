"""The service: sessions, models, requests, samplers and checkpoints over the queue, the store and a worker."""

from __future__ import annotations

from openrl.service.answers import (
    Accepted,
    Answered,
    Done,
    Failure,
    Page,
    Pending,
    Ready,
    SampleAccepted,
    Saved,
    Value,
)
from openrl.service.paths import check_name, check_path, path_of
from openrl.service.seeds import derive_seed
from openrl.service.service import Service, Stats, now_us
from openrl.service.sessions import SessionInfo
from openrl.service.settings import Settings

__all__ = [
    "Accepted",
    "Answered",
    "Done",
    "Failure",
    "Page",
    "Pending",
    "Ready",
    "SampleAccepted",
    "Saved",
    "Service",
    "SessionInfo",
    "Settings",
    "Stats",
    "Value",
    "check_name",
    "check_path",
    "derive_seed",
    "now_us",
    "path_of",
]
