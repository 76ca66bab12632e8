"""franz-go, which speaks the newest version of every request: what it says to Apache Kafka 4.3.1 it says to ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lading.testing import broker
from tests.interop import go_programs, kafka_broker

RECORDED = Path(__file__).parents[1] / "vectors" / "kafka_franz_go.txt"
"""What the program printed beside version 4.3.1."""
TIMEOUT_S = 90

pytestmark = pytest.mark.timeout(go_programs.BUILD_TIMEOUT_S + TIMEOUT_S)


@pytest.fixture(scope="module")
def program() -> Path:
    """The program, built."""
    try:
        return go_programs.client("franz", Path(__file__).with_name("kafka_go"))
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))


def said(program: Path, address: str) -> list[str]:
    """The whole conversation with a broker."""
    done = subprocess.run(
        ["nice", str(program), address, "franz"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.turns(2, part=0)
def test_ours(program: Path) -> None:
    with broker() as running:
        assert said(program, running.endpoints["kafka"]) == RECORDED.read_text().splitlines()


@pytest.mark.turns(2, part=1)
@pytest.mark.interop
def test_apache_kafka(program: Path, kafka: kafka_broker.RunningKafka) -> None:
    assert said(program, kafka.address) == RECORDED.read_text().splitlines()
