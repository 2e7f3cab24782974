"""The work queue of models and samplers, pure; see `queue` for what it is and `line` for the order within a model."""

from __future__ import annotations

from openrl.queue.draws import Waiting
from openrl.queue.line import Limits, Line, Unit
from openrl.queue.queue import Queue
from openrl.queue.steps import (
    Answered,
    BringBack,
    Draw,
    Drop,
    Effect,
    Failed,
    Lease,
    Lost,
    Persist,
    Persisted,
    Run,
    Step,
)

__all__ = [
    "Answered",
    "BringBack",
    "Draw",
    "Drop",
    "Effect",
    "Failed",
    "Lease",
    "Limits",
    "Line",
    "Lost",
    "Persist",
    "Persisted",
    "Queue",
    "Run",
    "Step",
    "Unit",
    "Waiting",
]
