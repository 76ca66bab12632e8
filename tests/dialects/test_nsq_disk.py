"""Records of the fork's server: the published ones both ways, topics upgraded half-way, damage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.dialects.nsq import disk
from lading.dialects.registry import dialect, to_batch
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.run import Run
from tests.dialects.nsq import vector, vectors

RECORDS = [entry for entry in vectors()["vectors"] if entry["kind"] == "disk_record"]


@pytest.mark.parametrize("entry", RECORDS, ids=lambda entry: entry["name"])
def test_published_records(entry: dict[str, object]) -> None:
    data, told = bytes.fromhex(str(entry["hex"])), entry["decoded"]
    assert isinstance(told, dict)
    (found,) = disk.read(data)
    assert (found.time_ns, found.attempts, found.marked) == (told["timestamp"], told["attempts"], told["ext_flag"])
    assert found.id == told["id"].to_bytes(8, "big") + told["trace_id"].to_bytes(8, "big")
    assert (found.version, found.ext.decode(), found.body.decode()) == (
        told.get("ext_ver", 0),
        told.get("ext", ""),
        told["body"],
    )
    assert disk.write(found) == data


def test_a_topic_upgraded_half_way_stays_readable() -> None:
    before, after = vector("disk_plain")["bytes"], vector("disk_ext_json")["bytes"]
    first, second = disk.read(before + after)
    assert (first.marked, first.version, first.body) == (False, 0, b"hello")
    assert (second.marked, second.version, second.body) == (True, 4, b"hello")
    assert disk.write(disk.upgrade_record(first)) == vector("disk_ext_none")["bytes"]
    with pytest.raises(MalformedMessage, match="does not allow any"):
        list(disk.read(after, extended=False))
    assert len(list(disk.read(vector("segment_two_messages")["bytes"]))) == 2


def test_records_become_messages_of_ours() -> None:
    (found,) = disk.read(vector("disk_ext_json_attempts3")["bytes"])
    data = disk.to_record(found)
    run = Run(5, np.frombuffer(data, np.uint8), np.array([[0, len(data), 0, 1, 0, 0, 0, 0]]))
    (row,) = to_batch(next(iter(dialect("nsq").decode(run)))).to_pylist()
    assert (row["payload"], row["id"]) == (b"hello", found.id)
    first = row["headers"][0]
    assert (first["key"], first["value"]) == ("##client_dispatch_tag", b"test_tag")


@pytest.mark.parametrize("field", [0x1FA1, 0x2001, 0xBFFF])
def test_other_marks_are_reserved_and_have_no_block(field: int) -> None:
    data = bytearray(vector("disk_plain")["bytes"])
    data[12:14] = field.to_bytes(2, "big")
    (found,) = disk.read(bytes(data))
    assert (found.marked, found.attempts, found.body) == (False, field & 0xFFF, b"hello")


def test_what_no_record_holds() -> None:
    (found,) = disk.read(vector("disk_plain")["bytes"])
    for wrong in (found._replace(attempts=4001), found._replace(version=4, ext=b"{}")):
        with pytest.raises(LimitExceeded):
            disk.write(wrong)


@given(st.binary(max_size=80), st.integers(0, 200))
def test_any_bytes_are_records_or_malformed(noise: bytes, cut: int) -> None:
    data = vector("segment_two_messages")["bytes"]
    for some in (noise, data[:cut], data[: cut % len(data)] + noise + data[cut:]):
        try:
            list(disk.read(some))
        except MalformedMessage:
            continue
