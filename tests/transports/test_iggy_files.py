"""``iggy-files://``: the directory that the real 0.0.40 server wrote, the layout of 0.0.30, torn tails and damage."""

from __future__ import annotations

import logging
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lading
from lading.model.errors import ChecksumMismatch, CorruptLog, DataLoss, LocalError
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.local import LocalExecutor
from lading.transports.open import open_transport
from tests import forked_command
from tests.dialects.iggy_classic import VECTORS, messages_in, written_messages
from tests.pipeline.direct import Driver, checked

TOPIC = "fixture.stream.orders"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of what the real server wrote: two partitions, the first of two segments."""
    copied = tmp_path / "local_data"
    shutil.copytree(VECTORS / "iggy_classic_data", copied)
    return copied


def url_of(directory: Path) -> str:
    return f"iggy-files://{directory}"


def segments(directory: Path, partition: int = 1) -> list[Path]:
    return sorted((directory / "streams" / "2" / "topics" / "1" / "partitions" / str(partition)).glob("*.log"))


def read(directory: Path, partition: int = 1, **options: Any) -> list[dict[str, Any]]:
    """The messages of a partition, counted as the server does, in the words of the vector."""
    found = []
    for message in lading.Consumer(url_of(directory), TOPIC, end="latest", **options):
        if message.partition != partition - 1:
            continue
        headers = sorted(message.headers, key=lambda header: header.key)
        found.append(
            {
                "offset": message.offset,
                "state": int(message.state),
                "timestamp": message.timestamp_us,
                "id": str(int.from_bytes(message.id or b"", "little")),
                "checksum": message.checksum,
                "headers": [{"key": h.key, "kind": h.kind, "value_hex": (h.value or b"").hex()} for h in headers],
                "payload_hex": (message.payload or b"").hex(),
            }
        )
    return found


def without_states(log: bytes) -> bytes:
    """A segment as 0.0.30 wrote it: the same without the state behind the offset."""
    return b"".join(log[at : at + 8] + log[at + 9 : end] for at, end in messages_in(log))


@pytest.mark.parametrize("partition", [1, 2])
def test_the_real_servers_directory_is_the_messages_of_its_json(directory: Path, partition: int) -> None:
    assert read(directory, partition) == written_messages(str(partition))


def test_topics_have_their_names_and_offsets(directory: Path) -> None:
    transport = open_transport(url_of(directory))
    assert [topic.name for topic in transport.topics()] == [TOPIC, "fixture.stream.bare"]
    orders, bare = transport.topics()
    assert [(each.number, each.first_offset, each.end_offset) for each in orders.partitions] == [
        (number - 1, 0, len(written_messages(str(number)))) for number in (1, 2)
    ]
    assert bare.partitions == ()


def test_the_layout_without_states_is_known_by_its_checksums(directory: Path) -> None:
    for partition in (1, 2):
        for path in segments(directory, partition):
            path.write_bytes(without_states(path.read_bytes()))
        assert read(directory, partition) == written_messages(str(partition))


def test_times_are_found(directory: Path) -> None:
    told = written_messages("1")
    transport = open_transport(url_of(directory))
    for at in (0, 1, 99, 100, 150, len(told) - 1):
        found = transport.offset_at(TOPIC, 0, told[at]["timestamp"])
        assert found == next(m["offset"] for m in told if m["timestamp"] >= told[at]["timestamp"])
    assert transport.offset_at(TOPIC, 0, told[-1]["timestamp"] + 1) == len(told)
    assert transport.offset_at(TOPIC, 0, 0) == 0


@pytest.mark.parametrize("has_states", [True, False])
def test_a_torn_tail_is_told_and_what_is_before_is_read(
    directory: Path, caplog: pytest.LogCaptureFixture, has_states: bool
) -> None:
    path = segments(directory)[-1]
    log = path.read_bytes() if has_states else without_states(path.read_bytes())
    path.write_bytes(log[:-5])
    whole = written_messages("1")[:-1]
    with caplog.at_level(logging.WARNING, "lading.transports.iggy"):
        assert read(directory) == whole
    starts = [at for at, _ in messages_in(path.read_bytes())] if has_states else []
    (record,) = [each for each in caplog.records if "a message is truncated or damaged" in each.message]
    assert str(path) in record.message
    assert not starts or f"at byte {starts[-1]} " in record.message


def test_zeros_behind_the_end_are_no_message(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = segments(directory)[-1]
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert read(directory) == written_messages("1")
    assert not caplog.records


def test_a_wrong_payload_is_named_with_file_and_offset(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = segments(directory)[1]
    log = bytearray(path.read_bytes())
    places = list(messages_in(bytes(log)))
    log[places[17][1] - 1] ^= 1
    path.write_bytes(log)
    with caplog.at_level(logging.WARNING, "lading.transports.iggy"), pytest.raises(ChecksumMismatch) as raised:
        read(directory, verify_checksum=True)
    assert "117" in str(raised.value)
    (record,) = caplog.records
    assert str(path) in record.message
    assert "message 117," in record.message and "CRC-32" in record.message
    # without the check it is shown as it lies, as the real server serves it
    assert len(read(directory, verify_checksum=False)) == len(written_messages("1"))


def test_messages_behind_damage_are_read_and_the_damaged_ones_are_a_loss(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = segments(directory)[0]
    log = bytearray(path.read_bytes())
    places = list(messages_in(bytes(log)))
    # the length of the headers of message 40 points behind the file
    struct.pack_into("<I", log, places[40][0] + 37, 0x7FFFFFFF)
    path.write_bytes(log)
    with pytest.raises(DataLoss, match="offsets 40 to 40 are damaged"):
        read(directory)
    with caplog.at_level(logging.WARNING, "lading.transports.iggy"):
        found = read(directory, on_loss="skip")
    assert found == [message for message in written_messages("1") if message["offset"] != 40]
    assert any(f"{path}: at byte {places[40][0]} " in each.message for each in caplog.records)


def test_an_unknown_state_hides_only_its_message(directory: Path) -> None:
    path = segments(directory)[0]
    log = bytearray(path.read_bytes())
    at = list(messages_in(bytes(log)))[7][0]
    log[at + 8] = 7
    path.write_bytes(log)
    found = open_transport(url_of(directory)).fetch(TOPIC, 0, 0)
    assert list(found.damaged) == [(7, 8)]


def test_states_on_disk_are_states(directory: Path) -> None:
    path = segments(directory)[0]
    log = bytearray(path.read_bytes())
    log[list(messages_in(bytes(log)))[3][0] + 8] = 20
    path.write_bytes(log)
    assert [message["offset"] for message in read(directory)][:4] == [0, 1, 2, 4]
    shown = [(message["offset"], message["state"]) for message in read(directory, states="all")][:5]
    assert shown == [(0, 1), (1, 1), (2, 1), (3, 20), (4, 1)]


def test_a_directory_is_only_read_and_must_be_one(directory: Path, tmp_path: Path) -> None:
    transport = open_transport(url_of(directory))
    with pytest.raises(LocalError, match="only read"):
        transport.create_topic("t")
    with pytest.raises(LocalError, match="no consumer groups"):
        transport.join("g", [TOPIC])
    with pytest.raises(LocalError, match="did you mean"):
        transport.topic("fixture.stream.order")
    with pytest.raises(LocalError, match="is not a data directory of an Iggy server"):
        open_transport(url_of(tmp_path / "nowhere"))
    (directory / "streams" / "2" / "stream.info").unlink()
    with pytest.raises(CorruptLog, match=r"stream\.info"):
        open_transport(url_of(directory))


def test_a_table_is_made_of_it_without_a_server(directory: Path, tmp_path: Path) -> None:
    executor = LocalExecutor(2)
    try:
        report = ingest(
            executor, url_of(directory), TOPIC, tmp_path / "table", IngestSettings(columns="offset, carrier string")
        )
    finally:
        executor.close()
    assert report.rows == sum(len(written_messages(number)) for number in ("1", "2"))
    table = pq.read_table(tmp_path / "table")
    assert set(table.column("carrier").to_pylist()) <= {"dhl", None}


PIPELINE = """
[pipeline]
id = "orders"

