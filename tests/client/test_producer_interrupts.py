"""A Producer that is interrupted at any instruction while a batch is on its way: the batch arrives once.

Ctrl-C raises KeyboardInterrupt between two instructions, also after the response to a batch. The whole of ``flush`` is
not covered: an interrupt while messages are gathered may leave it open whether the last one was accepted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import lading
from lading import Producer, read_arrow, testing
from lading.client.producer import Producer as ProducerClass

SAMPLE: Final = 20
"""Instructions of an ordinary run for each protocol."""
TRANSPORTS: Final = str(Path(lading.__file__).parent / "transports")
SEND: Final = ProducerClass._send_outbox.__code__


class Interrupter:
    """Raises KeyboardInterrupt before an instruction, counted from 1 over those that send; 0 counts only."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is not SEND and not frame.f_code.co_filename.startswith(TRANSPORTS):
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
    interrupter, before = Interrupter(at), sys.gettrace()
    sys.settrace(interrupter)
    try:
        producer.flush()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupter.count
