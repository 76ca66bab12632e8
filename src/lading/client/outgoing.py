"""Outgoing messages as Arrow: checked against what the target can hold, collected, built into batches."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from ..model.batch import HEADER_TYPE, HEADERS_TYPE, ORIGIN_TIMESTAMP, SCHEMA, SCHEMA_WITH_ORIGIN
from ..model.errors import LimitExceeded, LocalError
from ..model.headers import Headers
from ..model.protocol import KIND_MAX, Capabilities
from ..model.state import State
from .header_columns import headers_of_map, is_header_map

OUT_SCHEMA = SCHEMA.set(SCHEMA.get_field_index("timestamp"), pa.field("timestamp", pa.timestamp("us", tz="UTC")))
"""The Batch schema as it is sent: a null timestamp means the time of the append."""
OUT_SCHEMA_WITH_ORIGIN: Final = OUT_SCHEMA.append(SCHEMA_WITH_ORIGIN.field(ORIGIN_TIMESTAMP))
"""The schema of outgoing messages of which some have an origin time."""
ENVELOPE_BYTES = 48
"""Approximate bytes of a message in a batch besides its key, headers and payload."""
PLACES = frozenset({"stream", "topic", "partition"})
"""Columns that say which messages were read; sending a batch ignores them."""


class BatchBuilder:
    """Collects messages for one partition, column by column, until they become a batch."""

    __slots__ = (
        "count",
        "ends",
        "header_keys",
        "header_kinds",
        "header_values",
        "ids",
        "is_adding",
        "keys",
        "payloads",
        "size_bytes",
        "times_us",
    )

    def __init__(self) -> None:
        self.count = 0
        self.is_adding = False
        """Whether a message was added to only some columns: an interrupt may come between any two instructions."""
        self.size_bytes = 0
        self.times_us: list[int | None] = []
        self.keys: list[bytes | None] = []
        self.ids: dict[int, bytes] = {}
        self.payloads: list[bytes | None] = []
        self.header_keys: list[str] = []
        self.header_kinds: list[int] = []
        self.header_values: list[bytes | None] = []
        self.ends: list[int] = [0]

    def add(
        self,
        key: bytes | None,
        headers: Headers,
        payload: bytes | None,
        timestamp_us: int | None,
        size_bytes: int,
        id: bytes | None = None,
    ) -> None:
        """Add one message, which ``weigh`` has accepted; after an interrupt either all of it is added, or nothing."""
        if self.is_adding:
            self._drop_rest()
        self.is_adding = True
        if id is not None:
            self.ids[self.count] = id
        for header_key, kind, value in headers:
            self.header_keys.append(header_key)
            self.header_kinds.append(kind)
            self.header_values.append(value)
        self.ends.append(len(self.header_keys))
        self.keys.append(key)
        self.payloads.append(payload)
        self.times_us.append(timestamp_us)
        self.size_bytes += size_bytes
        self.count += 1
        self.is_adding = False

    def _drop_rest(self) -> None:
        """Remove the columns of a message whose adding an error ended."""
        count = self.count
        for column in (self.keys, self.payloads, self.times_us):
            del column[count:]
        del self.ends[count + 1 :]
        for entries in (self.header_keys, self.header_kinds, self.header_values):
            del entries[self.ends[-1] :]
        self.ids.pop(count, None)
        self.is_adding = False

    def batch(self) -> pa.RecordBatch:
        """Return all messages so far in OUT_SCHEMA."""
        if self.is_adding:
            self._drop_rest()
        entries = pa.StructArray.from_arrays(
            [
                pa.array(self.header_keys, pa.string()),
                pa.array(self.header_kinds, pa.int8()),
                pa.array(self.header_values, pa.binary()),
            ],
            fields=list(HEADER_TYPE),
        )
        headers = pa.ListArray.from_arrays(pa.array(self.ends, pa.int32()), entries, type=HEADERS_TYPE)
        ids = {"id": pa.array(map(self.ids.get, range(self.count)), OUT_SCHEMA.field("id").type)} if self.ids else {}
        return complete(
            self.count,
            ids
            | {
                "timestamp": pa.array(self.times_us, pa.int64()).cast(OUT_SCHEMA.field("timestamp").type),
                "key": pa.array(self.keys, pa.binary()),
                "headers": headers,
                "payload": pa.array(self.payloads, pa.binary()),
            },
        )


def complete(rows: int, columns: dict[str, pa.Array[Any]]) -> pa.RecordBatch:
    """Return a batch in OUT_SCHEMA of these columns; by default values are null, states available, headers empty.

    With origin times among the columns it is in OUT_SCHEMA_WITH_ORIGIN.
    """
    import numpy as np

    def absent(name: str) -> Any:
        if name == "offset":
            return pa.array(np.arange(rows, dtype=np.int64))
        if name == "state":
            return pa.array(np.full(rows, int(State.AVAILABLE), np.int8))
        if name == "headers":
            none = pa.StructArray.from_arrays(
                [pa.array([], field.type) for field in HEADER_TYPE], fields=list(HEADER_TYPE)
            )
            return pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32), pa.int32()), none, type=HEADERS_TYPE)
        return pa.nulls(rows, OUT_SCHEMA.field(name).type)

    schema = OUT_SCHEMA_WITH_ORIGIN if ORIGIN_TIMESTAMP in columns else OUT_SCHEMA
    made = [columns[name] if name in columns else absent(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def normal(batch: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """Return a user's batch or table in OUT_SCHEMA; it need not have all of the Batch columns.

    Raises LocalError for a column that is not a message field, or whose type cannot be cast.
    """
    fields = SCHEMA_WITH_ORIGIN.names
    strange = [name for name in batch.schema.names if name not in fields and name not in PLACES]
    if strange:
        raise LocalError(
            f"a batch to send has the columns {', '.join(fields)}, not {', '.join(map(repr, strange))}; "
            "write_arrow makes headers of columns"
        )
    parts = [batch] if isinstance(batch, pa.RecordBatch) else batch.combine_chunks().to_batches()
    return [
        complete(
            part.num_rows,
            {name: as_field(part.column(name), name, name) for name in fields if name in part.schema.names},
        )
        for part in parts
    ]


def as_field(column: Any, shown: str, field: str) -> Any:
    """Return the column cast to the type of a message field. Raises LocalError with its name ``shown`` otherwise."""
    wanted = OUT_SCHEMA_WITH_ORIGIN.field(field).type
    if column.type == wanted:
        return column
    if field == "headers" and is_header_map(column.type):
        return headers_of_map(column)
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise LocalError(
            f"column {shown!r} is {column.type} and cannot be a message's {field}: {error}; cast it to {wanted}"
        ) from None


@lru_cache(4096)
def _key_bytes(key: str) -> int:
    try:
        return len(key.encode())
    except UnicodeEncodeError as error:
        raise LocalError(
            f"header key {key!r} cannot be UTF-8 text: {error.reason}; take unpaired surrogates out of it"
        ) from None


def weigh(
    limits: Capabilities, key: bytes | None, headers: Headers, payload: bytes | None, timestamp_us: int | None
) -> int:
    """Return about how many bytes the message takes in a batch.

    Raises LimitExceeded, naming header and limit, if the message is too large for the target; LocalError if the target
    cannot express it.
    """
    values_bytes = keys_bytes = 0
    key_min, key_max, value_max = limits.name_bytes_min, limits.name_bytes_max, limits.value_bytes_max
    for name, kind, value in headers:
        size = _key_bytes(name)
        if not key_min <= size <= key_max:
            raise LimitExceeded(f"header key {name[:40]!r} has {size} bytes; the target accepts {key_min} to {key_max}")
        if not 0 <= kind <= KIND_MAX:
            raise LocalError(f"header {name!r} has kind {kind}; kinds are 0 to {KIND_MAX}")
        keys_bytes += size
        if value is not None:
            if len(value) > value_max:
                raise LimitExceeded(
                    f"header {name!r} has a value of {len(value)} bytes; the target accepts {value_max}"
                )
            values_bytes += len(value)
    if values_bytes > limits.values_sum_max:
        largest = max(headers, key=lambda header: len(header.value or b""))
        raise LimitExceeded(
            f"the header values have {values_bytes} bytes in sum; the target accepts {limits.values_sum_max} "
            f"(the largest is {largest.key!r} with {len(largest.value or b'')})"
        )
    payload_bytes = 0 if payload is None else len(payload)
    if payload_bytes > limits.payload_bytes_max:
        raise LimitExceeded(f"the payload has {payload_bytes} bytes; the target accepts {limits.payload_bytes_max}")
    if not limits.keeps_shape:
        _refuse(limits, key, headers, payload, timestamp_us)
    return ENVELOPE_BYTES + keys_bytes + values_bytes + payload_bytes + (0 if key is None else len(key))


def _refuse(
    limits: Capabilities, key: bytes | None, headers: Headers, payload: bytes | None, timestamp_us: int | None
) -> None:
    """Raise LocalError for the first part of the message that the target cannot express."""
    entries = list(headers)
    names = [header.key for header in entries]
    repeated = [name for at, name in enumerate(names) if name in names[:at]]
    null = [header.key for header in entries if header.value is None]
    empty = [header.key for header in entries if header.value == b""]
    has_time = timestamp_us is not None
    facts = (
        ("duplicate headers", limits.duplicate_keys, f"header {repeated[0]!r}" if repeated else ""),
        ("empty headers", limits.empties, f"header {empty[0]!r}" if empty else ""),
        ("empty payload", limits.empty_payload, "the payload" if payload == b"" else ""),
        ("message key", limits.key, "the message key" if key is not None else ""),
        ("null headers", limits.nulls, f"header {null[0]!r}" if null else ""),
        ("null payload", limits.null_payload, "the payload" if payload is None else ""),
        ("timestamp", limits.time_step_us is not None, "the timestamp" if has_time else ""),
    )
    for lack, is_kept, found in facts:
        if found and not is_kept:
            raise LocalError(f"the target has no form for {lack} ({found}); without strict=True it travels by carrier")
