"""What is logged: decisions as one JSON object a line on stderr, with the ids of job, group, lease and request.

`told` is pure: it says which lines a decision is worth. The rest sends them.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import msgspec
import structlog

from tsched import commands, events
from tsched.journal import Record
from tsched.model import SECOND_US

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# So many lines a second about calls that were refused; whoever is flooded with calls need not be with lines too.
REFUSALS_PER_S = 10

Line = tuple[int, str, dict[str, Any]]

_BY_RECORDS = ("event='lease_revoked'", "event='job_quarantined'")


def configure(level: str) -> None:
    """Send structlog's lines, and those of libraries, from `level` up to stderr as JSON."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[ThroughStructlog()], level=max(LEVELS[level], logging.WARNING), force=True)


def _dumps(value: Any, **_: Any) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()


class ThroughStructlog(logging.Handler):
    """Gives the lines of the standard library's logging the same form, but for those that records tell in full."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not text.startswith(_BY_RECORDS):
            structlog.get_logger().log(record.levelno, text, logger=record.name, exc_info=record.exc_info)


class Decisions:
    """Reads decisions, and logs those that are worth a line."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        self._jobs: dict[int, str] = {}

    def take(self, record: Record) -> None:
        for level, name, said in told(record):
            lease = said.get("lease")
            if name == "granted":
                self._jobs[said["lease"]] = said["job"]
            elif lease in self._jobs and "job" not in said:
                said["job"] = self._jobs[lease]
                if name in ("yielded", "revoked") and not said["groups"]:
                    del self._jobs[lease]
            self._log.log(level, name, seq=record.seq, **said)

    def missed(self) -> None:
        self._jobs.clear()
        self._log.warning("decisions_not_logged")


class Refusals:
    """Logs calls that were refused; so many a second, and how many more there were.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = structlog.get_logger()
        self._clock = clock
        self._since = clock()
        self._lines = self._left_out = 0

    def __call__(self, method: str, status: grpc.StatusCode, told: str) -> None:
        if status in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
            return
        now = self._clock()
        if now - self._since >= 1:
            if self._left_out:
                self._log.warning("calls_refused", count=self._left_out)
            self._since, self._lines, self._left_out = now, 0, 0
        if self._lines >= REFUSALS_PER_S:
            self._left_out += 1
            return
        self._lines += 1
        self._log.info("call_refused", method=method, status=status.name, detail=told)


def told(record: Record) -> Iterator[Line]:
    """The lines that a decision is worth."""
    if any(isinstance(command, commands.Ignore) for command in record.commands):
        return
    line = _event(record.event)
    if line is not None:
        yield line
    for command in record.commands:
        line = _command(command)
        if line is not None:
            yield line


def _event(event: events.Event) -> Line | None:
    match event:
        case events.PhaseRequested(client, request, job, groups, phase):
            return logging.DEBUG, "requested", _ids(job, groups, client=client, request=request, phase=phase)
        case events.RequestCancelled(client, request):
            return logging.DEBUG, "withdrawn", {"client": client, "request": request}
        case events.PhaseYielded(lease, groups):
            return logging.INFO, "yielded", {"lease": lease, "groups": list(groups)}
        case events.MoveFailed(op, node, reason):
            return logging.WARNING, "move_failed", {"op": op, "node": node, "reason": reason}
        case events.NodeLost(group, node, reason):
            return logging.WARNING, "node_lost", {"group": group, "node": node, "reason": reason}
        case events.NodeReturned(group, node):
            return logging.INFO, "node_returned", {"group": group, "node": node}
        case events.EvictionForced(group, job):
            return logging.WARNING, "eviction_forced", {"group": group, "job": job}
        case events.JobAdded(job):
            return logging.INFO, "job_added", {"job": job.name, "owner": job.owner}
        case events.JobLeft(job):
            return logging.INFO, "job_left", {"job": job}
        case events.JobLost(job, reason):
            return logging.WARNING, "job_lost", {"job": job, "reason": reason}
        case events.JobReadmitted(job):
            return logging.INFO, "job_readmitted", {"job": job}
        case events.Restarted():
            return logging.INFO, "restarted", {}
        case _:
            return None


def _command(command: commands.Command) -> Line | None:
    match command:
        case commands.Grant():
            return logging.INFO, "granted", _granted(command)
        case commands.Refuse(client, request, code, detail):
            return logging.INFO, "refused", {"client": client, "request": request, "code": code, "detail": detail}
        case commands.Revoke(lease, groups, reason):
            return logging.WARNING, "revoked", {"lease": lease, "groups": list(groups), "reason": reason}
        case commands.Suspend(lease):
            return logging.INFO, "suspended", {"lease": lease}
        case commands.Quarantine(job, reason):
            return logging.WARNING, "quarantined", {"job": job, "reason": reason}
        case commands.Park() | commands.Restore() | commands.Discard():
            kind = type(command).__name__.lower()
            said = {"job": command.job, "group": command.group, "op": command.op, "token": command.token}
            return logging.DEBUG, f"{kind}_begun", said
        case _:
            return None


def _granted(grant: commands.Grant) -> dict[str, Any]:
    return _ids(
        grant.job,
        grant.tokens,
        lease=grant.lease,
        tokens=dict(grant.tokens),
        client=grant.client,
        request=grant.request,
        phase=grant.phase,
        waited_s=grant.waited_us / SECOND_US,
        restored=grant.restored,
    )


def _ids(job: str, groups: Any, **more: Any) -> dict[str, Any]:
    return {"job": job, "groups": list(groups), **more}