[source]
from = "{source}"
topic = "fixture.stream.orders"

[headers]
carrier = "string required"
delay = "long"

[good]
to = "parquet:./tables/orders"

[[route]]
where = "delay > 100000"
to = "parquet:./tables/late"

[quarantine]
to = "parquet:./tables/quarantine"

[quality]
max_failure_ratio = 0.5
"""


def test_a_pipeline_reads_it(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(PIPELINE.format(source=url_of(directory)))
    assert checked(file) == []
    counts = Driver(file).run()
    written = [message for number in ("1", "2") for message in written_messages(number)]
    headers = [{header["key"]: header["value_hex"] for header in message["headers"]} for message in written]
    delays = [int.from_bytes(bytes.fromhex(one["delay"]), "little") for one in headers if "carrier" in one]
    assert (counts["read"], counts["quarantined"]) == (len(written), len(written) - len(delays))
    late = sorted(delay for delay in delays if delay > 100_000)
    tables = tmp_path / "tables"
    found: list[Any] = pq.read_table(tables / "late").column("delay").to_pylist()
    assert sorted(found) == late
    assert pq.read_table(tables / "orders").num_rows == len(delays) - len(late) > 0
    assert Driver(file).run() == {}


def test_the_command_line_lists_it(directory: Path) -> None:
    program = "from lading.cli.main import main; main()"
    command = [sys.executable, "-c", program, "topic", "list", "--from", url_of(directory)]
    told = forked_command.run(command, timeout=120)
    assert told.returncode == 0, told.stderr
    assert TOPIC in told.stdout
