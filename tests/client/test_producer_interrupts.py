"""A Producer that is interrupted at any instruction while a batch is on its way: the batch arrives once.

Ctrl-C raises KeyboardInterrupt between two instructions, also after the response to a batch, while a message is added
to a batch, and while a batch is closed. A message whose ``send`` was interrupted was accepted whole, or not at all.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

import lading
from lading import Producer, read_arrow, testing
from lading.client.interceptors import Outgoing, ProducerInterceptor
from lading.client.outgoing import BatchBuilder
from lading.client.producer import Outbox
from lading.client.producer import Producer as ProducerClass

SAMPLE: Final = 20
"""Instructions of an ordinary run for each protocol."""
TRANSPORTS: Final = str(Path(lading.__file__).parent / "transports")
SEND: Final = ProducerClass._send_outbox.__code__


class Interrupter:
    """Raises KeyboardInterrupt before an instruction, counted from 1 over those that send; 0 counts only."""

    def __init__(self, at: int, codes: Collection[CodeType] = (SEND,), directory: str = TRANSPORTS) -> None:
        self.at = at
        self.count = 0
        self._codes = codes
        self._directory = directory

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code not in self._codes and not frame.f_code.co_filename.startswith(self._directory):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
            if self.count == self.at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(data_dir=tmp_path_factory.mktemp("log") / "data", settings={"durability": "os"}) as running:
        yield running


@pytest.mark.parametrize("scheme", ["lading", "kafka"])
def test_an_interrupted_batch_arrives_once(broker: testing.BrokerProcess, scheme: str, full: bool) -> None:
    url = f"{scheme}://{broker.endpoints['admin' if scheme == 'lading' else 'kafka']}"
    topic = f"interrupted.{scheme}"
    expected = [b"0", b"1"]
    with Producer(url, linger_ms=None) as producer:
        producer.send(topic, b"0")
        producer.flush()
        producer.send(topic, b"1")
        instructions = flush_interrupted(producer, 0)
        assert instructions > 100
        everything = range(1, instructions + 1)
        # the first instructions before and the last ones after the response are in every run
        chosen = everything if full else [*everything[-60::6], *random.Random(17).sample(everything, SAMPLE)]
        for at in chosen:
            expected.append(b"at %d" % at)
            producer.send(topic, expected[-1])
            flush_interrupted(producer, at)
            producer.flush()
    arrived = read_arrow(broker.url, topic, "payload").column(0).to_pylist()
    assert arrived == expected


def flush_interrupted(producer: Producer, at: int) -> int:
    """Flush with an interrupt before an instruction; return the number of instructions."""
    return call_interrupted(producer.flush, Interrupter(at))


def call_interrupted(call: Callable[[], object], interrupter: Interrupter) -> int:
    """Call with an interrupt; return the number of instructions."""
    before = sys.gettrace()
    sys.settrace(interrupter)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupter.count


class Acknowledged(ProducerInterceptor):
    """An interceptor that keeps what was acknowledged."""

    def __init__(self) -> None:
        self.payloads: list[Any] = []

    def on_acknowledgement(self, message: Outgoing, offset: int | None, error: Exception | None) -> None:
        """Keep the payload."""
        self.payloads.append(message.payload)


GATHERING: Final = (
    BatchBuilder.add.__code__, BatchBuilder.batch.__code__, Outbox.close_batch.__code__, Outbox._begin_batch.__code__,
)  # fmt: skip
NOWHERE: Final = "no such directory"


def test_an_interrupt_while_messages_are_gathered_loses_and_doubles_none(
    broker: testing.BrokerProcess, full: bool
) -> None:
    topic = "gathered"
    sent: list[bytes] = []
    offered: list[bytes] = []
    acknowledged = Acknowledged()
    with Producer(broker.url, linger_ms=None, interceptors=[acknowledged]) as producer:

        def send(payload: bytes) -> None:
            producer.send(topic, payload, headers=[("a", "x"), ("b", "y")], id=len(offered), partition=0)
            sent.append(payload)

        def send_and_flush() -> None:
            offered.append(b"%d" % len(offered))
            send(offered[-1])
            producer.flush()

        send_and_flush()
        instructions = call_interrupted(send_and_flush, Interrupter(0, GATHERING, NOWHERE))
        assert instructions > 50
        for at in range(1, instructions + 1, 1 if full else 4):
            call_interrupted(send_and_flush, Interrupter(at, GATHERING, NOWHERE))
            offered.append(b"after %d" % at)
            send(offered[-1])
            producer.flush()
    rows = read_arrow(broker.url, topic, "payload, headers, id").to_pylist()
    arrived = [row["payload"] for row in rows]
    # an interrupted send may have been accepted
    assert len(set(arrived)) == len(arrived) and set(sent) <= set(arrived) <= set(offered)
    assert arrived == [payload for payload in offered if payload in set(arrived)]
    assert all([header["key"] for header in row["headers"]] == ["a", "b"] for row in rows)
    assert acknowledged.payloads == arrived
