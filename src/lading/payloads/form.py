"""The form of payloads: format, schema, and how a payload names its schema; one function walks all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..kernels.arrays import Bytes, Longs
from ..kernels.entries import view_binary
from ..model.errors import SettingError
from ..model.lazy_dataclass import lazy_dataclass
from ..model.run import Located
from ..schemas.parsed import InvalidSchema, ParsedSchema, ResolvedReference
from ..schemas.subjects import TOPIC, build_subject, list_record_names
from .found import FoundValues, WalkedPayloads
from .identity import IdentityValues, SchemaIdentity
from .layout import (
    SCHEMA_FIRST,
    VERDICT_MISMATCH,
    VERDICT_TOMBSTONE,
    VERDICT_UNFRAMED,
    VERDICT_UNKNOWN,
)
from .paths import KEY, KEY_ROOT, PAYLOAD, SCHEMA_PARTS, SCHEMA_ROOT, VALUE, Path
from .split import SplitValues
from .texts import walk_texts
from .walk import walk_json_spans

if TYPE_CHECKING:
    from ..schemas.protobuf_types import MessageType

ID_HEADER: Final = "__value_schema_id"
"""The header with the id of a payload's schema, as Confluent's serialisers write it."""
KEY_ID_HEADER: Final = "__key_schema_id"
"""The header with the id of the key's schema."""
_ID_HEADERS: Final = {VALUE: ID_HEADER, KEY: KEY_ID_HEADER}
TEXT_FORMAT: Final = "text"
ID_BYTES, GUID_BYTES = 4, 16
INDEX_BYTES_MAX: Final = 256
"""Size limit of the indexes that select a message in a Protobuf schema."""
_ID_MAGIC, _GUID_MAGIC = 0, 1
KINDS: Final[Mapping[str, str]] = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
"""Formats by the names that registries have for them."""
Indexes = NDArray[np.int64]


class SchemaSource(Protocol):
    """A source of schemas by their ids. Sources of the same registry are equal; they can be pickled."""

    def find_by_id(self, schema_id: int) -> ParsedSchema | None:
        """Return the schema with an id, or None if it does not exist. Raises Unreachable, or InvalidSchema."""
        ...

    def find_by_guid(self, guid: str) -> ParsedSchema | None:
        """Return the schema with a GUID; otherwise as ``find_by_id``."""
        ...

    def identify(self, name: int | str) -> SchemaIdentity | None:
        """Return the registry's facts about the schema with an id or GUID, or None if it does not exist.

        Raises Unreachable.
        """
        ...


