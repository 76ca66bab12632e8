"""Contracts inferred from the messages of a topic, and drift of messages from an existing contract."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from ..client.consumer import Consumer
from ..client.reading import OnLoss
from ..columns.assemble import assemble, to_decoded
from ..columns.contract import (
    ARRAY,
    FIELD_TYPES,
    HeaderColumn,
    PayloadColumn,
    Projection,
    parse_type,
    type_word,
    write_header_source,
)
from ..columns.field_names import choose_column_name
from ..columns.locate import locate
from ..columns.repeated import convert_repeated
from ..columns.seen_members import PayloadStatistics
from ..columns.statistics import HeaderStatistics
from ..columns.typed import convert_column
from ..model.toml import toml_key, toml_text
from ..payloads.form import PayloadForm, find_fields, find_message
from ..payloads.paths import PAYLOAD, write_path
from ..registry.payload_form import RegistrySchemas
from ..schemas.subjects import TOPIC, build_subject
from ..tables.schema_columns import COLUMNS_MAX, PROTOBUF, FieldSchema, find_field_schema
from ..transports.fetched import States

COMMENT_AT = 40
"""Comments start at this column, or after a line that is longer."""
ABSENT, NULL = -1, -2
MALFORMED = "payload_malformed"
_VALID = {"schema": "a valid payload by its schema"}


@dataclass
class Survey:
    """The profile of a topic: statistics of headers and payloads, and how many messages violate each column."""

    statistics: HeaderStatistics = field(default_factory=HeaderStatistics)
    members: PayloadStatistics = field(default_factory=PayloadStatistics)
    breaches: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_malformed: str = ""
    """The place of the first malformed payload, and what is wrong with it, if the contract has columns of payloads."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One way in which messages differ from a contract."""

    header: str
    kind: str
    messages: int
    sentence: str
    table: str = ""
    """Consequence for the table, in words."""
    breaks: bool = False
    """Whether the table cannot take the messages as they are now: its column would need another type."""


def profile_topic(
    from_: str, topic: str, *, contract: Projection | None = None, states: States = "available",
    limit: int | None = None, on_rows: Callable[[int], None] = lambda rows: None, on_loss: OnLoss = "fail",
    transport: Mapping[str, Any] | None = None,
) -> Survey:  # fmt: skip
    """Return the profile of a topic, or of its first ``limit`` messages. Raises the errors of reading it.

    ``transport`` has options of the connection.
    """
    found = Survey()
    options: dict[str, Any] = {"start": "earliest", "timeout_s": 0, "verify_checksum": False, "on_loss": on_loss}
    with Consumer(from_, topic, states=states, **options, **(transport or {})) as consumer:
        keys = ", key" if contract is not None and "key" in contract.message_fields else ""
        for batch in consumer.batches(f"partition, offset, headers, payload{keys}"):
            wanted = batch if limit is None else batch.slice(0, limit - found.statistics.messages)
            found.statistics.add(wanted)
            found.members.add(wanted)
            if contract is not None:
                _count_breaches(found, contract, wanted)
            on_rows(wanted.num_rows)
            if limit is not None and found.statistics.messages >= limit:
                break
    return found


