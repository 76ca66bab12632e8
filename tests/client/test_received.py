"""Messages as read: headers decoded at the first touch, each message's own."""

from __future__ import annotations

import pyarrow as pa

from lading.client.outgoing import complete
from lading.client.received import to_messages
from lading.model.batch import HEADERS_TYPE, SCHEMA
from lading.model.headers import Header
from lading.model.message import Message
from lading.model.state import State


def batch_of(headers: list[list[tuple[str, int, bytes | None]]]) -> pa.RecordBatch:
    rows = [[dict(zip(("key", "kind", "value"), header, strict=True)) for header in row] for row in headers]
    made = complete(len(rows), {"headers": pa.array(rows, HEADERS_TYPE)})
    columns = {name: made.column(name) for name in SCHEMA.names}
    columns["timestamp"] = pa.array([7] * len(rows), pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def test_headers_are_exact_also_in_a_slice() -> None:
    rows: list[list[tuple[str, int, bytes | None]]] = [
        [("x", 2, b"0")],
        [("a", 2, b"1"), ("b", 1, None), ("a", 12, b"12345678")],
        [],
        [("c", 1, b"")],
    ]
    messages = to_messages(batch_of(rows).slice(1), "s", "t", 3)
    assert [list(message.headers) for message in messages] == [[Header(*header) for header in row] for row in rows[1:]]
    first = messages[0]
    assert isinstance(first, Message)
    assert (first.stream, first.topic, first.partition, first.offset) == ("s", "t", 3, 1)
    assert (first.state, first.timestamp_us, first.payload) == (State.AVAILABLE, 7, None)


def test_changing_one_message_changes_no_other() -> None:
    one, two = to_messages(batch_of([[("a", 2, b"1")], [("a", 2, b"1")]]), "s", "t", 0)
    one.headers.add("b", 2).remove("a")
    assert two.headers.items() == [("a", "1")]
    assert one.headers.items() == [("b", 2)]
    assert one.headers is one.headers
