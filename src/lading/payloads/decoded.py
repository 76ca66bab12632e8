"""Payloads with the id of their schema, as JSON text for a person."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..model.lazy_dataclass import lazy_dataclass
from ..model.message import Message
from ..model.run import Located
from ..schemas.parsed import ParsedSchema
from .form import ID_HEADER, PayloadForm, describe_schema, find_message

OF_FORM: Final = "of the contract"
"""Names a schema that is the reader's, and not that of a payload."""


@lazy_dataclass(frozen=True, slots=True)
class DecodedPayload:
    """A payload as JSON text by the schema of its id or GUID, or the problem that prevents it."""

    name: int | str
    kind: str
    text: str | None
    problem: str | None = None

    @property
    def schema(self) -> str:
        """The id or the GUID of the schema, after the word "id" or "GUID", or that it is of the contract."""
        if self.name == OF_FORM:
            return OF_FORM
        return f"id {self.name}" if isinstance(self.name, int) else f"GUID {self.name}"


def decode_message(form: PayloadForm, message: Message) -> DecodedPayload | None:
    """Return the payload of a message that names its schema, else None. Raises as ``decode_payload``."""
    if message.payload is None:
        return None
    value = next((data for key, _, data in message.headers if key == ID_HEADER), None)
    return decode_payload(form, message.payload, value)


def decode_by_form(form: PayloadForm, message: Message) -> DecodedPayload | None:
    """Return the payload of a message by the schema that it names, or else by the schema of the form.

    Returns None for a payload without either. Raises as ``decode_payload``.
    """
    found = decode_message(form, message)
    if found is not None or message.payload is None or form.schema is None or form.source is not None:
        return found
    schema = form.schema.parse()
    column: pa.Array[Any] = pa.array([message.payload], pa.binary())
    walked = form.walk_column(column, None, ())
    if walked.malformed[0]:
        return DecodedPayload(OF_FORM, schema.kind, None, f"the payload {walked.describe(0)}")
    type_ = find_message(schema, form.message)
    text = _write_text(schema, None if isinstance(type_, str) else type_, message.payload)
    return DecodedPayload(
        OF_FORM, schema.kind, text, None if text is not None else "the payload cannot be written as JSON"
    )


def decode_payload(form: PayloadForm, payload: bytes, id_header: bytes | None) -> DecodedPayload | None:
    """Return a payload that names its schema, in ``id_header`` or in front of it; else None.

    Raises Unreachable if the schema cannot be fetched now.
    """
    column: pa.Array[Any] = pa.array([payload], pa.binary())
    ids = None if id_header is None else _locate(id_header)
    found = describe_schema(form, column, ids)
    if found is None:
        return None
    name, schema, skipped, message = found
    if isinstance(schema, str):
        return DecodedPayload(name, "", None, f"the schema {schema}")
    walked = form.walk_column(column, ids, ())
    if walked.malformed[0]:
        return DecodedPayload(name, schema.kind, None, f"the payload {walked.describe(0)}")
    text = _write_text(schema, message, payload[skipped:])
    return DecodedPayload(
        name, schema.kind, text, None if text is not None else "the payload cannot be written as JSON"
    )


def decode_payloads(form: PayloadForm, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with payloads as JSON if they name their schema and fit it, and unchanged otherwise.

    The batch has the columns headers and payload. Raises Unreachable. It is for samples: each row is decoded by itself.
    """
    made: list[bytes | None] = []
    for headers, payload in zip(batch.column("headers").to_pylist(), batch.column("payload").to_pylist(), strict=True):
        value = next((header["value"] for header in headers or () if header["key"] == ID_HEADER), None)
        found = None if payload is None else decode_payload(form, payload, value)
        made.append(payload if found is None or found.text is None else found.text.encode())
    place = batch.schema.get_field_index("payload")
    return batch.set_column(place, batch.schema.field(place), pa.array(made, batch.schema.field(place).type))


def _locate(value: bytes) -> Located:
    return Located(np.frombuffer(value, np.uint8), np.zeros(1, np.int64), np.array([len(value)]), np.zeros(1, np.int8))


def _write_text(schema: ParsedSchema, message: Any, payload: bytes) -> str | None:
    if message is not None:
        from .protobuf_json import write_message_text

        return write_message_text(message, payload)
    if schema.kind == "AVRO":
        from ..schemas.avro import AvroSchema
        from .avro_datum import write_value

        assert isinstance(schema, AvroSchema)
        return write_value(schema.root, payload)
    return payload.decode()
