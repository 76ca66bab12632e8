"""``nsq-files://``: files that a real nsqd wrote, the fork's, torn tails and damage."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lading
from lading.dialects.nsq import disk
from lading.model.errors import DataLoss, LadingError, LocalError
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.local import LocalExecutor
from lading.transports.open import open_transport
from tests import forked_command
from tests.dialects.nsq import vector

VECTORS = Path(__file__).parent.parent / "vectors"
WAITING = [b"flight %d" % number for number in (7, 8, 9, 10, 11, 6)]
"""The last of them was in flight when nsqd ended, which put it into another file."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The files that nsqd 1.3.0 left."""
    data = tmp_path / "nsqd"
    data.mkdir()
    for name, text in json.loads((VECTORS / "nsqd_files.json").read_text())["files"].items():
        (data / name).write_bytes(bytes.fromhex(text))
    return data


def url_of(directory: Path) -> str:
    return f"nsq-files://{directory}"


def read(directory: Path, topic: str, **options: Any) -> list[bytes | None]:
    return [message.payload for message in lading.Consumer(url_of(directory), topic, end="latest", **options)]


def record(number: int, body: bytes, ext: bytes | None = None) -> bytes:
    """A record of the fork's, of a topic that takes exts."""
    version = 0 if ext is None else 4
    return disk.write(disk.DiskMessage(number * 1_000_000, 0, bytes(15) + b"\1", True, version, ext or b"", body))


def make_forked(path: Path, *segments: bytes, topic: str = "t1") -> Path:
    """A data path of the fork's with the segments of one topic; each but the last is closed."""
    (path / topic).mkdir(parents=True)
    count = 0
    for number, data in enumerate(segments):
        file = path / topic / f"{topic}-0.diskqueue.{number:06d}.dat"
        file.write_bytes(data)
        count += len(disk.find_records(data).starts)
        if number + 1 < len(segments):
            file.with_name(f"{file.name}.offsetmeta.dat").write_text(f"{count}\n0,{len(data)}\n")
    (path / topic / f"{topic}-0.diskqueue.meta.extra.dat").write_bytes(vector("extra_meta")["bytes"])
    return path


def test_what_waits_in_the_queues_of_a_real_nsqd(directory: Path) -> None:
    assert [topic.name for topic in open_transport(url_of(directory)).topics()] == [
        "flights",
        "flights:archive",
        "orders",
    ]
    assert read(directory, "orders") == [b"order %d" % number for number in range(12)]
    assert read(directory, "flights:archive") == WAITING
    assert read(directory, "flights") == []
    (first, *_, last) = lading.Consumer(url_of(directory), "flights:archive", end="latest")
    assert first.id is not None and len(first.id) == 16
    assert last.timestamp_us < first.timestamp_us


def test_a_record_that_is_being_written_is_read_when_it_is_whole(directory: Path) -> None:
    path = directory / "orders.diskqueue.000001.dat"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    transport = open_transport(url_of(directory))
    ((part,),) = [transport.topic("orders").partitions]
    first = transport.fetch("orders", 0, part.end_offset)
    assert (first.runs, first.end_offset) == ([], part.end_offset)
    path.write_bytes(whole)
    again = transport.fetch("orders", 0, part.end_offset)
    assert [len(run.chunks) for run in again.runs] == [1] and again.end_offset == part.end_offset + 1
    assert len(read(directory, "orders")) == 12


