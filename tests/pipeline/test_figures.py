"""Figures for Prometheus while a pipeline follows its source."""

from __future__ import annotations

import socket
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lading.model.errors import LocalError, SettingError
from lading.pipeline.metrics import PipelineMetrics, serve_metrics
from lading.pipeline.run import PipelineProgress, run
from lading.pipeline.settings import PipelineSettings
from lading.settings.settings import Address

from .conftest import PARTITIONS, ROWS, Place
from .flights import messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.turns(2, part=0)
def test_figures_of_a_run_that_follows(spark: SparkSession, place: Place) -> None:
    shown: list[Address] = []
    scraped: list[dict[tuple[str, ...], float]] = []

    def on_progress(now: PipelineProgress) -> None:
        scraped.append(_scrape(shown[0]))
        if now.read == PARTITIONS * ROWS:
            place.transport.send(place.topic, 0, messages(0, ROWS + 100).slice(ROWS))
        if now.read == PARTITIONS * ROWS + 100:
            raise KeyboardInterrupt

    shows = '[metrics]\naddress = "127.0.0.1:0"\n\n[pipeline]\ntrigger = 0.2'
    file = place.write(lambda text: text.replace("[pipeline]", shows))
    begun = time.time()
    report = run(
        lambda: spark, PipelineSettings.load(file), follow=True, on_progress=on_progress, on_metrics=shown.append
    )
    assert report["read"] == PARTITIONS * ROWS + 100
    first, last = scraped[0], scraped[-1]
    assert first["lading_pipeline_messages_total", "read"] == 1500
    assert first["lading_pipeline_lag_messages",] == PARTITIONS * ROWS - 1500
    assert first["lading_pipeline_topic_lag_messages", place.topic] == PARTITIONS * ROWS - 1500
    assert first["lading_pipeline_topic_lag_bytes", place.topic] > PARTITIONS * ROWS - 1500
    assert first["lading_pipeline_topic_lag_seconds", place.topic] > 0
    assert last["lading_pipeline_lag_messages",] == last["lading_pipeline_topic_lag_seconds", place.topic] == 0
    assert last["lading_pipeline_manifests_total",] == last["lading_pipeline_batch_seconds_count",] == 3
    of = {outcome: last["lading_pipeline_messages_total", outcome]
          for outcome in ("read", "good", "routed", "quarantined")}  # fmt: skip
    assert of["read"] == of["good"] + of["routed"] + of["quarantined"] == PARTITIONS * ROWS + 100
    assert {name[1:]: value for name, value in last.items() if name[0] == "lading_pipeline_failures_total"} == {
        (header, reason): report.counts[f"reason.{reason}.{header}".removesuffix(".")]
        for header, reason in (("carrier", "missing_header"), ("delay", "bad_value"), ("", "checksum_mismatch"))
    }
    assert last["lading_pipeline_rows_total", "route 1"] == of["routed"]
    assert begun < last["lading_pipeline_last_publish_timestamp_seconds",] < time.time()
    assert 0 < last["lading_pipeline_batch_seconds_sum",] < 600
    assert last["lading_pipeline_rows_per_second",] > 0
    with pytest.raises(OSError):
        _scrape(shown[0])


def test_an_address_that_is_taken_or_none() -> None:
    said = r"cannot be served at 127.0.0.1:\d+: Address already in use; name another"
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(LocalError, match=said):
        serve_metrics(PipelineMetrics("x"), Address("127.0.0.1", other.getsockname()[1])).__enter__()
    document = {"source": {"from": "x", "topic": "y"}, "good": {"to": "parquet:./z"}, "metrics": {"address": "9464"}}
    with pytest.raises(SettingError, match=r"metrics\.address cannot be '9464': an address is host:port"):
        PipelineSettings(document, Path.cwd(), "x.toml")


def _scrape(address: Address) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, but for the pipeline's, in the order of their names."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label != "pipeline")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("lading_") and "le" not in sample.labels
    }
