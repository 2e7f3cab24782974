"""Numbers for Prometheus. The registry is passed in; labels are few, and never an id."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)


class HttpMetrics:
    """Requests by route, which is the path's pattern, and status."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answered = Counter(
            "openrl_http_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "openrl_http_request_seconds",
            "From a request's first byte to its answer's last; polls are held on purpose.",
            ["route"],
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.open = Gauge("openrl_http_requests_open", "Requests that wait for an answer.", registry=registry)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self.answered.labels(route, method, str(status)).inc()
        self.seconds.labels(route).observe(seconds)


class Counts:
    """What is read when it is asked for: `read` gives gauges by name, `totals` counts since the start by category."""

    def __init__(
        self, read: Callable[[], dict[str, float]], totals: Callable[[], dict[str, int]], registry: CollectorRegistry
    ) -> None:
        self._read = read
        self._totals = totals
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        for name, value in self._read().items():
            yield GaugeMetricFamily(f"openrl_{name}", name.replace("_", " ").capitalize() + ".", value=value)
        totals = dict(self._totals())
        deaths = CounterMetricFamily(
            "openrl_worker_deaths", "Deaths of the worker.", value=totals.pop("worker_deaths", 0)
        )
        answers = CounterMetricFamily(
            "openrl_answers", "Results given, done or failed by whose fault.", labels=["outcome"]
        )
        for outcome, count in sorted(totals.items()):
            answers.add_metric([outcome], count)
        yield from (deaths, answers)
