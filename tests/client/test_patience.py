"""A consumer without time-out waits for a broker that went away, and goes on when it is back."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from lading import Consumer, Producer, testing
from lading.client.patience import PAUSE_MAX_S, PAUSE_MIN_S, Patience
from lading.model.errors import LocalError, Reason, Refusal, Unreachable

ENDS_WITHIN_S = 90


def test_pauses_double_and_two_lines_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    slept: list[float] = []
    patience = Patience("lading://here", slept.append)
    with caplog.at_level(logging.WARNING, "lading.client"):
        for _ in range(8):
            patience.wait(Unreachable("gone"))
        patience.wait(Refusal(Reason.STOPPING, "stopping"))
        patience.reset()
        patience.reset()
    assert slept[:3] == [PAUSE_MIN_S, 2 * PAUSE_MIN_S, 4 * PAUSE_MIN_S]
    assert slept[-1] == PAUSE_MAX_S
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "lading://here is away", "lading://here is back",
    ]  # fmt: skip
    with pytest.raises(LocalError):
        patience.wait(LocalError("the caller's own"))


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("scheme", "group"),
    [(scheme, group) for scheme in ("lading", "iggy", "kafka") for group in (None, "g")] + [("nsq", "g")],
)
def test_reading_goes_on_when_the_broker_is_back(
    tmp_path: Path,
    scheme: str,
    group: str | None,
    same_endpoints: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with testing.broker(tmp_path / "data", settings=same_endpoints) as first:
        with Producer(first.url) as producer:
            producer.send("t", b"before")
        urls = {"lading": first.url, "iggy": f"iggy://{first.endpoints['iggy_tcp']}",
                "kafka": f"kafka://{first.endpoints['kafka']}",
                "nsq": f"nsq://{first.endpoints['nsqd_tcp']}"}  # fmt: skip
        options: dict[str, Any] = {"retries": 1} if scheme in ("lading", "iggy") else {}
        consumer = Consumer(urls[scheme], "t", group=group, **options)
        assert next(consumer).payload == b"before"
        if group is not None:
            # what a queue was not told comes again
            consumer.commit()
        found: list[Any] = []

        def read() -> None:
            try:
                found.append(next(consumer).payload)
            except BaseException as error:
                found.append(error)

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        first.stop()
        # long enough for the retries of the transport to run out
        reading.join(2.0)
        assert not found, "nobody stops waiting"
        with testing.broker(tmp_path / "data", settings=same_endpoints) as second:
            with Producer(second.url) as producer:
                producer.send("t", b"after")
            reading.join(ENDS_WITHIN_S)
            assert found == [b"after"]
            told = [line.split(";")[0].rsplit(" ", 1)[1] for line in caplog.messages]
            # Kafka's transport has patience enough of its own for a short restart
            assert told == ["away", "back"] or (scheme == "kafka" and not told)
            consumer.close()
