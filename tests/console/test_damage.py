"""Damaged messages: told wherever messages are read, with what is intact beside the sentence."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import Iterator, MutableMapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from typer.testing import CliRunner

from lading import testing
from lading.cli.app import build_app
from lading.client.consumer import Consumer
from lading.client.producer import Producer
from lading.console import counting
from lading.console.settings import ConsoleSettings
from lading.console.source import ConsoleSource
from lading.transports.lading.transport import LadingTransport

from .conftest import TestClient, client
from .test_browser import browser, console, end, start_console
from .test_console import ask, documents, offsets

__all__ = ["browser", "console"]

LOST = range(400, 500)
LOST_SENTENCE = "100 messages could not be read: offsets 400 to 499 are damaged"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory where 100 messages of ``one`` are broken in the middle, and ten in partition 1 of ``two``."""
    data = tmp_path_factory.mktemp("broken") / "data"
    with testing.broker(data_dir=data) as broker:
        with closing(LadingTransport(broker.url)) as admin:
            admin.create_topic("two", 2)
        # a hundred messages are one block, however long they take: what is broken is a block
        with Producer(broker.url, linger_ms=None) as producer:
            for number in range(1000):
                producer.send("one", b"one %d" % number, headers={"n": number})
                if number % 100 == 99:
                    producer.flush()
            for number in range(40):
                producer.send("two", b"two %d" % number, partition=number // 20, headers={"n": number})
                if number % 10 == 9:
                    producer.flush()
    for place, text in (("one", b"one 450"), ("two", b"two 25")):
        (log,) = [path for path in data.glob("topics/*/*/*.log") if text in path.read_bytes()]
        raw = bytearray(log.read_bytes())
        at = raw.index(text)
        raw[at : at + 4] = bytes(byte ^ 0xFF for byte in raw[at : at + 4])
        log.write_bytes(raw)
        assert place.encode() in text
    return data


@pytest.fixture(scope="module", params=["broker", "directory"])
def url(request: pytest.FixtureRequest, broken: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "directory":
        yield str(broken)
        return
    data = tmp_path_factory.mktemp("served") / "data"
    shutil.copytree(broken, data)
    with testing.broker(data_dir=data) as broker:
        yield broker.url


@pytest.fixture
def page(url: str, listener: socket.socket) -> TestClient:
    """A console that has met nothing yet."""
    return client(ConsoleSettings(url), listener)


@pytest.mark.turns(2)
def test_pages_tell_of_what_they_passed_over_and_nothing_else(page: TestClient) -> None:
    for order, at in (("new", ""), ("old", "350")):
        intact = [number for number in range(1000) if number not in LOST]
        wanted = intact[::-1] if order == "new" else [number for number in intact if number >= 350]
        seen: list[int] = []
        cursor: str | None = at
        told = since = None
        while cursor is not None:
            query = {"topic": "one", "order": order, "count": 70, "at": cursor, "since": since or ""}
            found = documents(page, "/api/messages", **query)
            seen += offsets(found)
            end = found[-1]
            cursor, since = end["next"], end["since"]
            # as soon as a message behind the damage is shown, and on all pages after it
            is_past = seen[-1] < LOST.start if order == "new" else seen[-1] >= LOST.stop
            assert (end["lost"] == LOST_SENTENCE) >= is_past
            told = end["lost"]
        assert (seen, told) == (wanted, LOST_SENTENCE)
    assert documents(page, "/api/messages", topic="one", at="1000", count=70)[-1]["lost"] is None


def test_the_last_ones_lost_nothing_before_them(page: TestClient) -> None:
    for count, lost in ((400, None), (550, "50 messages could not be read: offsets 450 to 499 are damaged")):
        end = documents(page, "/api/messages", topic="one", at=f"-{count}", where="n < 0")[-1]
        assert (end["total"], end["lost"], end["next"]) == (count, lost, None)


def test_a_search_and_a_count_tell(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    found = documents(page, "/api/messages", topic="one", where="n > 420 AND n < 480")
    assert (offsets(found), found[-1]["lost"]) == ([], LOST_SENTENCE)
    end = documents(page, "/api/count", topic="one", where="n > 300")[-1]
    assert (end["found"], end["total"], end["lost"]) == (599, 1000, LOST_SENTENCE)
    # in threads, over ranges that cut the damage
    monkeypatch.setattr(counting, "RANGE_OFFSETS", 30)
    end = documents(page, "/api/count", topic="one", where="n > 300")[-1]
    assert (end["found"], end["lost"]) == (599, LOST_SENTENCE)
    assert documents(page, "/api/messages", topic="two", where="n = 0", partition=0)[-1]["lost"] is None
    of_two = "10 messages could not be read: offsets 0 to 9 of partition 1 are damaged"
    assert documents(page, "/api/count", topic="two", where="n = 0")[-1]["lost"] == of_two


def test_one_message_is_damaged_or_not_there(page: TestClient) -> None:
    answer = page.get("/api/message", params={"topic": "one", "partition": 0, "offset": 450})
    assert answer.json()["error"] == (
        "topic 'one', partition 0: the message at offset 450 could not be read: it is damaged in the log"
    )
    assert ask(page, "/api/message", topic="one", partition=0, offset=399)["offset"] == "399"
    answer = page.get("/api/message", params={"topic": "one", "partition": 0, "offset": 1000})
    assert "no message at offset 1000" in answer.json()["error"]


def test_a_profile_is_of_what_is_intact(page: TestClient) -> None:
    profile = documents(page, "/api/profile", topic="one")[-1]["profile"]
    assert (profile["messages"], profile["lost"]) == (900, LOST_SENTENCE)
    assert profile["damaged"] == [{"partition": 0, "first": 400, "end": 500}]


@pytest.mark.parametrize(
    ("path", "query"),
    [("/api/messages", {"order": "old", "count": 500}), ("/api/count", {"where": "n = 1"}), ("/api/profile", {}),
     ("/api/message", {"partition": 0, "offset": 450})],
)  # fmt: skip
def test_topics_tell_of_what_this_console_met(
    broken: Path, listener: socket.socket, path: str, query: dict[str, Any]
) -> None:
    page = client(ConsoleSettings(str(broken)), listener)
    page.get(path, params={"topic": "one", **query})
    rows = {row["name"]: row["damage"] for row in ask(page, "/api/topics")["topics"]}
    (said,) = rows["one"]
    assert said.startswith("partition 0: ") and said.endswith("damaged")
    assert rows["two"] == []
    assert ask(page, "/api/topic", topic="one")["damage"] == [said]


def test_a_topic_of_the_same_name_is_not_damaged(listener: socket.socket) -> None:
    with testing.broker() as broker:
        page, source = client(ConsoleSettings(broker.url), listener), ConsoleSource(broker.url)
        with closing(LadingTransport(broker.url)) as admin:
            admin.create_topic("again", 1)
            with Producer(broker.url) as producer:
                producer.send("again", b"x")
            source.met_damage.add(admin.topic("again"), {0: [(0, 1)]})
            assert source.met_damage.of(admin.topic("again")) == {0: [(0, 1)]}
            admin.delete_topic("again")
            admin.create_topic("again", 1)
            with Producer(broker.url) as producer:
                producer.send("again", b"y")
            assert source.met_damage.of(admin.topic("again")) == {}
        assert ask(page, "/api/topics")["topics"][0]["damage"] == []


def test_a_profile_on_the_command_line_and_as_a_page(broken: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    said = CliRunner().invoke(build_app(), ["profile", str(broken), "one", "-o", "json", "--html", str(file)])
    document = json.loads(said.stdout)
    assert (said.exit_code, document["messages"]) == (0, 900)
    assert document["damaged"] == [{"partition": 0, "first": 400, "end": 500}]
    assert LOST_SENTENCE in " ".join(said.stderr.split())
    assert LOST_SENTENCE in file.read_text()


def test_a_consumer_that_skips_says_what(url: str) -> None:
    with Consumer(url, ["one", "two"], timeout_s=0, on_loss="skip") as consumer:
        assert len(list(consumer)) == 930
        assert consumer.damage() == {("one", 0): [(400, 500)], ("two", 1): [(0, 10)]}


class _Left(OSError):
    """The page was left."""


def test_a_tail_tells_as_it_passes(page: TestClient) -> None:
    """Asked without a client, which would wait for the end that a tail has not."""
    told: list[dict[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        told.extend(json.loads(line) for line in message.get("body", b"").splitlines())
        if told and told[-1]["at"] == "0:1000":
            raise _Left

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": "GET",
        "path": "/api/tail", "raw_path": b"/api/tail", "query_string": b"topic=one&at=0:350", "scheme": "http",
        "root_path": "", "headers": [(b"host", b"127.0.0.1:7071")], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 7071),
    }  # fmt: skip

    async def ask_for_it() -> None:
        await page.app(scope, receive, send)

    with pytest.raises((_Left, ClientDisconnect)):
        asyncio.run(ask_for_it())
    read = sum(len(one.get("messages", [])) + one.get("skipped", 0) for one in told)
    assert (read, told[-1]["lost"]) == (550, LOST_SENTENCE)
    assert told[1]["lost"] is None


def test_the_sentence_stands_beside_what_is_intact(browser: Any, broken: Path, tmp_path: Path) -> None:
    process, address = start_console("--from", str(broken), "--state", str(tmp_path))
    page = browser.new_page(base_url=address)
    page.goto("/messages?topic=one&at=520")
    status = page.locator("p.facts")
    status.get_by_text(LOST_SENTENCE).wait_for()
    assert status.inner_text() == f"50 messages; {LOST_SENTENCE}"
    assert page.locator("tr.message").last.get_attribute("data-name") == "0:371"
    page.get_by_role("button", name="Show more").click()
    page.get_by_text("100 messages; ").wait_for()
    assert status.inner_text() == f"100 messages; {LOST_SENTENCE}"
    page.goto("/messages?topic=one&where=n+>+300")
    page.get_by_role("button", name="count all that match").click()
    page.get_by_text("599 messages match of 1,000").wait_for()
    assert status.inner_text().endswith(f"; {LOST_SENTENCE}")
    page.goto("/messages?topic=one&open=0:450")
    page.get_by_role("alert").get_by_text("the message at offset 450 could not be read").wait_for()
    assert page.locator("tr.message").count() == 50
    page.goto("/headers?topic=one")
    page.get_by_role("alert").get_by_text(LOST_SENTENCE).wait_for()
    assert page.locator(".card b").first.inner_text() == "900"
    page.goto("/")
    page.get_by_role("row", name="one").get_by_text("damaged").wait_for()
    page.close()
    end(process)