@lazy_dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as text, with the files that it imports."""

    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()

    def parse(self) -> ParsedSchema:
        """Return the schema. Raises InvalidSchema."""
        return _parse(self)


@lru_cache(maxsize=64)
def _parse(schema: SchemaText) -> ParsedSchema:
    from ..schemas.formats import parse_schema

    return parse_schema(
        schema.kind, schema.text, [ResolvedReference(name, text) for name, text in schema.imports], is_new=False
    )


@lazy_dataclass(frozen=True, slots=True)
class PayloadForm:
    """How payloads are read.

    ``format`` is the format of payloads; if it is ``schema``, each payload has the format of its schema, which
    ``source`` finds by its id. With a source, ``schema`` is the reader's schema, otherwise the writer's. ``prefix``
    says whether an id is before the payload: ``confluent``, ``none``, or ``auto`` to look for it. ``message`` selects
    the message of a Protobuf ``schema``; empty for the first.
    """

    format: str = "json"
    schema: SchemaText | None = None
    source: SchemaSource | None = None
    prefix: str = "auto"
    message: str = ""
    key: PayloadForm | None = None
    """How keys are read, None for JSON."""
    subject_strategy: str = TOPIC
    """How the schemas of payloads are named in the registry, one of STRATEGIES."""

    def list_headers(self, paths: Iterable[Path]) -> tuple[str, ...]:
        """Return the headers that ``walk`` needs located for these paths."""
        headers: dict[str, None] = {}
        for path in paths:
            if path[:1] == (SCHEMA_ROOT,):
                headers[_ID_HEADERS[path[1]]] = None
            elif path[:1] == (KEY_ROOT,):
                headers |= dict.fromkeys((KEY_ID_HEADER,) if (self.key or JSON_FORM)._has_id_header else ())
            else:
                headers |= dict.fromkeys((ID_HEADER,) if self._has_id_header else ())
        return tuple(headers)

    @property
    def header_keys(self) -> tuple[str, ...]:
        """The headers to locate for paths into payloads."""
        return (ID_HEADER,) if self._has_id_header else ()

    @property
    def _has_id_header(self) -> bool:
        return self.has_schema and self.prefix == "auto"

    @property
    def reads_json(self) -> bool:
        """Whether payloads are JSON without a schema, as servers assume."""
        return not self.has_schema and self.format == "json"

    @property
    def has_schema(self) -> bool:
        """Whether payloads are read by a schema, which may be unknown, or not fit the columns."""
        return self.source is not None or self.schema is not None

    def walk(
        self, fields: Mapping[str, pa.Array[Any]], located: Mapping[str, Located], paths: Iterable[Path],
        topic: str = "",
    ) -> WalkedPayloads:  # fmt: skip
        """Return the values at ``paths`` in the binary columns of ``find_fields``. Each payload is validated as a
        whole.

        ``located`` has the headers of ``list_headers``; ``topic`` selects among the subjects of a schema. Raises
        Unreachable if a schema cannot be fetched now.
        """
        wanted = tuple(dict.fromkeys(paths))
        roots = {root: tuple(path for path in wanted if path[:1] == (root,)) for root in (KEY_ROOT, SCHEMA_ROOT)}
        own = tuple(path for path in wanted if path[:1] not in ((KEY_ROOT,), (SCHEMA_ROOT,)))
        if len(own) == len(wanted):
            return self.walk_column(fields[PAYLOAD], located.get(ID_HEADER), own)
        values: dict[Path, FoundValues] = {}
        keys = walked = None
        if roots[KEY_ROOT]:
            inside = {path: path[1:] for path in roots[KEY_ROOT]}
            form = self.key or JSON_FORM
            keys = form.walk_column(fields[KEY], located.get(KEY_ID_HEADER), tuple(inside.values()))
            values |= {path: keys.values[inner] for path, inner in inside.items()}
        if roots[SCHEMA_ROOT]:
            values |= self._identify(fields, located, roots[SCHEMA_ROOT], topic)
        if own:
            walked = self.walk_column(fields[PAYLOAD], located.get(ID_HEADER), own)
            return WalkedPayloads({**walked.values, **values}, walked.verdict, walked.position, walked.notes, keys)
        rows = len(next(iter(fields[name] for name in find_fields(wanted))))
        return WalkedPayloads(values, np.zeros(rows, np.uint8), np.zeros(rows, np.int64), None, keys)

    def _identify(
        self, fields: Mapping[str, pa.Array[Any]], located: Mapping[str, Located], paths: tuple[Path, ...], topic: str
    ) -> dict[Path, FoundValues]:
        """Return the schemas of payloads and keys, or parts of them."""
        whole: dict[str, IdentityValues] = {}
        for name in dict.fromkeys(path[1] for path in paths):
            form = self if name == VALUE else self.key or JSON_FORM
            source = form.source or self.source
            whole[name] = _identify_column(
                fields[PAYLOAD if name == VALUE else KEY], located.get(_ID_HEADERS[name]), form.prefix, source,
                partial(_list_subjects, form.subject_strategy, topic, name, source),
            )  # fmt: skip
        return {path: IdentityValues(whole[path[1]].columns, "".join(path[2:])) for path in paths}

    def walk_column(self, payloads: pa.Array[Any], ids: Located | None, wanted: tuple[Path, ...]) -> WalkedPayloads:
        """Return the values at paths in a binary column; schema ids are in a header, if that is located."""
        data, begin, size = _view_spans(payloads)
        if self.format == TEXT_FORMAT:
            return walk_texts(data, begin, size, wanted)
        if self.source is not None:
            return _walk_by_id(self, self.source, data, begin, size, ids, wanted)
        if self.schema is None:
            return walk_json_spans(data, begin, size, wanted)
        return _walk_by_schema(self, self.schema.parse(), data, begin, size, ids, wanted)


JSON_FORM: Final = PayloadForm()


def find_fields(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return the message fields that paths lead into: key, payload, or both."""
    fields = {
        KEY if path[:1] == (KEY_ROOT,) or path[:2] == (SCHEMA_ROOT, KEY) else PAYLOAD for path in paths
    }  # fmt: skip
    return tuple(sorted(fields))


