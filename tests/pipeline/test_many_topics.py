"""A pipeline over several topics: one contract, one good table, and topics that are created while it runs."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from lading import testing
from lading.client.bulk import write_arrow
from lading.model.errors import SettingError
from lading.pipeline.check import check
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.run import run
from lading.pipeline.settings import PipelineSettings
from lading.tables.local import LocalExecutor
from lading.transports.topics import UnknownTopic

from .direct import no_session
from .flights import table

DEADLINE_S = 30.0
TOML = """
[pipeline]
trigger = "100ms"

[source]
from = "{url}"
{topics}

[headers]
n = "bigint required"

[good]
to = "parquet:./good"
columns = ["topic", "partition", "offset", "n"]
"""


def send(url: str, topic: str, rows: int) -> None:
    write_arrow(pa.table({"payload": [b"x"] * rows, "n": list(range(rows))}), url, topic, headers=["n"])


def pipeline(served: testing.BrokerProcess, base: Path, topics: str) -> PipelineSettings:
    file = base / "p.toml"
    file.write_text(TOML.format(url=served.url, topics=topics))
    return PipelineSettings.load(file)


def rows_of(directory: Path) -> Counter[str]:
    found = table(directory).to_pylist()
    assert len({(row["topic"], row["partition"], row["offset"]) for row in found}) == len(found)
    return Counter(row["topic"] for row in found)


def test_topics_that_match_are_read_and_those_created_later_too(served: testing.BrokerProcess, tmp_path: Path) -> None:
    for topic, rows in {"p.one": 30, "p.two": 20, "q.one": 5}.items():
        send(served.url, topic, rows)
    write_arrow(pa.table({"payload": [b"bad"]}), served.url, "p.two", headers=[])
    settings = pipeline(served, tmp_path, "topic_pattern = 'p[.].*'")
    assert check(settings, no_session) == []
    executor = LocalExecutor(2)
    try:
        report = run(no_session, settings, executor=executor)
        assert (report["read"], report["good"], report["quarantined"]) == (51, 50, 1)
        assert rows_of(tmp_path / "good") == {"one": 30, "two": 20}
        stop = threading.Event()
        reports = []
        thread = threading.Thread(
            target=lambda: reports.append(
                run(no_session, settings, executor=executor, follow=True, stopped=stop.is_set)
            )
        )
        thread.start()
        send(served.url, "p.three", 40)
        deadline = time.monotonic() + DEADLINE_S
        while rows_of(tmp_path / "good")["three"] < 40 and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()
        thread.join(DEADLINE_S)
        assert rows_of(tmp_path / "good") == {"one": 30, "two": 20, "three": 40}
        # a quarantined message goes back to the server of the source that matches its topic
        redriven = Quarantine(settings).redrive(dry_run=True)
        assert redriven.sent == 1
    finally:
        executor.close()


def test_topics_by_name(served: testing.BrokerProcess, tmp_path: Path) -> None:
    for topic in ("names.one", "names.two", "names.three"):
        send(served.url, topic, 4)
    executor = LocalExecutor(1)
    try:
        settings = pipeline(served, tmp_path, 'topics = ["names.one", "names.two"]')
        assert run(no_session, settings, executor=executor)["good"] == 8
        settings = pipeline(served, tmp_path, 'topics = ["names.one", "names.two", "names.three"]')
        assert run(no_session, settings, executor=executor)["good"] == 4
    finally:
        executor.close()


def test_each_topic_has_a_table_of_its_own(served: testing.BrokerProcess, tmp_path: Path) -> None:
    for topic, rows in {"own.one": 6, "own.two": 4}.items():
        send(served.url, topic, rows)
    write_arrow(pa.table({"payload": [b"bad"]}), served.url, "own.two", headers=[])
    raw = pipeline(served, tmp_path, "topic_pattern = 'own[.].*'").raw
    settings = PipelineSettings(
        {
            **raw,
            "good": {"to": "parquet:./lake/{topic}", "columns": ["topic", "partition", "offset"]},
            "route": [{"where": "n < 2", "to": "delta:./few/{topic}", "columns": ["topic", "offset", "n"]}],
        },
        tmp_path,
        "own.toml",
    )
    assert check(settings, no_session) == []
    executor = LocalExecutor(1)
    try:
        report = run(no_session, settings, executor=executor)
        assert (report["good"], report["routed"], report["quarantined"]) == (6, 4, 1)
        send(served.url, "own.three", 5)
        assert run(no_session, settings, executor=executor)["read"] == 5
        assert check(settings, no_session) == []
    finally:
        executor.close()
    tables = {path.name: rows_of(path).total() for path in (tmp_path / "lake").iterdir() if path.name != "_lading"}
    assert tables == {"own.one": 4, "own.two": 2, "own.three": 3}
    assert {path.name for path in (tmp_path / "few").iterdir()} == {"own.one", "own.two", "own.three"}
    assert table(tmp_path / "lake_quarantine").num_rows == 1
    for change in ({"quarantine": {"to": "parquet:./q/{topic}"}}, {"step": [{"sql": "SELECT * FROM messages"}]}):
        refused = PipelineSettings({**settings.raw, **change}, tmp_path, "own.toml")
        assert "without {topic}" in check(refused, no_session)[0].sentence


@pytest.mark.parametrize(
    ("topics", "sentence"),
    [
        ("topic_pattern = 'p['", "source.topic_pattern 'p[': invalid regular expression"),
        ("topic = 'p'\ntopics = ['q']", "source has topic and topics, which both select topics"),
        ("", "source.topic is missing"),
        ("topics = []", "source.topics cannot be []"),
    ],
)
def test_what_selects_no_topics_is_refused(
    served: testing.BrokerProcess, tmp_path: Path, topics: str, sentence: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(sentence)):
        pipeline(served, tmp_path, topics)


def test_a_pattern_that_matches_nothing_names_what_exists(served: testing.BrokerProcess, tmp_path: Path) -> None:
    send(served.url, "exists", 1)
    settings = pipeline(served, tmp_path, "topic_pattern = 'nothing.*'")
    (problem,) = check(settings, no_session)
    assert "matches no topic at" in problem.sentence and "there are" in problem.sentence
    with pytest.raises(UnknownTopic, match="matches no topic"):
        run(no_session, settings, executor=LocalExecutor(1))
    assert not (tmp_path / "good").exists()


def test_a_target_that_the_pattern_matches_is_refused(served: testing.BrokerProcess, tmp_path: Path) -> None:
    send(served.url, "loop.one", 1)
    settings = pipeline(served, tmp_path, "topic_pattern = 'loop[.].*'")
    settings = PipelineSettings({**settings.raw, "quarantine": {"topic": "loop.bad"}}, settings.base, settings.name)
    with pytest.raises(SettingError, match="would read its own copies again and again"):
        run(no_session, settings, executor=LocalExecutor(1))
