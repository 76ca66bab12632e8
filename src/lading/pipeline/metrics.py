"""Metrics of a running pipeline for Prometheus, on an HTTP server of their own (docs/reference/metrics.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..runtime.metrics import Counter, Gauge, Histogram
from ..runtime.status_server import METRICS, render_metrics, serve_status
from ..settings.settings import Address
from ..tables.formats.manifest import Manifest
from ..tables.plan.lag import TopicLag
from .reasons import expectation_of, reason_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

BATCH_SECONDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
OUTCOMES = ("read", "passed", "good", "routed", "quarantined")


class PipelineMetrics:
    """Progress of a run; PipelineWatch sets ``lags`` and ``published_us``."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = (pipeline,)
        self.published_us = 0
        self.lags: Mapping[str, TopicLag] = {}
        self._rows_per_s = 0.0
        of = ("pipeline",)
        self._messages = Counter(
            "lading_pipeline_messages",
            "Messages of published batches by what became of them: read, passed, good, routed, quarantined.",
            (*of, "outcome"),
        )
        self._failures = Counter(
            "lading_pipeline_failures",
            "Messages put into quarantine; header is that of the contract, or the expectation or route.",
            (*of, "reason", "header"),
        )
        self._violations = Counter(
            "lading_pipeline_expectation_violations", "Messages for which an expectation did not hold.",
            (*of, "expectation"),
        )  # fmt: skip
        self._rows = Counter(
            "lading_pipeline_rows", "Rows by destination: good, or route N.", (*of, "destination")
        )  # fmt: skip
        self._manifests = Counter("lading_pipeline_manifests", "Batches published.", of)
        self._files = Counter("lading_pipeline_files", "Files published.", of)
        self._bytes = Counter("lading_pipeline_file_bytes", "Bytes of published files.", of)
        self._seconds = Histogram(
            "lading_pipeline_batch_seconds", "Time from planning a batch to its manifest.", BATCH_SECONDS
        )
        self._sources: list[Counter | Histogram | Gauge] = [
            self._messages, self._failures, self._violations, self._rows, self._manifests, self._files, self._bytes,
            self._seconds,
            Gauge("lading_pipeline_lag_messages", "Source messages not yet processed, hidden ones included.", of,
                  lambda: [(self._pipeline, float(sum(lag.messages for lag in self.lags.values())))]),
            Gauge("lading_pipeline_topic_lag_messages", "Messages of a topic not yet processed.", (*of, "topic"),
                  lambda: self._by_topic(lambda lag: lag.messages)),
            Gauge("lading_pipeline_topic_lag_bytes", "Their bytes, by the topic's average.",
                  (*of, "topic"), lambda: self._by_topic(lambda lag: lag.size_bytes)),
            Gauge("lading_pipeline_topic_lag_seconds", "Age of the oldest message of a topic not yet processed.",
                  (*of, "topic"), lambda: self._by_topic(lambda lag: lag.seconds)),
            Gauge("lading_pipeline_rows_per_second", "Messages read per second in the last batch.", of,
                  lambda: [(self._pipeline, self._rows_per_s)]),
            Gauge("lading_pipeline_last_publish_timestamp_seconds", "When the last batch was published, since 1970.",
                  of, lambda: [(self._pipeline, self.published_us / 1e6)] if self.published_us else []),
        ]  # fmt: skip
        for outcome in ("read", "good", "routed", "quarantined"):
            self._messages.values[(pipeline, outcome)] += 0
        self._manifests.values[self._pipeline] += 0

    def _by_topic(self, read: Callable[[TopicLag], float | None]) -> list[tuple[tuple[str, ...], float]]:
        values = ((topic, read(lag)) for topic, lag in self.lags.items())
        return [((*self._pipeline, topic), float(value)) for topic, value in values if value is not None]

    def add(self, manifest: Manifest, seconds: float) -> None:
        """Count one published batch that took ``seconds``."""
        counts = manifest.counts
        for outcome in OUTCOMES:
            if outcome in counts:
                self._messages.values[(*self._pipeline, outcome)] += max(0, counts[outcome])
        for name, count in counts.items():
            if (why := reason_of(name)) is not None:
                self._failures.values[(*self._pipeline, *why)] += count
            elif (expectation := expectation_of(name)) is not None:
                self._violations.values[(*self._pipeline, expectation)] += count
            elif name.startswith("to."):
                self._rows.values[(*self._pipeline, name.removeprefix("to."))] += max(0, count)
        self._manifests.values[self._pipeline] += 1
        self._files.values[self._pipeline] += len(manifest.files)
        self._bytes.values[self._pipeline] += sum(file.size_bytes for file in manifest.files)
        # one that only moves messages to quarantine read none
        if "read" in counts:
            self._seconds.observe(seconds)
            self._rows_per_s = counts["read"] / seconds if seconds else 0.0
        self.published_us = manifest.written_us

    def collect(self) -> Iterable[Metric]:
        """Yield every metric in the form of Prometheus: the protocol of a collector."""
        for source in self._sources:
            yield from source.families()


@contextmanager
def serve_metrics(figures: PipelineMetrics, address: Address) -> Iterator[Address]:
    """Serve ``GET /metrics`` at ``address`` until the end of the block; give the address with its actual port.

    Raises LocalError if the address cannot be bound.
    """
    with serve_status(address, "a Lading pipeline", {METRICS: lambda: render_metrics(figures)}) as bound:
        yield bound
