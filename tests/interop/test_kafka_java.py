"""The Java client holds one conversation with Apache Kafka and one with our broker: both must print the same."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lading import testing
from tests.interop import kafka_broker

CONVERSATION = Path(__file__).with_name("kafka_java") / "Conversation.java"
TIMEOUT_S = 110

pytestmark = [pytest.mark.interop, pytest.mark.timeout(2 * TIMEOUT_S + 60)]


@pytest.fixture(scope="module")
def ours() -> Iterator[testing.Running]:
    """Our broker."""
    with testing.broker() as running:
        yield running


def conversation(address: str, name: str) -> list[str]:
    """What the program prints; it compiles itself when it starts."""
    if shutil.which("javac") is None:
        pytest.skip("the Java client's program needs a JDK (javac)")
    command = ["java", "-cp", f"{kafka_broker.jars()}/*", str(CONVERSATION), address, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout.splitlines()


def test_our_broker_and_apache_kafka_say_the_same(kafka: kafka_broker.RunningKafka, ours: testing.Running) -> None:
    with ThreadPoolExecutor(2) as both:
        theirs = both.submit(conversation, kafka.address, "java")
        told = both.submit(conversation, ours.endpoints["kafka"], "java")
        expected = theirs.result()
        assert expected[-1] == "end"
        assert told.result() == expected
