"""Numbers for Prometheus: what is, read when it is asked for, and what happened, counted as it does.

The registry is passed in. Labels are few: groups, kinds of moves, methods; never a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import grpc

from tsched.commands import Grant, Quarantine, Revoke
from tsched.errors import MissingExtra
from tsched.journal import Record
from tsched.model import SECOND_US
from tsched.orchestrator.agent_watch import AgentWatch
from tsched.perfetto import Span, SpanReader
from tsched.scheduler import Scheduler

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.metrics_core import GaugeMetricFamily, Metric
except ImportError as missing:
    raise MissingExtra("metrics need prometheus-client: pip install 'tsched[serve]'") from missing

WAIT_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
MOVE_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
COMMIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class Turns:
    """Reads decisions: waits, turns and moves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._spans = SpanReader()
        self._records = Counter("tsched_records", "Decisions taken.", registry=registry)
        self._missed = Counter("tsched_records_missed", "Times that decisions were not counted.", registry=registry)
        self._grants = Counter("tsched_grants", "Turns given.", ["group"], registry=registry)
        self._switches = Counter(
            "tsched_switches", "Turns for which state had to be brought back.", ["group"], registry=registry
        )
        self._revoked = Counter("tsched_revocations", "Turns ended by force.", ["group"], registry=registry)
        self._quarantines = Counter("tsched_quarantines", "Jobs shut out.", registry=registry)
        self._waited = Histogram(
            "tsched_wait_seconds", "From asking to the turn.", ["group"], buckets=WAIT_S, registry=registry
        )
        self._held = Histogram("tsched_hold_seconds", "Turns.", ["group"], buckets=WAIT_S, registry=registry)
        self._moved = Histogram(
            "tsched_move_seconds",
            "Moves of a state, on one node.",
            ["group", "kind", "outcome"],
            buckets=MOVE_S,
            registry=registry,
        )

    def take(self, record: Record) -> None:
        self._records.inc()
        for command in record.commands:
            match command:
                case Grant():
                    self._granted(command)
                case Revoke(groups=groups):
                    for group in groups:
                        self._revoked.labels(group).inc()
                case Quarantine():
                    self._quarantines.inc()
                case _:
                    pass
        self._spans.read(record)
        over, self._spans.done = self._spans.done, []
        for span in over:
            self._over(span)

    def missed(self) -> None:
        self._spans = SpanReader()
        self._missed.inc()

    def _granted(self, grant: Grant) -> None:
        if grant.lease in self._spans.turns:  # its client came back for it
            return
        for group in grant.tokens:
            self._grants.labels(group).inc()
            if grant.restored:
                self._switches.labels(group).inc()

    def _over(self, span: Span) -> None:
        took_s = (span.end_us - span.start_us) / SECOND_US
        if span.kind == "turn":
            self._held.labels(span.group).observe(took_s)
        elif span.kind != "wait":
            self._moved.labels(span.group, span.kind, "failed" if span.note else "done").observe(took_s)
        elif not span.note:
            self._waited.labels(span.group).observe(took_s)


class Calls:
    """Counts calls by how they ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter("tsched_calls", "Calls answered.", ["method", "status"], registry=registry)

    def __call__(self, method: str, status: grpc.StatusCode, told: str) -> None:
        self._calls.labels(method, status.name).inc()


class Commits:
    """Counts commits of the decision log; called in its thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "tsched_log_commit_seconds", "Commits of the decision log.", buckets=COMMIT_S, registry=registry
        )
        self._failed = Counter("tsched_log_failures", "Commits that did not succeed.", registry=registry)

    def __call__(self, took_s: float, failed: bool) -> None:
        if failed:
            self._failed.inc()
        else:
            self._seconds.observe(took_s)


class Now:
    """What is, at the moment in which it is asked for."""

    def __init__(self, scheduler: Scheduler, watch: AgentWatch, registry: CollectorRegistry) -> None:
        self._scheduler, self._watch = scheduler, watch
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        return (*self._by_group(), *self._altogether())

    def _by_group(self) -> Iterator[Metric]:
        scheduler = self._scheduler
        waiters = GaugeMetricFamily("tsched_waiters", "Requests in line.", labels=["group"])
        held = GaugeMetricFamily("tsched_held", "Whether somebody has the turn.", labels=["group"])
        closed = GaugeMetricFamily("tsched_closed", "Whether no new turns are given.", labels=["group"])
        for group in scheduler.groups:
            waiters.add_metric([group], scheduler.waiting(group))
            held.add_metric([group], scheduler.holder(group) is not None)
            closed.add_metric([group], bool(scheduler.lost_nodes(group)))
        yield from (waiters, held, closed)

    def _altogether(self) -> Iterator[Metric]:
        stalled, away = bool(self._scheduler.stalled), len(self._watch.away)
        yield GaugeMetricFamily("tsched_log_stalled", "Whether the log cannot be written just now.", value=stalled)
        yield GaugeMetricFamily("tsched_agents_away", "Agents that do not answer.", value=away)
        yield GaugeMetricFamily("tsched_jobs", "Jobs that are registered.", value=len(self._scheduler.jobs))
