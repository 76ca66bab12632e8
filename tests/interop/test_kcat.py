"""kcat from Debian: headers from a shell, against Apache Kafka and against our broker, with the same answers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from lading import testing
from tests.interop import kafka_broker

TIMEOUT_S = 30
FORMAT = "%o %k %s %h\n"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt-get install kcat)"),
]


@pytest.fixture(scope="module", params=["apache-kafka", "lading"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A Kafka broker: the real one, then ours."""
    if request.param == "apache-kafka":
        running: kafka_broker.RunningKafka = request.getfixturevalue("kafka")
        yield running.address
        return
    with testing.broker() as ours:
        yield ours.endpoints["kafka"]


def kcat(address: str, *arguments: str, given: str = "") -> str:
    """What kcat prints."""
    command = ["kcat", "-b", address, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_headers_go_in_and_out(address: str) -> None:
    headers = ["-H", "via=ORD", "-H", "empty=", "-H", "via=DEN", "-H", "null"]
    kcat(address, "-P", "-t", "kcat-headers", "-p", "0", "-K", ":", *headers, given="k:one\nk:two\n")
    read = kcat(address, "-C", "-t", "kcat-headers", "-p", "0", "-o", "beginning", "-e", "-q", "-f", FORMAT)
    expected = "via=ORD,empty=,via=DEN,null=NULL"
    assert read == f"0 k one {expected}\n1 k two {expected}\n"


def test_compression_and_offsets(address: str) -> None:
    rows = "".join(f"{number}\n" for number in range(100))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        topic = f"kcat-{codec}"
        kcat(address, "-P", "-t", topic, "-p", "0", "-z", codec, "-H", f"codec={codec}", given=rows)
        read = kcat(address, "-C", "-t", topic, "-p", "0", "-o", "97", "-e", "-q", "-f", FORMAT)
        assert read == "".join(f"{number}  {number} codec={codec}\n" for number in (97, 98, 99))


def test_metadata_names_the_topic(address: str) -> None:
    kcat(address, "-P", "-t", "kcat-listed", "-p", "0", given="x\n")
    assert 'topic "kcat-listed" with 1 partitions' in kcat(address, "-L", "-t", "kcat-listed")


def test_a_group_reads_all(address: str) -> None:
    kcat(address, "-P", "-t", "kcat-group", "-p", "0", given="a\nb\n")
    told = ["-X", "auto.offset.reset=earliest", "-c", "2", "-q", "-G", "kcat-readers", "kcat-group"]
    assert kcat(address, *told) == "a\nb\n"
