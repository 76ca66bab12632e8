"""Transactions of librdkafka go on by themselves when a disk that refused the catalog takes writes again."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest

from lading import testing
from lading.dialects.kafka.errors import RETRIABLE
from lading.endpoints.kafka.pending_responses import coordinator_code
from lading.model.errors import Reason, Refusal
from tests.endpoints.kafka_frames import KafkaFrames
from tests.faults.test_kafka_kill import PARTITIONS, QUIET, read
from tests.faults.test_position_kill import FILE_BYTES_MAX, committed, make_topic

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

REFUSED_S = 0.4
"""For so long the disk refuses; librdkafka asks every 20 ms meanwhile."""


@pytest.mark.parametrize("reason", [Reason.DISK_FULL, Reason.READ_ONLY, Reason.STOPPING])
def test_what_passes_is_told_by_a_code_after_which_clients_ask_again(reason: Reason) -> None:
    assert coordinator_code(Refusal(reason, "")) in RETRIABLE


@pytest.mark.timeout(300)
def test_transactions_go_on_when_the_disk_is_mended(tmp_path: Path) -> None:
    with testing.broker(tmp_path / "data") as broker:
        address = broker.endpoints["kafka"]
        kafka = KafkaFrames(address)
        make_topic(kafka)
        unlimited = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)

        def mend() -> None:
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, unlimited)

        def refuse() -> threading.Timer:
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, unlimited[1]))
            timer = threading.Timer(REFUSED_S, mend)
            timer.start()
            return timer

        # each step of a transaction begins while the disk refuses
        timer = refuse()
        producer = confluent.Producer({"bootstrap.servers": address, "transactional.id": "one", **QUIET})
        producer.init_transactions(30)
        timer.join()
        position = [confluent.TopicPartition("t", 0, 7)]
        group = confluent.Consumer({"bootstrap.servers": address, "group.id": "g", **QUIET}).consumer_group_metadata()
        for number, committing in enumerate((True, False, True)):
            producer.begin_transaction()
            timer = refuse()
            producer.produce("t", b"%d" % number, partition=0)
            producer.flush(30)
            timer.join()
            timer = refuse()
            producer.send_offsets_to_transaction(position, group, 30)
            timer.join()
            timer = refuse()
            (producer.commit_transaction if committing else producer.abort_transaction)(30)
            timer.join()
        assert read(address, "t")[:PARTITIONS] == [[0, 2], []]
        assert 7 in committed(kafka, "g")
        kafka.close()
