"""Payloads that are written as JSON, encoded by a schema of a file or of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.errors import LocalError, SettingError
from ..model.lazy_dataclass import lazy_dataclass
from ..payloads.form import KINDS, SchemaText, find_message
from ..schemas.parsed import InvalidSchema, ParsedSchema
from ..schemas.subjects import STRATEGIES, TOPIC, build_subject, list_record_names
from .client import RegistryAddress, RegistryClient
from .payload_form import SUFFIXES, is_schema_text, parse_schema_imports, read_schema_file

if TYPE_CHECKING:
    from ..schemas.protobuf_types import MessageType


@lazy_dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema of written payloads, with its id if payloads begin with one; it can be sent to other processes."""

    schema: SchemaText
    schema_id: int | None = None
    message: str = ""
    """The message's name in a file of Protobuf; empty for the first one."""

    def make_encoder(self) -> Callable[[bytes], bytes]:
        """Return a function that encodes a JSON text."""
        return _make_encoder(self)


def find_writer_schema(
    schema: str,
    topic: str,
    *,
    kind: str | None = None,
    registry: str | None = None,
    subject: str | None = None,
    subject_strategy: str | None = None,
    message: str = "",
    option: str = "--schema",
) -> WriterSchema:
    """Return the schema that ``schema`` names: a file, the text of one of ``kind``, or a subject of ``registry``.

    With a registry payloads begin with the id of the schema; one of a file is registered as ``subject``, by default
    the one of ``subject_strategy``, of which ``TOPIC``, ``TOPIC-value``, is the default. ``option`` is what errors
    name. Raises LocalError, and the errors of the registry.
    """
    _check_strategy(subject_strategy, subject, registry)
    text = _read_schema(schema, kind, registry, option, message)
    if text is None:
        assert registry is not None
        with closing(RegistryClient(RegistryAddress(registry))) as client:
            schema_id = client.latest_id(schema)
            found = client.schema_by_id(schema_id)
        if kind is not None and found.kind != kind:
            raise LocalError(f"{option} {schema}: its newest schema is of {found.kind}; name a subject of {kind}")
        imports = tuple((one.name, one.text) for one in found.resolved)
        newest = WriterSchema(SchemaText(found.kind, found.text, imports), schema_id, message)
        return _check_message(newest, option, needs_indexes=True)
    try:
        text.parse().require_valid()
    except InvalidSchema as error:
        raise LocalError(f"{option} {schema[:200]}: {error}; correct the file") from None
    writer = _check_message(WriterSchema(text, None, message), option, needs_indexes=registry is not None)
    if registry is None:
        return writer
    if text.imports:
        raise LocalError(
            f"{option} {schema}: imports {text.imports[0][0]}, and files with imports are not registered; register "
            "them with their references, and name the subject"
        )
    with closing(RegistryClient(RegistryAddress(registry))) as client:
        named = subject or _find_subject(subject_strategy or TOPIC, topic, writer, f"{option} {schema[:200]}")
        schema_id = client.register(named, text.kind, text.text)
    return WriterSchema(text, schema_id, message)


def _check_strategy(strategy: str | None, subject: str | None, registry: str | None) -> None:
    """Raise SettingError for an unknown strategy, and for one that names nothing."""
    if strategy is None:
        return
    if strategy not in STRATEGIES:
        raise SettingError(f"subject_strategy is {strategy!r}; it takes {', '.join(STRATEGIES)}")
    if registry is None:
        raise SettingError(f"subject_strategy {strategy}: subjects are those of a registry; add registry, its URL")
    if subject is not None:
        raise SettingError(f"subject_strategy {strategy}: the subject is named, {subject!r}; leave one of them out")


