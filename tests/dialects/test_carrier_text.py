"""What Kafka readers get can be decoded as UTF-8, and what older versions sent is still read."""

from __future__ import annotations

import random

import pytest

from lading.dialects.carrier import NAME, carry, restore
from lading.dialects.carrier.encoding import Facts, decode, encode, printable
from lading.dialects.carrier.layout import HEADERS_MAX, TEXT_BYTES_MAX
from lading.dialects.kafka.carrier_decoding import decode_located
from lading.dialects.kafka.encode import RecordEncoder
from lading.dialects.kafka.messages import decode_columns
from lading.model.errors import LocalError, MalformedMessage
from lading.model.scan_request import ScanRequest
from lading.transports.fitting import fit_to_target
from tests.dialects.kafka import run_of
from tests.dialects.targets import TARGETS
from tests.dialects.test_carrier import Row, batch_of, rows_of
from tests.dialects.test_carrier_origin import origins_of, with_origins
from tests.dialects.test_kafka_carrying import random_row, times_of

ID = bytes(range(16))


@pytest.mark.parametrize("size", range(12))
def test_printable_bytes_read_back(size: int) -> None:
    facts = Facts(key=bytes(range(size)))
    text = printable(encode(facts))
    assert text.decode("ascii").isprintable()
    assert decode(text) == decode(encode(facts)) == facts
    for bad in (text[:-1], text + b"A", text + b"=", text + b"\n", text.replace(b"v1:", b"v2:"), b"v1:"):
        with pytest.raises(MalformedMessage):
            decode(bad)


def test_a_message_without_headers_and_id_reaches_kafka_without_a_carrier(half: str) -> None:
    batch = batch_of([(None, b"k", [], b"x", 1_700_000_000_123_456), (None, None, [("a", 1, b"b")], b"x", 1)])
    assert carry(batch, TARGETS["kafka"]).batch is batch
    records = RecordEncoder.carrying(batch, times_of(batch))
    assert records is not None
    (read,) = decode_columns(run_of(bytes(records.encode(0, 2))))
    assert [[header["key"] for header in row] for row in read.columns["headers"].to_pylist() if row is not None] == [
        [],
        ["a"],
    ]


def test_strict_refuses_a_time_that_is_cut() -> None:
    batch = batch_of([(None, None, [], b"x", 1_700_000_000_123_456)])
    assert fit_to_target(batch, TARGETS["kafka"], "Kafka", strict=False) is batch
    with pytest.raises(LocalError, match="cannot hold every fact"):
        fit_to_target(batch, TARGETS["kafka"], "Kafka", strict=True)


def test_carriers_of_older_versions_are_read_where_they_lie(half: str) -> None:
    rng = random.Random(20261123)
    given = batch_of([random_row(rng) for _ in range(120)])
    shown = carry(given, TARGETS["kafka"]).batch
    before: list[Row] = [
        (id_, key, [(name, kind, encode(decode(value or b"")) if name == NAME else value) for name, kind, value in row],
         payload, time_us)
        for id_, key, row, payload, time_us in rows_of(shown)
    ]  # fmt: skip
    restored = rows_of(restore(shown))
    assert rows_of(restore(batch_of(before))) == restored
    # and located, without decoding whole messages
    records = RecordEncoder(batch_of(before), times_of(given))
    run = run_of(bytes(records.encode(0, given.num_rows)))
    keys = ("a", "b", "k" * 8)
    request = ScanRequest(0, given.num_rows, frozenset({"offset", "id"}), keys, max_rows=1000, max_bytes=1 << 30)
    found = list(decode_located(run, request))
    text = RecordEncoder(shown, times_of(given))
    again = list(decode_located(run_of(bytes(text.encode(0, given.num_rows))), request))
    for one, other in zip(found, again, strict=True):
        assert one.columns["id"].equals(other.columns["id"])
        for key in keys:
            assert one.located[key].kind.tolist() == other.located[key].kind.tolist()


@pytest.mark.parametrize("count", [127, 128, HEADERS_MAX])
def test_carriers_of_many_headers_fit_the_room_of_kernels(half: str, count: int) -> None:
    headers = [(f"h{number}", 6, b"\0" * 4) for number in range(count)]
    batch = with_origins(batch_of([(ID, None, list(headers), b"x", 1_700_000_000_123_456)]), [7])
    carried = carry(batch, TARGETS["kafka"]).batch
    size = len(carried.column("headers")[0].as_py()[-1]["value"])
    assert size <= TEXT_BYTES_MAX and (size == TEXT_BYTES_MAX) is (count == HEADERS_MAX)
    restored = restore(with_origins(carried, [None]))
    assert (rows_of(restored), origins_of(restored)) == (rows_of(batch), [7])
