"""``--schema``: payloads that are written as JSON, encoded by a schema of a file or of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from ..model.errors import LocalError
from ..payloads.avro_from_json import encode_json
from ..registry.client import RegistryAddress, RegistryClient
from ..schemas.avro import AvroSchema
from ..schemas.formats import parse_schema
from ..schemas.parsed import InvalidSchema, ParsedSchema

KINDS: Final = {".avsc": "AVRO", ".json": "JSON"}
"""The kind of a schema by the end of its file's name."""


def payload_encoder(schema: str, registry: str | None, topic: str) -> Callable[[bytes], bytes]:
    """Return what encodes JSON texts by ``schema``, a file or a subject of the ``registry``.

    With a registry the payload begins with the id of the schema; one of a file is registered as ``TOPIC-value``.
    Raises LocalError, and the errors of the registry.
    """
    file = Path(schema)
    if file.is_file():
        kind = KINDS.get(file.suffix.lower())
        if kind is None:
            raise LocalError(
                f"--schema {schema}: no kind of schema ends in {file.suffix!r}; name an .avsc or .json file"
            )
        try:
            text = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise LocalError(f"--schema {schema}: cannot be read: {error}; name a file in UTF-8") from None
        parsed = _parse(schema, kind, text)
        if registry is None:
            return lambda payload: _encode(parsed, payload)
        with closing(RegistryClient(RegistryAddress(registry))) as client:
            schema_id = client.register(f"{topic}-value", kind, text)
    else:
        if registry is None:
            raise LocalError(f"--schema {schema}: no such file; name one, or a subject together with --registry URL")
        with closing(RegistryClient(RegistryAddress(registry))) as client:
            schema_id = client.latest_id(schema)
            parsed = client.schema_by_id(schema_id).parse()
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    return lambda payload: prefix + _encode(parsed, payload)


def _parse(schema: str, kind: str, text: str) -> ParsedSchema:
    try:
        return parse_schema(kind, text, is_new=True)
    except InvalidSchema as error:
        raise LocalError(f"--schema {schema}: {error}; correct the file") from None


def _encode(schema: ParsedSchema, payload: bytes) -> bytes:
    if isinstance(schema, AvroSchema):
        return encode_json(schema, payload)
    if schema.kind != "JSON":
        raise LocalError(f"--schema: payloads are not encoded by a schema of {schema.kind}; name one of Avro or JSON")
    try:
        json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise LocalError(f"payload: not JSON: {error}; write it as JSON") from None
    return payload
