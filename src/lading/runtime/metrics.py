"""Metrics of a running broker: plain counters on the hot path, rendered as Prometheus text on request.

Counting is a dictionary update, so that a request of a few microseconds can afford it. No label ever holds
a header, a key or a payload.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ..model.lazy_dataclass import lazy_dataclass
from .turns import Turn

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Labels = tuple[str, ...]
GaugeRow = tuple[Labels, float] | None

SECONDS_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

"""Rows of a gauge that are read in one turn: less than a millisecond."""


@dataclass(slots=True)
class Counter:
    """A sum that only grows, by label values: ``counter.values[("iggy_tcp",)] += 1``."""

    name: str
    help: str
    labels: Labels
    values: defaultdict[Labels, float] = field(default_factory=lambda: defaultdict(float))

    def families(self) -> Iterable[Metric]:
        """This counter as Prometheus sees it."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in list(self.values.items()):
            family.add_metric(labels, value)
        return (family,)

    def copy(self) -> Counter:
        """Return a copy that no longer counts."""
        return Counter(self.name, self.help, self.labels, self.values.copy())


@dataclass(slots=True)
class Histogram:
    """Counts of durations in seconds, by bound."""

    name: str
    help: str
    bounds: Sequence[float] = SECONDS_BUCKETS
    counts: list[int] = field(init=False)
    sum_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_seconds += seconds

    def families(self) -> Iterable[Metric]:
        """This histogram as Prometheus sees it."""
        from prometheus_client.core import HistogramMetricFamily

        total, buckets = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family = HistogramMetricFamily(self.name, self.help)
        family.add_metric((), buckets=buckets, sum_value=self.sum_seconds)
        return (family,)

    def copy(self) -> Histogram:
        """Return a copy that no longer counts."""
        copy = Histogram(self.name, self.help, self.bounds)
        copy.counts, copy.sum_seconds = self.counts.copy(), self.sum_seconds
        return copy


@lazy_dataclass(frozen=True, slots=True)
class Gauge:
    """A value that is read when metrics are collected: ``read`` returns (label values, value) rows.

    None in place of a row lets others have their turn.
    """

    name: str
    help: str
    labels: Labels
    read: Callable[[], Iterable[GaugeRow]]

    def families(self) -> Iterable[Metric]:
        """This gauge as Prometheus sees it."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for row in self.read():
            if row is not None:
                family.add_metric(*row)
        return (family,)


class Metrics:
    """All metrics of one broker; ``(await snapshot()).render()`` is the text of ``GET /metrics``."""

    def __init__(self) -> None:
        by_endpoint = ("endpoint",)
        self.requests = Counter(
            "lading_requests", "Requests with a response; status is the protocol's own, 0 or 2xx is success.",
            ("endpoint", "command", "status"),
        )  # fmt: skip
        self.received_bytes = Counter("lading_received_bytes", "Bytes of requests.", by_endpoint)
        self.sent_bytes = Counter("lading_sent_bytes", "Bytes of responses sent.", by_endpoint)
        self.messages_in = Counter("lading_messages_in", "Messages received and appended.", by_endpoint)
        self.messages_out = Counter("lading_messages_out", "Messages returned to readers.", by_endpoint)
        self.hidden_out = Counter(
            "lading_hidden_messages", "Messages withheld, or returned with a state other than available.", by_endpoint
        )
        self.dropped = Counter(
            "lading_dropped",
            "Requests and connections dropped without a protocol error, and stubs for messages that cannot be shown.",
            ("endpoint", "reason"),
        )
        self.uncarried = Counter(
            "lading_uncarried_messages",
            "Messages that lost something for readers (the kind of a header, an id) because carriers are off.",
            by_endpoint,
        )
        self.connections: defaultdict[str, int] = defaultdict(int)
        self.busy_s: dict[str, Callable[[], float]] = {}
        """Functions that return the seconds that an endpoint was busy, by the endpoint's name."""
        self.sync_seconds = Histogram("lading_sync_seconds", "Duration of an fsync, from request to completion.")
        self.loop_lag_seconds = Histogram("lading_loop_lag_seconds", "How late the event loop runs its callbacks.")
        self._sources: list[Counter | Histogram | Gauge] = [
            self.requests,
            self.uncarried,
            self.received_bytes,
            self.sent_bytes,
            self.messages_in,
            self.messages_out,
            self.hidden_out,
            self.dropped,
            self.sync_seconds,
            self.loop_lag_seconds,
            Gauge(
                "lading_connections", "Connections open.", by_endpoint,
                lambda: [((name,), float(count)) for name, count in self.connections.items()],
            ),
            Gauge(
                "lading_longest_wait_seconds",
                "For how long the client has waited that waits longest: for a long poll, a group that comes together, "
                "or messages without heartbeats; for anything else, longer than its time-outs, it is a fault.",
                by_endpoint, lambda: [((name,), read()) for name, read in self.busy_s.items()],
            ),
        ]  # fmt: skip

    def add(self, source: Counter | Histogram | Gauge) -> None:
        """Export one more metric."""
        self._sources.append(source)

    async def snapshot(self, clock: Callable[[], float] = time.perf_counter) -> MetricsSnapshot:
        """Return the present values, copied in pieces so that the event loop serves others in between.

        A gauge's ``read`` may therefore not iterate over what changes while it is read.
        """
        frozen: list[Counter | Histogram | Gauge] = []
        turn = Turn(clock=clock)
        for source in self._sources:
            if not isinstance(source, Gauge):
                frozen.append(source.copy())
                continue
            rows: list[tuple[Labels, float]] = []
            for row in source.read():
                if row is not None:
                    rows.append(row)
                await turn.give_way()
            frozen.append(replace(source, read=partial(iter, rows)))
        return MetricsSnapshot(frozen)


@dataclass(frozen=True, slots=True, eq=False)
class MetricsSnapshot:
    """Metrics as they were at one moment."""

    sources: Sequence[Counter | Histogram | Gauge]

    def collect(self) -> Iterable[Metric]:
        """Yield every metric in the form of Prometheus: the protocol of a collector."""
        for source in self.sources:
            yield from source.families()

    def render(self) -> tuple[bytes, str]:
        """Return the text of ``GET /metrics`` and its content type, with the metrics of the process itself.

        Callable from any thread: for thousands of partitions it takes a good part of a second.
        """
        from prometheus_client import CollectorRegistry, ProcessCollector
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        return generate_latest(registry), CONTENT_TYPE_LATEST