def headers_section(
    statistics: HeaderStatistics,
    topic: str,
    rows: Sequence[Mapping[str, Any]] | None = None,
    members: PayloadStatistics | None = None,
) -> str:
    """Return the [headers] section of a pipeline file for these messages, with shares and examples as comments.

    ``rows`` are those of a profile, whose ``proposed`` declarations it takes. The section [payload] is before it if
    ``members`` has some, which become columns as well.
    """
    messages = f"{statistics.messages:,} message{'s' * (statistics.messages != 1)}"
    has_members = members is not None and bool(members.root.members)
    lines = ["[payload]", 'format = "json"', ""] if has_members else []
    lines.append(f"[headers]{'':<{COMMENT_AT - 9}}# from {messages} of {json.dumps(topic)}")
    taken = {name.lower() for name in FIELD_TYPES}
    for row in statistics.rows() if rows is None else rows:
        name = choose_column_name(row["key"], taken)
        always = row["messages"] == statistics.messages and not row["nulls"]
        declared = row.get("proposed") or {"type": row["type"], "required": always}
        words = [declared["type"], *([declared["encoding"]] if "encoding" in declared else [])]
        if name == row["key"]:
            value = json.dumps(" ".join([*words, *(["required"] if always else [])]))
        else:
            required = ", required = true" if always else ""
            encoding = f', encoding = "{declared["encoding"]}"' if "encoding" in declared else ""
            source = toml_text(write_header_source(row["key"]))
            value = f'{{ type = "{declared["type"]}"{encoding}, from = {source}{required} }}'
        line = f"{toml_key(name)} = {value}"
        lines.append(f"{line:<{COMMENT_AT - 1}} # {_write_comment(row)}")
    if statistics.other_occurrences:
        lines.append(f"# {statistics.other_occurrences:,} headers have further keys; only 1,000 are listed")
    if members is not None and has_members:
        lines += _payload_lines(members, taken)
    return "\n".join(lines) + "\n"


def _payload_lines(members: PayloadStatistics, taken: set[str]) -> Iterator[str]:
    """Yield the declaration of each member of the payloads."""
    for column, row in zip(members.propose_columns(taken), members.rows(), strict=True):
        source = PAYLOAD if column.path == (column.name,) and re.fullmatch(r"[\w-]+", column.name) else column.text
        words = [column.word, *(["required"] if column.required else []), "from", source]
        line = f"{toml_key(column.name)} = {toml_text(' '.join(words))}"
        nulls = f", {row['nulls']:,} nulls" if row["nulls"] else ""
        examples = f"; {row['examples']}" if row["examples"] else ""
        yield f"{line:<{COMMENT_AT - 1}} # {row['share']:.1f} %, {row['kinds']}{nulls}{examples}"


def drift(found: Survey, contract: Projection) -> list[Drift]:
    """Return every difference between the messages and the contract, the most frequent first."""
    return sorted(_find_drifts(found, contract), key=lambda one: -one.messages)


def _find_drifts(found: Survey, contract: Projection) -> Iterator[Drift]:
    messages = found.statistics.messages
    yield from _payload_drifts(found, contract)
    for column in contract.headers:
        seen = found.statistics.keys.get(column.header)
        if seen is None and not column.required:
            yield Drift(column.header, "never seen", 0, "is declared, and no message has it", _NULLS)
        asked = dict(column.constraint.rules) if column.constraint is not None else {}
        for kind, words in _BREACHES.items():
            count = found.breaches[column.name, kind]
            if count:
                problem = words.format(
                    type=type_word(column.type), encoding=column.encoding.value, asked=asked.get(kind)
                )
                effect, breaks = _find_effect(column, kind, None if seen is None else seen.type)
                sentence = f"{problem} in {_share(count, messages)} of the messages"
                yield Drift(column.header, kind, count, sentence, effect, breaks)
    declared = {column.header for column in contract.headers}
    for key, seen in found.statistics.keys.items():
        if key not in declared:
            yield Drift(
                key, "undeclared", seen.messages,
                f"is not declared, and {_share(seen.messages, messages)} of the messages have it, as {seen.type}",
                f"takes a new column {type_word(parse_type(seen.type))}; older rows are null in it",
            )  # fmt: skip


