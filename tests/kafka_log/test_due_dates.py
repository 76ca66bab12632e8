"""The header of a delayed publication: put on its way into the cluster, and found in what a channel acquires."""

from __future__ import annotations

from lading.dialects.kafka.encode import ProducerSequence
from lading.kafka_log.due_dates import DEFERRED_UNTIL, add_due_date, find_due_dates
from lading.transports.fitting import fill_missing_columns
from lading.transports.kafka.share import AcquiredMessages, to_run
from lading.transports.kafka.sizes import encode_records
from tests.kafka_log.test_cuts import make_batch


def acquire(due_date_us: int | None) -> AcquiredMessages:
    batch = fill_missing_columns(make_batch([b"zero", b"one"]))
    if due_date_us is not None:
        batch = add_due_date(batch, due_date_us)
    records = bytes(encode_records(batch, 1_000).encode(0, 2, ProducerSequence(1, 0, 0), None))
    return AcquiredMessages(3, to_run("legs", 3, records), [(0, 1, 1)], 30.0)


def test_a_date_is_found_in_what_was_sent() -> None:
    assert find_due_dates([acquire(1_764_324_000_000_000)]) == {
        (3, 0): 1_764_324_000_000_000,
        (3, 1): 1_764_324_000_000_000,
    }
    assert find_due_dates([acquire(None)]) == {}


def test_the_other_headers_stay() -> None:
    batch = fill_missing_columns(make_batch([b"zero"]))
    header = {"key": DEFERRED_UNTIL, "kind": 1, "value": b"7"}
    assert add_due_date(add_due_date(batch, 7), 7)["headers"].to_pylist() == [[header, header]]
