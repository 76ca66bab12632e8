"""Wrong arguments of the Python API name the nearest thing that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lading import Consumer, Producer, read_arrow
from lading.model.errors import LocalError, SettingError
from tests.client.memory import MemoryTransport

URL = "kafka://127.0.0.1:1"
SETTINGS: Any = {"bootstrap.servers": "h:9092"}
NO_URLS: Any = (["kafka://h"], 7)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Consumer(URL, "t", group_id="g"), "'group_id'; did you mean group?"),
        (lambda: Consumer(URL, "t", auto_offset_reset="earliest"), "did you mean start?"),
        (lambda: Consumer(URL, "t", consumer_timeout_ms=5), "did you mean timeout_s?"),
        (lambda: Consumer(URL, topic="t"), "'topic'; did you mean topics?"),
        (lambda: Consumer(URL), "names no topic"),
        (lambda: Consumer("t", bootstrap_servers="h:9092"), "the first argument is the address"),
        (lambda: Producer(bootstrap_servers="h:9092"), "the first argument is the address"),
        (lambda: Producer(), "Producer: no URL; give one such as 'lading://127.0.0.1:7070'"),
        (lambda: Producer(URL, lingerms=5), "did you mean linger_ms?"),
        (lambda: Producer(URL, user="me"), "did you mean username?"),
        (lambda: Producer(URL, batch_size=5), "did you mean batch_bytes?"),
        (lambda: Producer(SETTINGS), "the first argument, url, is a dict.*'kafka://h:9092'"),
        (lambda: Producer(NO_URLS[0]), "the first argument, url, is a list"),
        (lambda: Producer(MemoryTransport(t=1), tls=True), "with an open transport has no argument"),
        (lambda: read_arrow(URL, "t", filter="a > 1"), "did you mean where?"),
        (lambda: read_arrow(NO_URLS[1], "t"), "the first argument, url, is a int"),
        (lambda: Producer(URL, linger_ms=-1), "linger_ms is None or 0 and more"),
    ],
)
def test_a_wrong_argument_names_what_works(call: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words.replace("?", r"\?")):
        call()


def test_a_path_is_a_url(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="t"):
        read_arrow(tmp_path, "t")  # type: ignore[arg-type]


@pytest.mark.parametrize("timestamp", ["now", 1.5, True, -1])
def test_what_is_no_time_is_refused_with_what_is(timestamp: Any) -> None:
    with (
        Producer(MemoryTransport(t=1)) as producer,
        pytest.raises(LocalError, match=r"timestamp .*: neither a datetime"),
    ):
        producer.send("t", b"", timestamp=timestamp)