def _view_spans(payloads: pa.Array[Any]) -> tuple[Bytes, Longs, Longs]:
    """Return the bytes of a binary column, with the position and size of each value; a null has size -1."""
    ends, data = view_binary(payloads)
    begin, size = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    if payloads.null_count:
        size[payloads.is_null().to_numpy(zero_copy_only=False)] = -1
    return data, begin, size


def _identify_column(
    values: pa.Array[Any], ids: Located | None, prefix: str, source: SchemaSource | None,
    list_subjects: Callable[[int | str], Collection[str]],
) -> IdentityValues:  # fmt: skip
    """Return the schemas that values name by ids, in the header, or in front of them unless ``prefix`` is ``none``.

    ``list_subjects`` returns the possible subjects, for schemas with several.
    """
    data, begin, size = _view_spans(values)
    if prefix == "none":
        size = np.full(len(size), -1, np.int64)
    found = _find_ids(data, begin, size, ids)
    held: dict[str, list[Any]] = {name: [] for name in SCHEMA_PARTS}
    places = np.full(len(size), -1, np.int64)
    for name, rows in _group_rows(found):
        identity = source.identify(name) if source is not None else None
        if identity is None:
            identity = SchemaIdentity(*((name, None) if isinstance(name, int) else (None, name)))
        version = identity.choose_version(list_subjects(name))
        places[rows] = len(held["id"])
        for part, value in zip(SCHEMA_PARTS, (identity.schema_id, identity.guid, *version), strict=True):
            held[part].append(value)
    types = {"id": pa.int64(), "version": pa.int64()}
    chosen: pa.Array[Any] = pa.array(places, mask=places < 0)
    columns: dict[str, Any] = {name: pa.array(one, types.get(name, pa.string())) for name, one in held.items()}
    return IdentityValues({name: one.take(chosen) for name, one in columns.items()})


def _list_subjects(strategy: str, topic: str, part: str, source: SchemaSource | None, name: int | str) -> set[str]:
    """Return the subjects that the schema with an id or GUID may have by a strategy: for Protobuf one for
    each message.
    """
    if strategy == TOPIC:
        return {f"{topic}-{part}"}
    try:
        schema = None if source is None else _look_up(source, name)
    except InvalidSchema:
        schema = None
    records = [] if schema is None else list_record_names(schema)
    return {subject for one in records if (subject := build_subject(strategy, topic, one, part))}


def _look_up(source: SchemaSource, name: int | str) -> ParsedSchema | None:
    return source.find_by_id(name) if isinstance(name, int) else source.find_by_guid(name)


Walk = Callable[[Bytes, Longs, Longs], WalkedPayloads]
"""Walks payloads of one schema, ``size`` bytes from ``begin`` on in the data."""


