"""OpenTelemetry spans of what happened: one trace a turn, with its wait and its hold, and a span for each move.

A span is made when it is over, with the times that the decision log has. Off unless the config says where spans go.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from tsched.commands import Grant
from tsched.errors import MissingExtra
from tsched.journal import Record
from tsched.perfetto import Span, SpanReader

try:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
    from opentelemetry.trace import SpanKind, Status, StatusCode
except ImportError as missing:
    raise MissingExtra("spans need OpenTelemetry: pip install 'tsched[otel]'") from missing

_OTLP = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
# What a client waits for is kept until its turn is over.
MAX_KEPT = 100_000


def exporter_to(place: str) -> SpanExporter:
    """What sends spans to the `console`, or by `otlp` to where OTEL_EXPORTER_OTLP_ENDPOINT says."""
    if place == "console":
        return ConsoleSpanExporter()
    try:
        made: SpanExporter = import_module(_OTLP).OTLPSpanExporter()
    except ImportError as missing:
        raise MissingExtra("spans over OTLP need its exporter: pip install 'tsched[otel]'") from missing
    return made


class Spans:
    """Reads decisions, and exports what is over. Close it, so that nothing is left behind.

    Args:
        started_us: what the scheduler's clock says now, so that its times become those of the day.
    """

    def __init__(self, exporter: SpanExporter, started_us: int) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.name": "tsched"}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tsched")
        self._zero_ns = time.time_ns() - started_us * 1000
        self._reader = SpanReader()
        self._waits: dict[tuple[int, str], Span] = {}

    def take(self, record: Record) -> None:
        leases = {(c.job, c.request): c.lease for c in record.commands if isinstance(c, Grant)}
        self._reader.read(record)
        over, self._reader.done = self._reader.done, []
        for span in over:
            if span.kind == "wait":
                self._waited(span, leases.get((span.job, span.number)))
            elif span.kind == "turn":
                self._turn(span)
            else:
                self._export(f"{span.kind} {span.job}", span, {"tsched.op": span.number})

    def missed(self) -> None:
        self._reader = SpanReader()
        self._waits.clear()

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _waited(self, wait: Span, lease: int | None) -> None:
        """A wait that became a turn is shown with it."""
        if lease is None:
            self._export(f"wait {wait.job}", wait, {"tsched.request": wait.number})
            return
        self._waits[lease, wait.group] = wait
        if len(self._waits) > MAX_KEPT:
            del self._waits[next(iter(self._waits))]

    def _turn(self, hold: Span) -> None:
        wait = self._waits.pop((hold.number, hold.group), None)
        more: dict[str, str | int] = {"tsched.lease": hold.number}
        start_us = hold.start_us if wait is None else wait.start_us
        turn = self._begin(f"turn {hold.job}", hold, start_us, None, more)
        inside = trace.set_span_in_context(turn)
        if wait is not None:
            self._end(self._begin("wait", wait, wait.start_us, inside, {"tsched.request": wait.number}), wait)
        self._end(self._begin("hold", hold, hold.start_us, inside, more), hold)
        self._end(turn, hold)

    def _export(self, name: str, span: Span, more: dict[str, str | int]) -> None:
        self._end(self._begin(name, span, span.start_us, None, more), span)

    def _begin(self, name: str, span: Span, start_us: int, inside: Any, more: dict[str, str | int]) -> trace.Span:
        said: dict[str, str | int] = {"tsched.group": span.group, "tsched.job": span.job, **more}
        said |= {f"tsched.{key}": value for key in ("phase", "node") if (value := getattr(span, key))}
        return self._tracer.start_span(name, inside, SpanKind.INTERNAL, said, start_time=self._at(start_us))

    def _end(self, made: trace.Span, span: Span) -> None:
        if span.note:
            made.set_status(Status(StatusCode.ERROR, span.note))
        made.end(self._at(span.end_us))

    def _at(self, now_us: int) -> int:
        return self._zero_ns + now_us * 1000
