"""Mirrors of a service on the console's page: a real service, and addresses that are none."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading import Producer, testing
from lading.console.mirror_services import require_service_url
from lading.console.settings import ConsoleSettings
from lading.mirror.mirrors_file import load_mirrors
from lading.mirror.service import MirrorService
from lading.model.address import Address
from lading.model.errors import SettingError
from lading.runtime.status_server import serve_status

from .conftest import client


@pytest.fixture
def service(broker: testing.BrokerProcess, tmp_path: Path) -> Iterator[str]:
    """A service of two mirrors, one of which has no target."""
    with Producer(broker.url) as producer:
        producer.send("served", b"x")
    file = tmp_path / "mirrors.toml"
    sections = (
        ("works", "served", f"iggy://{broker.endpoints['iggy_tcp']}"),
        ("away", "served", "kafka://127.0.0.1:1"),
    )
    file.write_text(
        f'[service]\nstate = "{tmp_path / "states"}"\n'
        + "".join(
            f'[mirror.{name}]\nsource = "{broker.url}"\ntarget = "{target}"\ntopics = ["{topic}"]\n'
            f'rename = {{ {topic} = "{topic}-{name}" }}\n'
            for name, topic, target in sections
        )
    )
    running = MirrorService(load_mirrors(file).mirrors)
    with serve_status(Address("127.0.0.1", 0), "a Lading mirror service", running.pages) as bound:
        running.start()
        yield f"http://{bound}"
        running.stop()


def mirrors_of(broker: testing.BrokerProcess, listener: socket.socket, *urls: str) -> list[dict[str, Any]]:
    page = client(ConsoleSettings(broker.url, mirror_services=urls), listener)
    found: list[dict[str, Any]] = page.get("/api/mirrors").json()["mirrors"]
    return found


def test_mirrors_of_a_service_have_state_lag_and_rate(
    broker: testing.BrokerProcess, listener: socket.socket, service: str
) -> None:
    while True:
        (found,) = mirrors_of(broker, listener, service)
        rows = {row["name"]: row for row in found["mirrors"]}
        if rows["works"]["messages"] and rows["away"]["last_error"]:
            break
    assert rows["works"]["state"] == "running" and rows["works"]["messages"] == 1
    assert rows["away"]["state"] in ("away", "failed") and rows["away"]["messages"] == 0
    assert {"lag_messages", "messages_per_s", "last_sent"} <= rows["works"].keys()
    assert found["status"] == "degraded"


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"<html>", "not a service"), (b"[]", "not a service"), (b'{"mirrors": 7}', "not a service"), (None, "within")],
)
def test_what_is_no_service_is_a_sentence(
    broker: testing.BrokerProcess, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, body: Any, words: str
) -> None:
    monkeypatch.setattr("lading.console.mirror_services.FETCH_S", 0.3)
    release = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if body is None:
                release.wait(20)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        (found,) = mirrors_of(broker, listener, f"http://127.0.0.1:{server.server_address[1]}")
        release.set()
        server.shutdown()
        thread.join()
    assert words in found["error"]


def test_a_service_that_is_away_is_a_sentence(broker: testing.BrokerProcess, listener: socket.socket) -> None:
    (found,) = mirrors_of(broker, listener, "http://127.0.0.1:1")
    assert "does not respond" in found["error"] and "lading mirror run" in found["error"]


@pytest.mark.parametrize("url", ["127.0.0.1:9465", "lading://a", "http://", "http://a/health", "http://a?x=1"])
def test_what_cannot_be_an_address_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match=r"http://127\.0\.0\.1:9465"):
        require_service_url(url)