def _walk_by_schema(
    form: PayloadForm, schema: ParsedSchema, data: Bytes, begin: Longs, size: Longs, ids: Located | None,
    paths: tuple[Path, ...],
) -> WalkedPayloads:  # fmt: skip
    """Return the values at ``paths`` in payloads that all have one schema."""
    walk = _prepare(schema, None, paths, find_message(schema, form.message))
    if isinstance(walk, str):
        raise SettingError(f"payload.schema: {walk}; name another schema")
    framed = np.zeros(len(size), np.bool_)
    if form.prefix != "none":
        framed = size > ID_BYTES
        framed[framed] = data[begin[framed]] == _ID_MAGIC
        if form.prefix == "auto" and ids is not None:
            framed &= ids.length < 0
    skipped = np.where(framed, 1 + ID_BYTES, 0)
    if schema.kind == KINDS["protobuf"] and framed.any():
        rows = np.flatnonzero(framed)
        skipped[rows] += read_indexes(data, begin[rows] + skipped[rows], size[rows] - skipped[rows]).size_bytes
    walked = walk(data, begin + skipped, size - skipped)
    if form.prefix == "auto" and (doubtful := np.flatnonzero(framed & walked.malformed)).size:
        # a payload without a prefix may happen to begin with the same byte
        bare = doubtful[walk(data, begin[doubtful], size[doubtful]).good]
        if bare.size:
            skipped[bare] = 0
            walked = walk(data, begin + skipped, size - skipped)
    moved = walked.malformed & (skipped > 0)
    walked.position[moved] += skipped[moved]
    if form.prefix == "confluent" and (unframed := ~framed & (size >= 0)).any():
        rows = np.flatnonzero(~unframed)
        walked = walk(data, begin[rows] + skipped[rows], size[rows] - skipped[rows])
        return _join_parts(len(size), [(rows, walked)], {VERDICT_UNFRAMED: unframed}, skipped, {}, paths)
    return walked


def find_message(schema: ParsedSchema, name: str) -> MessageType | None:
    """Return the message with a name in a Protobuf schema; without a name, its first message.

    Returns None for another schema. Raises SettingError if the message does not exist.
    """
    if schema.kind != KINDS["protobuf"]:
        return None
    from ..schemas.protobuf import ProtobufSchema
    from ..schemas.protobuf_types import resolve_messages

    assert isinstance(schema, ProtobufSchema)
    messages = resolve_messages(schema)
    found = messages.find(name) if name else messages.find_by_indexes((0,))
    if found is None:
        raise SettingError(
            f"payload.message {name!r}: the schema has no such message; it has {', '.join(messages.list_names()[:20])}"
            if name
            else "payload.schema: the file has no messages; name the file with the message of payloads"
        )
    return found


def _prepare(
    schema: ParsedSchema, reader: ParsedSchema | None, paths: tuple[Path, ...], message: MessageType | None
) -> Walk | str:
    """Return the function that walks payloads of a schema, or of its ``message``, or the reason why they cannot be
    walked.
    """
    # imported here: readers of JSON do not need the modules of other formats
    if schema.kind == "AVRO":
        from ..schemas.avro import AvroSchema
        from .avro_program import compile_program
        from .avro_values import walk_avro_spans

        assert isinstance(schema, AvroSchema)
        try:
            program = compile_program(schema.root, paths, reader.root if isinstance(reader, AvroSchema) else None)
        except RecursionError:
            return "has too many records inside one another"
        return lambda data, begin, size: walk_avro_spans(data, begin, size, [(np.arange(len(size)), program)], paths)
    if schema.kind == "JSON":
        return lambda data, begin, size: walk_json_spans(data, begin, size, paths)
    if message is not None:
        from .protobuf_values import walk_protobuf_spans

        wanted = message
        return lambda data, begin, size: walk_protobuf_spans(data, begin, size, wanted, paths)
    return f"is of {schema.kind}, which cannot be read"


@lazy_dataclass(frozen=True, slots=True)
class _FoundIds:
    """The schema ids of payloads: for each row its id, or the index of its GUID (else -1), and the size of that."""

    ids: Longs
    guids: Longs
    names: tuple[str, ...]
    skipped: Longs


