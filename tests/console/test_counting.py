"""Counting in a directory, by several threads: the same count as one after the other, and an end when the page goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading import testing
from lading.client.producer import Producer
from lading.client.reading import Selection
from lading.console import counting
from lading.console.counting import count_matches
from lading.console.source import ConsoleSource
from lading.transports.lading.transport import LadingTransport

MESSAGES = 1000
MATCHING = sum(number % 7 == 3 for number in range(MESSAGES))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data = tmp_path_factory.mktemp("counted") / "data"
    with testing.broker(data_dir=data) as broker:
        admin = LadingTransport(broker.url)
        admin.create_topic("counted", 3)
        admin.close()
        with Producer(broker.url) as producer:
            for number in range(MESSAGES):
                producer.send("counted", b"x", partition=number % 3 % 2, headers={"n": number % 7})
    yield data


@pytest.fixture(autouse=True)
def in_small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "RANGE_OFFSETS", 17)
    monkeypatch.setattr(counting, "PROGRESS_S", -1.0)


def selection(where: str = "n = 3") -> Selection:
    return Selection.parse("offset", where, "available", verify=False, on_loss="skip")


@pytest.mark.turns(2)
@pytest.mark.parametrize("threads", [1, 4])
def test_a_directory_is_counted(directory: Path, threads: int) -> None:
    told = list(count_matches(ConsoleSource(str(directory)), "counted", None, selection(), threads))
    assert (told[-1]["found"], told[-1]["looked_at"], told[-1]["end"]) == (MATCHING, MESSAGES, True)
    assert [one["looked_at"] for one in told] == sorted(one["looked_at"] for one in told)
    assert {one["total"] for one in told} == {MESSAGES}
    # one partition, and one without messages
    for partition, found in ((1, sum(n % 7 == 3 and n % 3 == 1 for n in range(MESSAGES))), (2, 0)):
        told = list(count_matches(ConsoleSource(str(directory)), "counted", partition, selection(), threads))
        assert told[-1]["found"] == found


def test_threads_end_when_the_page_is_left(directory: Path) -> None:
    counted = count_matches(ConsoleSource(str(directory)), "counted", None, selection(), 4)
    next(counted)
    counted.close()  # type: ignore[attr-defined]
    assert [one.name for one in threading.enumerate() if one.name.startswith("lading-console-count")] == []
