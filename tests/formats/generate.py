"""``python -m tests.formats.generate DIRECTORY``: a data directory with every format of today, small.

What it made once lies in ``tests/formats/v1`` and is opened by ``test_formats`` for ever. A later version of a format
gets a directory of its own beside it; ``v1`` is never made anew.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.core.append.append import WriteResult
from lading.broker.core.position import StoredPosition
from lading.broker.core.settings import BrokerSettings, TopicSettings
from lading.broker.kafka.transactional_producer import Caller
from lading.dialects import codes
from lading.log.group_commit import SyncNow
from lading.model.state import State
from lading.spool.spool_log import Spool
from tests.broker.kafka_batches import produce
from tests.broker.room import CONSUMER, NOW, append_block, block, fill

SEEN = [b"iggy-0", b"iggy-1", b"kafka-kept", b"native-kept", b"end-0"]
"""What a reader of committed messages sees of topic ``s.t``."""
POISONED = b"end-1"
"""Seen by those who are shown states."""
SPOOLED = [b"spooled-0", b"spooled-1"]


def generate(directory: Path) -> None:
    """Write ``directory``/data, a broker's, and ``directory``/spool."""
    broker = Broker.open(directory / "data", BrokerSettings(), now_us=NOW, commit=SyncNow())
    broker.at_once.create_stream(None, "s", now_us=NOW)
    broker.at_once.create_topic("s", None, "t", 1, now_us=NOW, settings=TopicSettings(hide_states=True))
    partition = broker.topology.resolve("s.t").partition(0)
    fill(broker, partition, 2, prefix="iggy-")
    _transactions(broker)
    fill(broker, partition, 2, prefix="end-")
    broker.states.set(
        partition, [(partition.log.next_offset - 1, partition.log.next_offset)], State.POISONED, now_us=NOW
    )
    broker._positions.store(partition, CONSUMER.key, StoredPosition(1, None, None, NOW))
    later = block(b"later")

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        array[at : at + len(later)] = np.frombuffer(later, np.uint8)
        return WriteResult(len(later), 1, NOW, NOW)

    broker.postponed.append(partition, NOW + 1_000_000, codes.NATIVE, 0, len(later), write)
    broker.appender.flush()
    broker.stop()
    spool = Spool(directory / "spool", "q")
    for payload in SPOOLED:
        spool.append(codes.NATIVE, [block(payload)], [NOW])
    spool.close()


def _transactions(broker: Broker) -> None:
    partition = broker.topology.resolve("s.t").partition(0)
    producer = broker.producers.init_producer_id("bank", 1_000_000, None, now_us=NOW).value
    assert producer is not None
    caller = Caller("bank", producer.producer_id, producer.epoch)
    for number, (payload, commit) in enumerate(((b"kafka-kept", True), (b"kafka-aborted", False))):
        broker.producers.add_partitions(caller, [partition], now_us=NOW)
        produce(broker, partition, payload, producer=producer.producer_id, sequence=number, transactional=True)
        broker.producers.end(caller, commit, now_us=NOW)
        broker.appender.flush()
    one, other = broker.native_transactions.begin(now_us=NOW), broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"native-kept", transaction=one))
    append_block(broker, partition, block(b"native-aborted", transaction=other))
    broker.native_transactions.commit("key", [one], now_us=NOW)
    broker.native_transactions.abort([other], now_us=NOW)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    generate(target)