def _find_ids(data: Bytes, begin: Longs, size: Longs, ids: Located | None) -> _FoundIds:
    """Find the ids in front of payloads, or in the header; if there are both, the header counts."""
    rows = len(size)
    found, skipped = np.full(rows, -1, np.int64), np.zeros(rows, np.int64)
    guids = np.full(rows, -1, np.int64)
    held: list[tuple[Indexes, Bytes]] = []
    places = [(data, begin, size, 1)]
    if ids is not None and (ids.length >= 0).any():
        in_header = ids.length >= 0
        places = [(data, begin, np.where(in_header, -1, size), 1), (ids.data, ids.start, ids.length, 0)]
    for source, start, length, is_prefix in places:
        for magic, width in ((_ID_MAGIC, ID_BYTES), (_GUID_MAGIC, GUID_BYTES)):
            chosen = np.flatnonzero(length > width)
            chosen = chosen[source[start[chosen]] == magic]
            if not chosen.size:
                continue
            skipped[chosen] = is_prefix * (1 + width)
            digits = source[start[chosen][:, None] + np.arange(1, 1 + width)]
            if magic == _ID_MAGIC:
                found[chosen] = digits.view(">u4")[:, 0]
            else:
                held.append((chosen, digits))
    names: tuple[str, ...] = ()
    if held:
        whole = np.concatenate([digits for _, digits in held])
        distinct, places_of = np.unique(whole, axis=0, return_inverse=True)
        guids[np.concatenate([chosen for chosen, _ in held])] = places_of.reshape(-1)
        names = tuple(str(UUID(bytes=guid.tobytes())) for guid in distinct)
    return _FoundIds(found, guids, names, skipped)


def _walk_by_id(
    form: PayloadForm, source: SchemaSource, data: Bytes, begin: Longs, size: Longs, ids: Located | None,
    paths: tuple[Path, ...],
) -> WalkedPayloads:  # fmt: skip
    found = _find_ids(data, begin, size, ids)
    reader = None if form.schema is None else form.schema.parse()
    parts: list[tuple[Indexes, WalkedPayloads]] = []
    none = (found.ids < 0) & (found.guids < 0)
    verdicts = {VERDICT_UNFRAMED: none & (size >= 0), VERDICT_TOMBSTONE: none & (size < 0)}
    notes: dict[int, str] = {}
    wrong = {VERDICT_UNKNOWN: np.zeros(len(size), np.bool_), VERDICT_MISMATCH: np.zeros(len(size), np.bool_)}
    for name, rows in _group_rows(found):
        schema = _find_schema(form, source, name)
        groups: Sequence[tuple[Indexes, MessageType | str | None]] = [(rows, None)]
        if not isinstance(schema, tuple) and schema.kind == KINDS["protobuf"]:
            groups = _group_by_message(form, schema, reader, found, rows, data, begin, size, ids)
        for chosen, message in groups:
            walk: Any = schema if isinstance(schema, tuple) else message
            if not isinstance(walk, (tuple, str)):
                assert not isinstance(schema, tuple)
                walk = _prepare(schema, reader, paths, walk)
            if isinstance(walk, str):
                walk = VERDICT_MISMATCH, walk
            if isinstance(walk, tuple):
                wrong[walk[0]][chosen] = True
                notes |= dict.fromkeys(chosen.tolist(), f"has a schema, {_write_id(name)}, that {walk[1]}")
                continue
            skipped = found.skipped[chosen]
            parts.append((chosen, walk(data, begin[chosen] + skipped, size[chosen] - skipped)))
    return _join_parts(len(size), parts, verdicts | wrong, found.skipped, notes, paths)


def list_schemas(
    form: PayloadForm, payloads: pa.Array[Any], located: Mapping[str, Located]
) -> list[tuple[ParsedSchema, MessageType | None]]:
    """Return the schemas, and Protobuf messages, that can be found for a binary column; ``located`` as for ``walk``."""
    reader = None if form.schema is None else form.schema.parse()
    if form.source is None:
        return [] if reader is None else [(reader, find_message(reader, form.message))]
    ends, data = view_binary(payloads)
    begin, size = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    ids = located.get(ID_HEADER)
    found = _find_ids(data, begin, size, ids)
    listed: list[tuple[ParsedSchema, MessageType | None]] = []
    for name, rows in _group_rows(found):
        schema = _find_schema(form, form.source, name)
        if isinstance(schema, tuple):
            continue
        if schema.kind != KINDS["protobuf"]:
            listed.append((schema, None))
            continue
        groups = _group_by_message(form, schema, reader, found, rows, data, begin, size, ids)
        listed += [(schema, message) for _, message in groups if not isinstance(message, str)]
    return listed