def _find_subject(strategy: str, topic: str, writer: WriterSchema, option: str) -> str:
    """Return the subject as which a schema is registered. Raises LocalError for a schema without a record's name."""
    parsed = writer.schema.parse()
    message = find_message(parsed, writer.message)
    names = list_record_names(parsed) if message is None else [message.name]
    subject = build_subject(strategy, topic, next(iter(names), None))
    if subject is None:
        needs = "a title" if parsed.kind == KINDS["json"] else "a named type at its root"
        raise LocalError(
            f"{option}: subject_strategy {strategy} takes the name of the record, and the schema has none; "
            f"give it {needs}, or name the subject"
        )
    return subject


def _check_message(writer: WriterSchema, option: str, *, needs_indexes: bool) -> WriterSchema:
    """Return the schema, which has the message, with ``needs_indexes`` in its own file. Raises LocalError."""
    parsed = writer.schema.parse()
    if writer.message and parsed.kind != KINDS["protobuf"]:
        raise LocalError(f"{option}: a schema of {parsed.kind} has no message {writer.message!r}; leave it out")
    found = find_message(parsed, writer.message)
    if found is not None and needs_indexes and _find_indexes(parsed, found) is None:
        raise LocalError(
            f"{option}: the message {found.name} is of an imported file, and ids of schemas name those of the file "
            "itself; name the subject of that file"
        )
    return writer


def _find_indexes(schema: ParsedSchema, message: MessageType) -> tuple[int, ...] | None:
    from ..schemas.protobuf import ProtobufSchema
    from ..schemas.protobuf_types import resolve_messages

    assert isinstance(schema, ProtobufSchema)
    return resolve_messages(schema).find_indexes(message)


def _read_schema(schema: str, kind: str | None, registry: str | None, option: str, message: str) -> SchemaText | None:
    """Return the schema of a file, or of a text; None if it is the name of a subject."""
    if is_schema_text(schema):
        if kind is None:
            raise LocalError(f"{option}: a text does not say which kind of schema it is; name a file")
        return SchemaText(kind, schema)
    file = Path(schema)
    if not file.is_file():
        if registry is None:
            raise LocalError(f"{option} {schema}: no such file; name one, or a subject together with --registry URL")
        return None
    kinds = {suffix: KINDS[format_] for suffix, format_ in SUFFIXES.items()}
    known = kinds.get(file.suffix.lower(), kind)
    if known is None or (kind is not None and known != kind):
        wanted = ", ".join(suffix for suffix, name in kinds.items() if kind in (None, name))
        raise LocalError(f"{option} {schema}: no kind of schema ends in {file.suffix!r}; name a file of {wanted}")
    try:
        text, imports = read_schema_file(file, message)
    except SettingError as error:
        raise LocalError(f"{option} {schema}: {error}") from None
    return SchemaText(known, text, parse_schema_imports(imports))


@lru_cache(maxsize=64)
def _make_encoder(writer: WriterSchema) -> Callable[[bytes], bytes]:
    schema = writer.schema.parse()
    prefix = b"" if writer.schema_id is None else b"\0" + writer.schema_id.to_bytes(4, "big")
    if schema.kind == KINDS["avro"]:
        from ..payloads.avro_from_json import encode_json as encode_avro
        from ..schemas.avro import AvroSchema

        assert isinstance(schema, AvroSchema)
        avro = schema
        return lambda payload: prefix + encode_avro(avro, payload)
    if schema.kind == KINDS["protobuf"]:
        from ..payloads.protobuf_from_json import encode_json as encode_protobuf
        from ..payloads.protobuf_json import write_varint

        found = find_message(schema, writer.message)
        assert found is not None
        message = found
        if writer.schema_id is not None:
            indexes = _find_indexes(schema, message)
            assert indexes is not None
            # the indexes of a file's first message are one byte, 0
            numbers = [0] if indexes == (0,) else [2 * number for number in (len(indexes), *indexes)]
            prefix += b"".join(map(write_varint, numbers))
        return lambda payload: prefix + encode_protobuf(message, payload)
    return lambda payload: prefix + _require_json(payload)


def _require_json(payload: bytes) -> bytes:
    try:
        json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise LocalError(f"payload: not JSON: {error}; write it as JSON") from None
    return payload
