"""Alerts and the dashboard ask for metrics that a broker has, with labels that it gives them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata
from prometheus_client.parser import text_string_to_metric_families

from lading import Producer, testing

ROOT = Path(__file__).parents[2]
RULES = ROOT / "packaging" / "prometheus" / "lading.rules.yml"
ALERTS = Path(__file__).parent / "alerts.promtool.yml"
PAGE = ROOT / "docs" / "reference" / "metrics.md"
DASHBOARD = ROOT / "packaging" / "grafana" / "lading.json"
GROUP = 'a"b\\c\nd é'
"""A name that needs escapes in a label."""
LAG = "lading_group_lag"
PARTITION = TopicPartition("t", 0)
OF_PROMETHEUS = {"up"}
ADDED_LABELS = {"job", "instance", "le"}
_SELECTOR = re.compile(r"\b((?:lading|process)_\w+)(?:\{([^}]*)\})?")


@pytest.fixture(scope="module")
def text() -> str:
    """What a broker shows that has a message, and a group that has not read it."""
    with testing.broker() as broker:
        with Producer(f"lading://{broker.endpoints['admin']}") as producer:
            producer.send("t", b"x")
        consumer = KafkaConsumer(bootstrap_servers=broker.endpoints["kafka"], group_id=GROUP, enable_auto_commit=False)
        consumer.assign([PARTITION])
        consumer.commit({PARTITION: OffsetAndMetadata(0, "", -1)})
        consumer.close()
        return httpx.get(f"http://{broker.endpoints['admin']}/metrics").text


@pytest.fixture(scope="module")
def metrics(text: str) -> dict[str, set[str]]:
    """Labels by the name of a sample; those without a sample yet stand in the reference."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        found.setdefault(family.name + ("_total" if family.type == "counter" else ""), set())
        if family.type == "histogram":
            found.setdefault(f"{family.name}_bucket", set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    for name, labels in _rows():
        if name in found:
            found[name].update(labels)
    # another process has these: tests/mirror/test_service.py
    found.update((name, set(labels)) for name, labels in _parse_rows(PAGE.read_text().partition("## Of mirrors")[2]))
    return found


def _rows() -> Iterator[tuple[str, list[str]]]:
    """Name and labels of each metric of the broker in the reference."""
    yield from _parse_rows(PAGE.read_text().partition("## Of a pipeline")[0])


def _parse_rows(text: str) -> Iterator[tuple[str, list[str]]]:
    for line in text.splitlines():
        if line.startswith("| `lading_"):
            _, name, *cells = line.split("|")
            yield name.strip(" `"), re.findall(r"\w+", cells[1]) if len(cells) > 3 else []


def test_the_reference_has_every_metric_and_no_other(text: str) -> None:
    """It is written from the metrics that a broker has before it serves; these are those that it shows."""
    shown = {line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE lading_")}
    assert {name.removesuffix("_total") for name, _ in _rows()} == shown


def _expressions() -> list[str]:
    rules = re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.MULTILINE)
    dashboard = json.loads(DASHBOARD.read_text())
    return rules + [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("expression", _expressions())
def test_every_expression_asks_for_what_there_is(metrics: dict[str, set[str]], expression: str) -> None:
    asked = _SELECTOR.findall(expression)
    assert asked or re.match(r"up\b", expression)
    for name, selected in asked:
        assert name in metrics
        labels = set(re.findall(r"(\w+)=", selected)) - ADDED_LABELS
        assert labels <= metrics[name]
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", group)}
    assert grouped - ADDED_LABELS <= set().union(*(metrics[name] for name, _ in asked))


def test_rules_tell_labels_that_their_metrics_have(metrics: dict[str, set[str]]) -> None:
    rules = RULES.read_text().split("- alert: ")[1:]
    assert len(rules) == len(re.findall(r"^ +expr:", RULES.read_text(), re.MULTILINE)) > 10
    for rule in rules:
        name = (_SELECTOR.search(rule) or re.search(r"(up)", rule))[1]  # type: ignore[index]
        assert set(re.findall(r"\$labels\.(\w+)", rule)) <= metrics.get(name, set()) | ADDED_LABELS
        assert {"summary:", "description:", "severity:"} <= set(re.findall(r"\w+:", rule))


def run_promtool(*arguments: str | Path, text: str = "") -> str:
    """Return what Prometheus' own tool says on standard error, where it does not refuse."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    done = subprocess.run(
        [promtool, *arguments], input=text, capture_output=True, text=True, timeout=60, cwd=ALERTS.parent, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_prometheus_takes_the_rules() -> None:
    run_promtool("check", "rules", RULES)


def test_alerts_fire_when_they_should_and_say_what_people_can_read() -> None:
    run_promtool("test", "rules", ALERTS)


def test_prometheus_takes_the_metrics(text: str) -> None:
    lags = [one for family in text_string_to_metric_families(text) for one in family.samples if one.name == LAG]
    assert [(one.labels["group"], one.value) for one in lags] == [(GROUP, 1)]
    assert run_promtool("check", "metrics", text=text) == ""


def test_panels_of_the_dashboard_lie_side_by_side() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