def describe_schema(
    form: PayloadForm, payloads: pa.Array[Any], ids: Located | None
) -> tuple[int | str, ParsedSchema | str, int, MessageType | None] | None:
    """Return, for the first payload, the id or GUID, the schema or why it cannot be read, the prefix's size, and the
    message.

    Returns None if the payload does not name a schema, or the form has no source of schemas.
    """
    data, begin, size = _view_spans(payloads.slice(0, 1))
    found = _find_ids(data, begin, size, ids)
    groups = _group_rows(found)
    if form.source is None or not groups:
        return None
    name, rows = groups[0]
    schema = _find_schema(form, form.source, name)
    if isinstance(schema, tuple):
        return name, schema[1], 0, None
    if schema.kind != KINDS["protobuf"]:
        return name, schema, int(found.skipped[0]), None
    _, message = _group_by_message(form, schema, None, found, rows, data, begin, size, ids)[0]
    if isinstance(message, str):
        return name, message, 0, None
    return name, schema, int(found.skipped[0]), message


def _group_rows(found: _FoundIds) -> list[tuple[int | str, Indexes]]:
    """Return each distinct id or GUID with its rows, the most frequent first."""
    # most frequent first, as a limited number of unknown ids is requested from a registry
    return sorted(_list_groups(found), key=lambda group: -len(group[1]))


def _list_groups(found: _FoundIds) -> Iterator[tuple[int | str, Indexes]]:
    for ids in (found.ids, found.guids):
        rows = np.flatnonzero(ids >= 0)
        if not rows.size:
            continue
        order = rows[np.argsort(ids[rows], kind="stable")]
        for group in np.split(order, np.flatnonzero(np.diff(ids[order])) + 1):
            first = int(ids[group[0]])
            yield (first if ids is found.ids else found.names[first]), group


@lazy_dataclass(frozen=True, slots=True)
class MessageIndexes:
    """The message indexes in front of Protobuf payloads: their sizes, the distinct ones, and which of them each payload
    has.

    ``which`` is -1 for payloads whose indexes are cut off.
    """

    size_bytes: Longs
    distinct: tuple[tuple[int, ...], ...]
    which: Longs


def read_indexes(data: Bytes, begin: Longs, size: Longs) -> MessageIndexes:
    """Read the indexes at ``begin``: their count, then each, as signed numbers; a single 0 means the first message."""
    size_bytes, which = np.ones(len(begin), np.int64), np.zeros(len(begin), np.int64)
    others = size < 1
    others[~others] = data[begin[~others]] != 0
    distinct: dict[tuple[int, ...], int] = {(0,): 0}
    spans: dict[bytes, tuple[int, int]] = {}
    for row in np.flatnonzero(others).tolist():
        span = data[begin[row] : begin[row] + max(0, min(int(size[row]), INDEX_BYTES_MAX))].tobytes()
        # there are few messages; each group is found by the first bytes of its payloads
        head = span[: 1 + (span[0] >> 1 if span else 0)]
        if head not in spans or any(byte >= 0x80 for byte in head):
            indexes, length = _parse_indexes(span)
            place = -1 if indexes is None else distinct.setdefault(indexes, len(distinct))
            spans[head] = place, length
        which[row], size_bytes[row] = spans[head]
    return MessageIndexes(size_bytes, tuple(distinct), which)


