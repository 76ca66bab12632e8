"""What TLS costs the Kafka face and Apache Kafka, under the same librdkafka clients, by turns in one run.

Both brokers have two listeners, one plain and one encrypted, so that four sides take turns: each broker with TLS beside
itself without, and ours beside Apache's, with and without. Clients of Apache's encrypted listener log in as well, once
a connection. Neither broker syncs; versions and ciphers are what OpenSSL and Java agree on by default (TLS 1.3).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench._encrypted import BY_LISTENER, TlsTable, encrypting_broker
from bench.kafka_face import KafkaSide, drive, measure_latency, write_lines
from bench.measure import kernels_loaded, median
from tests.endpoints.authority import Authority
from tests.interop import kafka_broker

QUESTION = "Kafka over TLS: our broker and Apache Kafka 4, each with TLS ÷ without; kcat, 100 B + 3 headers, os"
MESSAGES: Final = 300_000
ROUNDS: Final = 5
CODEC: Final = "none"
ENCRYPTED: Final = "kafka.encrypted"


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: what, both brokers plain and with TLS, shares that TLS leaves, ours ÷ Apache's with TLS; median of 5."""
    if shutil.which("kcat") is None:
        print("not measured: kcat is not installed (apt-get install kcat)", file=sys.stderr)
        return []
    messages, rounds = (MESSAGES // 10, 1) if quick else (MESSAGES, ROUNDS)
    with tempfile.TemporaryDirectory() as directory:
        lines = write_lines(Path(directory) / "lines", messages)
        try:
            with _sides(Path(directory)) as sides:
                for number in range(rounds + 1):
                    if number == 1:  # what a JVM does in its first round is not what it does
                        for side in sides:
                            side.forget()
                    turns = sides if number % 2 else sides[::-1]
                    for side in turns:
                        drive(side, CODEC, lines, messages)
                    for side in turns:
                        measure_latency(side)
                return _rows(sides)
        except kafka_broker.Unavailable as missing:
            print(f"not measured: {missing}", file=sys.stderr)
    return []


@contextmanager
def _sides(directory: Path) -> Iterator[list[KafkaSide]]:
    """Ours plain and with TLS, Apache's plain and with TLS."""
    authority = Authority(directory)
    with ExitStack() as stack:
        ours = stack.enter_context(encrypting_broker("kafka", BY_LISTENER, authority))
        theirs = stack.enter_context(kafka_broker.running(directory / "kafka"))
        kernels_loaded(ours)
        trusting = {"security.protocol": "ssl", "ssl.ca.location": str(authority.file)}
        login = {"sasl.mechanism": "PLAIN", "sasl.username": kafka_broker.USER, "sasl.password": kafka_broker.PASSWORD}
        yield [
            KafkaSide("lading", ours.endpoints["kafka"], ours.pid, 0, {}),
            KafkaSide("lading, TLS", ours.endpoints[ENCRYPTED], ours.pid, 0, {}, trusting),
            KafkaSide("kafka", theirs.address, theirs.pid, 0, {}),
            KafkaSide(
                "kafka, TLS", theirs.secure, theirs.pid, 0, {},
                {"security.protocol": "sasl_ssl", "ssl.ca.location": str(theirs.ca_file), **login},
            ),
        ]  # fmt: skip


def _rows(sides: list[KafkaSide]) -> list[dict[str, Any]]:
    table = TlsTable([side.name for side in sides], "kafka")
    for what in ("produce", "consume"):
        table.add(f"{what}, k messages/s", [median(side.rates[what, CODEC]) / 1000 for side in sides], 0)
        table.add(f"{what}, broker CPU s/M", [median(side.cpu[what, CODEC]) for side in sides], 2)
    table.add("p50 at 1,000/s, us", [median(side.p50_us) for side in sides], 0)
    table.add("p99 at 1,000/s, us", [median(side.p99_us) for side in sides], 0)
    return table.rows
