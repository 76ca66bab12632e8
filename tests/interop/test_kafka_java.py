"""The Java client holds one conversation with Apache Kafka and one with our broker: both must be the same."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
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


def hold_conversations(program: list[str], *addresses: str) -> list[list[str]]:
    """Return what the program prints of its conversation with each address, which one JVM holds."""
    command = [*program, *(word for address in addresses for word in (address, "java"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    *conversations, rest = done.stdout.split("\nend\n")
    assert rest == ""
    return [conversation.splitlines() for conversation in conversations]


@pytest.mark.turns(3, part=0)
def test_our_broker_and_apache_kafka_say_the_same(
    kafka: kafka_broker.RunningKafka, ours: testing.BrokerProcess, program: list[str]
) -> None:
    expected, found = hold_conversations(program, kafka.address, ours.endpoints["kafka"])
    assert len(expected) > 50
    assert found == expected
