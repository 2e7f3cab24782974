"""Three small post-training jobs in plain torch: SQL and arithmetic by reinforcement, dialogue by supervision.

Each job is a trainer and a sampler that may live in different processes, and a plan that says in which order their
phases run. Nothing here knows of a scheduler: `run_solo` executes a plan in one process, and is the reference that a
time-sliced run has to equal to the last bit.
"""

from examples.three_jobs.jobs import JOBS, Job, job
from examples.three_jobs.plan import Phase, plan
from examples.three_jobs.sampler import Sampler, score
from examples.three_jobs.sampling import Rollouts
from examples.three_jobs.solo import Result, run_solo
from examples.three_jobs.trainer import Experience, Metrics, Trainer

__all__ = [
    "JOBS",
    "Experience",
    "Job",
    "Metrics",
    "Phase",
    "Result",
    "Rollouts",
    "Sampler",
    "Trainer",
    "job",
    "plan",
    "run_solo",
    "score",
]