def _payload_drifts(found: Survey, contract: Projection) -> Iterator[Drift]:
    """Yield the differences of payloads, if the contract has columns of them."""
    if not contract.payload:
        return
    messages, members = found.statistics.messages, found.members
    if count := found.breaches["", MALFORMED]:
        valid = _VALID.get(contract.form.format, f"valid {contract.form.format}")
        said = f"is not {valid} in {_share(count, messages)} of the messages"
        sentence = f"{said}: {found.first_malformed}"
        yield Drift(PAYLOAD, MALFORMED, count, sentence, "keeps its columns; these messages go to quarantine")
    # payloads of another format are not sampled
    is_sampled = contract.form.format == "json" and members.objects > 0
    leaves = {write_path(path): (path, one) for path, one in members.leaves()} if is_sampled else {}
    for column in contract.payload:
        known = found.breaches[column.name, "present"] > 0
        if not known and not column.required:
            yield Drift(column.text, "never seen", 0, "is declared, and no message has it", _NULLS)
        asked = dict(column.constraint.rules) if column.constraint is not None else {}
        type_now = leaves[column.text][1].propose() if column.text in leaves else None
        for kind, words in (_BREACHES | {"unreadable": "cannot be read as {type}"}).items():
            if count := found.breaches[column.name, kind]:
                problem = words.format(type=column.word, asked=asked.get(kind))
                effect, breaks = _find_effect(column, kind, type_now)
                sentence = f"{problem} in {_share(count, messages)} of the messages"
                yield Drift(column.text, kind, count, sentence, effect, breaks)
    declared = [column.path for column in contract.payload]
    for text, (path, one) in leaves.items():
        if not any(path[: len(other)] == other[: len(path)] for other in declared):
            type_ = one.propose()
            share = _share(one.present, members.objects)
            sentence = f"is not declared, and {share} of the payloads have it, as {type_}"
            effect = f"takes a new column {type_}; older rows are null in it"
            yield Drift(text, "undeclared", one.present, sentence, effect)


def compare_newest_schema(
    contract: Projection,
    topic: str,
    find_used: Callable[[PayloadForm], str] = lambda form: "",
    find_records: Callable[[PayloadForm], Sequence[str]] = lambda form: (),
) -> list[Drift]:
    """Return the differences of a contract and the newest schemas of the topic's subjects; none without a registry.

    ``find_used`` is as for ``fetch_field_schema``; ``find_records`` returns the records that subjects are called like.
    """
    newest = list(_find_newest_schemas(contract.form, topic, find_used, find_records))
    if not newest:
        return []
    words, found = " and ".join(said for said, _ in newest), []
    fields = {
        path: (word, said) for said, schema in newest for path, word, _ in islice(schema.list_fields(), COLUMNS_MAX)
    }
    declared = [column for column in contract.payload if find_fields((column.path,)) == (PAYLOAD,)]
    paths = [column.path for column in declared]
    for path, (word, said) in fields.items():
        if not any(path[: len(other)] == other[: len(path)] for other in paths):
            sentence, effect = f"is not declared, and {said} has it, as {word}", f"takes a new column {word}"
            found.append(Drift(write_path(path), "new in schema", 0, sentence, f"{effect}; older rows are null in it"))
    for column in declared:
        if not any(path[: len(column.path)] == column.path[: len(path)] for path in fields):
            verb = "does" if len(newest) == 1 else "do"
            sentence = f"is declared, and {words} {verb} not have it"
            found.append(Drift(column.text, "not in schema", 0, sentence, "keeps its column, null in new rows"))
    return found


def _find_newest_schemas(
    form: PayloadForm,
    topic: str,
    find_used: Callable[[PayloadForm], str],
    find_records: Callable[[PayloadForm], Sequence[str]],
) -> Iterator[tuple[str, FieldSchema]]:
    """Yield the newest version of each subject of a topic, as words, and its fields."""
    if not isinstance(form.source, RegistrySchemas):
        return
    records = [""] if form.subject_strategy == TOPIC else find_records(form)
    for record in records:
        subject = build_subject(form.subject_strategy, topic, record)
        newest = None if subject is None else form.source.find_newest(subject)
        if newest is None:
            continue
        used = (record or find_used(form)) if newest[1].kind == PROTOBUF else ""
        schema = find_field_schema(newest[1], find_message(newest[1], used))
        if schema is not None:
            yield f"version {newest[0]} of {subject}", schema