def _parse_indexes(span: bytes) -> tuple[tuple[int, ...] | None, int]:
    """Return the indexes and their size; None and 0 if they are cut off."""
    numbers: list[int] = []
    at = 0
    while not numbers or len(numbers) < 1 + numbers[0]:
        value, shift = 0, 0
        while at < len(span) and span[at] >= 0x80:
            value |= (span[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        if at == len(span):
            return None, 0
        value |= span[at] << shift
        numbers.append((value >> 1) ^ -(value & 1))
        at += 1
        if numbers[0] < 0:
            return None, 0
    return tuple(numbers[1:]) or (0,), at


def _group_by_message(
    form: PayloadForm, schema: ParsedSchema, reader: ParsedSchema | None, found: _FoundIds, rows: Indexes,
    data: Bytes, begin: Longs, size: Longs, ids: Located | None,
) -> Sequence[tuple[Indexes, MessageType | str]]:  # fmt: skip
    """Return the rows of each message, or why its payloads cannot be read.

    A reader's schema applies to its own message, since Protobuf finds fields by their numbers. The sizes in ``found``
    are extended by the indexes in front of the first field.
    """
    from ..schemas.protobuf import ProtobufSchema
    from ..schemas.protobuf_types import resolve_messages

    assert isinstance(schema, ProtobufSchema)
    in_header = found.skipped[rows] == 0
    where = data, begin[rows] + found.skipped[rows], size[rows] - found.skipped[rows]
    if in_header.any():
        assert ids is not None
        width = 1 + np.where(found.guids[rows] >= 0, GUID_BYTES, ID_BYTES)
        of_header = ids.data, ids.start[rows] + width, ids.length[rows] - width
        # copied into one buffer, so that both are read at once
        where = (
            np.concatenate([data, ids.data]),
            np.where(in_header, of_header[1] + len(data), where[1]),
            np.where(in_header, of_header[2], where[2]),
        )
    indexes = read_indexes(*where)
    found.skipped[rows] += np.where(in_header, 0, indexes.size_bytes)
    messages = resolve_messages(schema)
    wanted = None if reader is None else find_message(reader, form.message)
    groups: list[tuple[Indexes, MessageType | str]] = []
    for which in np.unique(indexes.which).tolist():
        chosen = rows[indexes.which == which]
        path = indexes.distinct[which] if which >= 0 else ()
        message = messages.find_by_indexes(path)
        if message is None:
            groups.append((chosen, f"does not have the message {list(path)}" if path else "has cut message indexes"))
        elif wanted is not None and wanted.name != message.name:
            groups.append((chosen, f"is of the message {message.name}, and payloads are declared as {wanted.name}"))
        else:
            groups.append((chosen, wanted or message))
    return groups


def _write_id(name: int | str) -> str:
    return f"id {name}" if isinstance(name, int) else f"GUID {name}"


def _find_schema(form: PayloadForm, source: SchemaSource, name: int | str) -> ParsedSchema | tuple[int, str]:
    """Return the schema, or the verdict on its payloads with the reason."""
    try:
        schema = _look_up(source, name)
    except InvalidSchema as error:
        return VERDICT_MISMATCH, f"is invalid: {error}"
    if schema is None:
        return VERDICT_UNKNOWN, "does not exist in the registry"
    wanted = KINDS.get(form.format, schema.kind)
    if schema.kind != wanted:
        return VERDICT_MISMATCH, f"is of {schema.kind}, and payloads are declared as {form.format}"
    return schema


def _join_parts(
    count: int, parts: Sequence[tuple[Indexes, WalkedPayloads]], verdicts: Mapping[int, NDArray[np.bool_]],
    skipped: Longs, notes: dict[int, str], paths: tuple[Path, ...],
) -> WalkedPayloads:  # fmt: skip
    """Return the results for the rows of each part as one result; other rows get the given verdicts."""
    verdict, position = np.zeros(count, np.uint8), np.zeros(count, np.int64)
    for code, flagged in verdicts.items():
        verdict[flagged] = code
    for rows, walked in parts:
        verdict[rows] = walked.verdict
        position[rows] = np.where(
            walked.malformed & (walked.verdict < SCHEMA_FIRST), walked.position + skipped[rows], 0
        )
        notes |= {int(rows[row]): note for row, note in (walked.notes or {}).items()}
    if len(parts) == 1 and len(parts[0][0]) == count:
        return WalkedPayloads(parts[0][1].values, verdict, position, notes)
    values = {path: SplitValues(count, tuple((rows, walked.values[path]) for rows, walked in parts)) for path in paths}
    return WalkedPayloads(values, verdict, position, notes)
