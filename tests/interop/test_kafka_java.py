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
def ours() -> Iterator[testing.BrokerProcess]:
    """Our broker."""
    with testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the client's program, compiled once."""
    if shutil.which("javac") is None:
        pytest.skip("the Java client's program needs a JDK (javac)")
    try:
        jars = f"{kafka_broker.jars()}/*"
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))
    place = tmp_path_factory.mktemp("classes")
    quick = ["-J-XX:TieredStopAtLevel=1", "-proc:none"]
    subprocess.run(["javac", *quick, "-cp", jars, "-d", str(place), str(CONVERSATION)], timeout=TIMEOUT_S, check=True)
    return ["java", "-cp", f"{place}:{jars}", CONVERSATION.stem]


def conversation(program: list[str], address: str, name: str) -> list[str]:
    """What the program prints."""
    command = [*program, address, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout.splitlines()


def test_our_broker_and_apache_kafka_say_the_same(
    kafka: kafka_broker.RunningKafka, ours: testing.BrokerProcess, program: list[str]
) -> None:
    with ThreadPoolExecutor(2) as both:
        theirs = both.submit(conversation, program, kafka.address, "java")
        told = both.submit(conversation, program, ours.endpoints["kafka"], "java")
        expected = theirs.result()
        assert expected[-1] == "end"
        assert told.result() == expected
