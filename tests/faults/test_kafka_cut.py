"""A power cut took acknowledged-looking messages from a log: readers by ``kafka://`` notice it, as KIP-320 asks."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading import Consumer, Producer, testing
from lading.columns.contract import parse_columns
from lading.model.errors import DataLoss
from lading.spark.stream_limits import LimitedStreamReader
from lading.spark.types import schema_of
from lading.tables.plan.options import SourceOptions

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

KEPT, SENT, AGAIN = 10, 16, 30
"""Messages that the power cut left, that there were before, and that there are when readers come back."""
LAG_S = 0.3
"""The watermark and stored positions are at most 100 ms behind."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"


def write(url: str, first: int, end: int, word: str) -> None:
    with Producer(url) as producer:
        for number in range(first, end):
            producer.send("cut", f"{word} {number}")


def stream(url: str, **more: str) -> LimitedStreamReader:
    options = SourceOptions.parse({"from": url, "topic": "cut", **more})
    return LimitedStreamReader(options, schema_of(parse_columns("offset, payload")))


def micro_batch(reader: LimitedStreamReader, at: dict[str, object]) -> tuple[dict[str, object], list[str]]:
    """The position behind the next micro-batch, as a checkpoint keeps it, and what was in the batch."""
    end = json.loads(json.dumps(reader.latestOffset(at, reader.getDefaultReadLimit())))
    batches = [batch for piece in reader.partitions(at, end) for batch in reader.read(piece)]
    reader.stop()
    return end, [row["payload"].decode() for batch in batches for row in batch.to_pylist()]


def test_readers_notice_that_a_log_was_cut_back(
    home: Path, same_endpoints: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    url = f"kafka://{same_endpoints['endpoints.kafka.address']}"
    with testing.broker(home, settings=same_endpoints) as broker:
        write(url, 0, KEPT, "old")
        (log,) = [path for path in home.rglob("*.log") if path.name.startswith("0000")]
        time.sleep(LAG_S)
        before = shutil.copytree(log.parent, home.with_name("before"))
        write(url, KEPT, SENT, "old")
        member = Consumer(url, "cut", group="ops", start="earliest", timeout_s=5)
        skipping = Consumer(url, "cut", start="earliest", on_loss="skip", timeout_s=5)
        for consumer in (member, skipping):
            assert [next(consumer).payload for _ in range(SENT)][-1] == b"old 15"
        member.close()
        reader = stream(url)
        checkpoint, read = micro_batch(reader, json.loads(json.dumps(reader.initialOffset())))
        assert read == [f"old {number}" for number in range(SENT)]
        time.sleep(LAG_S)
        broker.kill()
        # what a power cut leaves of files that were not synced: an older watermark, and a torn tail
        kept = len((before / log.name).read_bytes().rstrip(bytes(1)))
        torn = log.read_bytes()[: kept + 40]
        shutil.rmtree(log.parent)
        shutil.copytree(before, log.parent)
        log.write_bytes(torn)
    with testing.broker(home, settings=same_endpoints):
        write(url, KEPT, AGAIN, "new")
        new = [f"new {number}".encode() for number in range(KEPT, AGAIN)]
        with Consumer(url, "cut", group="ops") as member, pytest.raises(DataLoss, match="offsets 10 to 15 were lost"):
            next(member)
        with Consumer(url, "cut", group="ops", on_loss="skip", timeout_s=2) as member:
            assert [next(member).payload for _ in new] == new
        # a connection that lived on until the broker died
        assert [next(skipping).payload for _ in new] == new
        skipping.close()
        with pytest.raises(DataLoss, match="went on at offset 10 under epoch"):
            micro_batch(stream(url), checkpoint)
        with caplog.at_level(logging.WARNING, "lading.spark"):
            end, read = micro_batch(stream(url, failOnDataLoss="false"), checkpoint)
        assert [payload.encode() for payload in read] == new
        assert "from offset 16 and later are lost" in caplog.text
        # where nothing was cut a new epoch is no loss
        write(url, 0, 1, "newer")
        assert micro_batch(stream(url), end)[1] == ["newer 0"]