def _find_effect(column: HeaderColumn | PayloadColumn, kind: str, type_now: str | None) -> tuple[str, bool]:
    """Return what a breach means for the table, and whether only another type of the column would take the messages."""
    if kind in ("missing", "null"):
        return "keeps its columns without required; till then these messages go to quarantine", False
    if kind != "unreadable":
        return "keeps its columns with another constraint; till then these messages go to quarantine", False
    if type_now is None or type_now == (column.word if isinstance(column, PayloadColumn) else type_word(column.type)):
        return "keeps its columns; these messages go to quarantine", False
    return f"breaks as {type_now}, which requires another table; until then these messages go to quarantine", True


_NULLS = "keeps its column, null in every row"
_BREACHES = {
    "missing": "is required, and is missing",
    "null": "is required, and is null",
    "unreadable": "is no {type} under encoding {encoding}",
    "value_not_allowed": "is none of {asked}",
    "out_of_range": "is not {asked}",
    "pattern_mismatch": "does not match {asked}",
}


def _count_breaches(found: Survey, contract: Projection, batch: pa.RecordBatch) -> None:
    breaches = found.breaches
    located = locate(batch.column("headers"), contract.header_keys)
    for column in contract.headers:
        at = located[column.header]
        if column.required:
            breaches[column.name, "missing"] += int((at.length == ABSENT).sum())
            breaches[column.name, "null"] += int((at.length == NULL).sum())
        if column.type == ARRAY:
            typed, bad = convert_repeated(batch.column("headers"), column.header, column.encoding)
        else:
            typed, bad = convert_column(at, column.type, column.encoding)
        breaches[column.name, "unreadable"] += 0 if bad is None else int(bad.true_count)
        _count_constraint(breaches, column, typed)
    if contract.payload:
        _count_payload_breaches(found, contract, batch)


def _count_payload_breaches(found: Survey, contract: Projection, batch: pa.RecordBatch) -> None:
    breaches = found.breaches
    columns = Projection(payload=contract.payload, form=contract.form)
    made = assemble(to_decoded(batch.select(["headers", *columns.message_fields]), columns.header_keys), columns)
    assert made.walked is not None
    malformed = np.flatnonzero(made.walked.malformed)
    breaches["", MALFORMED] += len(malformed)
    if len(malformed) and not found.first_malformed:
        row = int(malformed[0])
        partition, offset = (batch.column(name)[row].as_py() for name in ("partition", "offset"))
        place = f"the first, in partition {partition} at offset {offset}"
        found.first_malformed = f"{place}, {made.walked.describe(row)}"
    for column in contract.payload:
        values, good = made.walked.values[column.path], made.walked.find_complete(column.path)
        breaches[column.name, "present"] += int((good & ~values.absent).sum())
        if column.required:
            breaches[column.name, "missing"] += int((good & values.absent).sum())
            breaches[column.name, "null"] += int((good & values.null).sum())
        bad = made.bad.get(column.name)
        breaches[column.name, "unreadable"] += (
            0 if bad is None else int((bad.to_numpy(zero_copy_only=False) & good).sum())
        )
        _count_constraint(breaches, column, made.batch.column(column.name))


def _count_constraint(
    breaches: Counter[tuple[str, str]], column: HeaderColumn | PayloadColumn, typed: pa.Array[Any]
) -> None:
    if column.constraint is not None:
        for (reason, _), rows in zip(column.constraint.rules, column.constraint.find_breaches(typed), strict=True):
            breaches[column.name, reason] += 0 if rows is None else int(np.count_nonzero(rows))


def _share(count: int, messages: int) -> str:
    share = 100 * count / messages
    return f"{share:.1f} %" if 0.1 <= share <= 99.9 or share in (0, 100) else f"{count:,}"


def _write_comment(row: Mapping[str, Any]) -> str:
    facts = [f"{row['share']:.1f} %", row["kinds"]]
    facts += [f"{row[name]:,} {name}" for name in ("nulls", "empty", "duplicates") if row[name]]
    return ", ".join(facts) + (f"; {row['examples']}" if row["examples"] else "")