def test_after_a_length_that_cannot_be_the_next_file_is_read(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = directory / "orders.diskqueue.000000.dat"
    data = bytearray(path.read_bytes())
    second = disk.find_records(bytes(data)).starts[2]
    data[second : second + 4] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(DataLoss):
        read(directory, "orders")
    with caplog.at_level(logging.WARNING, "lading.transports.nsq"):
        found = read(directory, "orders", on_loss="skip")
    assert found == [b"order %d" % number for number in (0, 1, 6, 7, 8, 9, 10, 11)]
    assert f"{path}: at byte {second} a record claims 2147483647 bytes" in caplog.text


def test_a_message_with_a_bad_ext_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = bytearray(record(2, b"bad", b'{"a":"b"}'))
    bad[31:33] = b"\xff\xff"
    first = record(1, b"one", b'{"carrier":"UA"}')
    path = make_forked(tmp_path / "fork", first + bytes(bad) + record(3, b"three"))
    with caplog.at_level(logging.WARNING, "lading.transports.nsq"):
        assert read(path, "t1", on_loss="skip") == [b"one", b"three"]
    assert f"at byte {len(first)} an ext is longer than its record" in caplog.text
    with pytest.raises(DataLoss):
        read(path, "t1")


def test_a_wrong_meta_file_is_reported_and_everything_is_read(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "flights:archive.diskqueue.meta.dat").write_bytes(b"\xff\n1,x\n")
    with caplog.at_level(logging.WARNING, "lading.transports.nsq"):
        assert read(directory, "flights:archive") == [b"flight 6", *WAITING]
    assert caplog.text.count("not a position in a queue") >= 1


def test_the_forks_files_with_their_headers(tmp_path: Path) -> None:
    segment = vector("segment_two_messages")["bytes"]
    path = make_forked(tmp_path / "fork", segment, vector("disk_plain")["bytes"] + record(5, b"last"))
    found = list(lading.Consumer(url_of(path), "t1", end="latest"))
    assert [(each.offset, each.payload) for each in found] == [
        (0, b"hello"), (1, b"world!"), (2, b"hello"), (3, b"last")
    ]  # fmt: skip
    assert [(header.key, header.value) for header in found[0].headers] == [
        ("##client_dispatch_tag", b"test_tag"),
        ("custom_header1", b"test_header"),
    ]
    assert open_transport(url_of(path)).offset_at("t1", 0, 1_700_000_000_000_001) == 4
    # the first segment is deleted: offsets are counted from what its meta file says
    (path / "t1" / "t1-0.diskqueue.000000.dat").unlink()
    assert [each.offset for each in lading.Consumer(url_of(path), "t1", end="latest")] == [2, 3]


def test_a_directory_is_only_read_and_must_be_one(directory: Path, tmp_path: Path) -> None:
    transport = open_transport(url_of(directory))
    with pytest.raises(LocalError, match="only read; send to a server"):
        transport.create_topic("t")
    with pytest.raises(LocalError, match="read without a group"):
        transport.join("g", ["orders"])
    with pytest.raises(LocalError, match="flights:archive"):
        transport.topic("flights:archiv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LocalError, match="is not a data path of nsqd"):
        open_transport(url_of(tmp_path / "empty"))


def test_a_table_is_made_of_it_and_goes_on_where_it_was(directory: Path, tmp_path: Path) -> None:
    def load() -> list[Any]:
        executor = LocalExecutor(1)
        try:
            ingest(executor, url_of(directory), "orders", tmp_path / "table", IngestSettings(columns="offset, payload"))
        finally:
            executor.close()
        found: list[Any] = pq.read_table(tmp_path / "table").column("payload").to_pylist()
        return sorted(found)

    assert load() == sorted(b"order %d" % number for number in range(12))
    data = (directory / "orders.diskqueue.000001.dat").read_bytes()
    (directory / "orders.diskqueue.000002.dat").write_bytes(data[: disk.find_records(data).starts[1]])
    assert len(load()) == 13
    # nsqd has deleted a file: numbers mean other messages now, and nobody goes on with them
    (directory / "orders.diskqueue.000000.dat").unlink()
    (directory / "orders.diskqueue.meta.dat").write_text("7\n1,0\n2,38\n")
    assert read(directory, "orders") == [*(b"order %d" % number for number in range(6, 12)), b"order 6"]
    with pytest.raises(LadingError):
        load()


def test_the_command_line_lists_it(directory: Path) -> None:
    program = "from lading.cli.main import main; main()"
    command = [sys.executable, "-c", program, "topic", "list", "--from", url_of(directory)]
    told = forked_command.run(command, timeout=120)
    assert "flights:archive" in told.stdout, told.stderr
