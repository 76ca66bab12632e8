"""The options of ``format("lading")``, read once and checked before anything is opened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from ...model.errors import SettingError
from ...transports.interface import States
from ...transports.open import is_queue
from ...transports.option_values import parse_option
from ...transports.topic_selection import TopicSelection
from .offset_options import OffsetsOption, parse_offsets
from .ranges import ROWS_PER_PARTITION

OnBadValue = Literal["null", "fail"]
DEDUPE_HEADER = "lading-dedupe"
"""The header that is the same in each try to send a message, if a target delivers at least once."""
CHANNEL = "spark"
"""The channel of a queue that a stream takes messages for, unless it names one."""
PREFIXES = ("column.", "encoding.", "transport.", "payload.")
"""Options that name a column, an option of the transport or a key of ``[payload]`` after the dot."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of reading: see docs/reference/spark.md for each option's meaning."""

    from_: str
    topic: str
    """The topic, as it is written; empty if ``topics`` or ``topic_pattern`` select several."""
    starting: OffsetsOption = "earliest"
    ending: OffsetsOption = "latest"
    fail_on_data_loss: bool = True
    states: States = "available"
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_rows_per_partition: int = ROWS_PER_PARTITION
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    encodings: Mapping[str, str] = field(default_factory=dict)
    on_bad_value: OnBadValue = "null"
    headers: bool = True
    verify_checksum: bool = False
    where: str | None = None
    pushdown: bool = False
    spool: str | None = None
    spool_keep_s: int | None = None
    channel: str = CHANNEL
    payload: Mapping[str, str] = field(default_factory=dict)
    """How payloads are read: the options ``payload.*``."""
    transport: Mapping[str, Any] = field(default_factory=dict, repr=False)
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse the options as Spark passes them, keys in any case. Raises SettingError that says what one takes."""
        values = _normalize_options(options, SOURCE)
        where = values.get("where")
        names, pattern = _parse_topics(values)
        return cls(
            from_=_require_option(values, "from", "a URL such as lading://127.0.0.1:7070 or a directory"),
            topic=names[0] if len(names) == 1 else "",
            topics=names if len(names) > 1 else (),
            topic_pattern=pattern,
            starting=parse_offsets("startingOffsets", values.get("startingoffsets", "earliest")),
            ending=parse_offsets("endingOffsets", values.get("endingoffsets", "latest")),
            fail_on_data_loss=_parse_flag("failOnDataLoss", values.get("failondataloss", "true")),
            states=_parse_word("states", values.get("states", "available"), ("available", "all")),
            max_rows_per_trigger=_count("maxRowsPerTrigger", values),
            max_bytes_per_trigger=_parse_size("maxBytesPerTrigger", values),
            max_rows_per_partition=_count("maxRowsPerPartition", values) or ROWS_PER_PARTITION,
            max_rows_per_batch=_count("maxRowsPerBatch", values),
            max_bytes_per_batch=_parse_size("maxBytesPerBatch", values),
            columns=_take_prefixed(values, "column."),
            encodings=_take_prefixed(values, "encoding."),
            on_bad_value=_parse_word("on_bad_value", values.get("on_bad_value", "null"), ("null", "fail")),
            headers=_parse_word("headers", values.get("headers", "array"), ("array", "none")) == "array",
            verify_checksum=_parse_flag("verify_checksum", values.get("verify_checksum", "false")),
            where=where if where and where.strip() else None,
            pushdown=_parse_flag("pushdown", values.get("pushdown", "false")),
            spool=values.get("spool", "").strip() or None,
            spool_keep_s=_count("spoolKeepS", values),
            channel=values.get("channel", CHANNEL).strip(),
            payload=_take_prefixed(values, "payload."),
            transport=transport_options(values),
        )

    @property
    def selection(self) -> TopicSelection:
        """The topics that are read."""
        return TopicSelection.parse(self.topics or [self.topic], self.topic_pattern)

    @property
    def has_several_topics(self) -> bool:
        """Whether there may be other topics than one."""
        return bool(self.topics) or self.topic_pattern is not None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of writing: see docs/reference/spark.md for each option's meaning."""

    to: str
    topic: str
    headers: tuple[str, ...] = ()
    """The headers to write from columns, each ``NAME[:KIND] [from COLUMN]``."""
    transactional_id: str | None = None
    transaction_timeout_s: float | None = None
    dedupe_header: str | None = DEDUPE_HEADER
    payload_places: Mapping[str, str] | None = None
    """The path in payloads of each column; None if the payload itself is a column."""
    payload: Mapping[str, str] = field(default_factory=dict)
    """How payloads are written: the options ``payload.*``."""
    transport: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options as Spark passes them, keys in any case. Raises SettingError that says what one takes."""
        from ...client.header_columns import split_column_headers

        values = _normalize_options(options, SINK)
        places = _take_prefixed(values, "column.")
        payload = _take_prefixed(values, "payload.")
        if other := next((name for name in payload if name not in WRITTEN_PAYLOAD), None):
            known = ", ".join(f"payload.{name}" for name in WRITTEN_PAYLOAD)
            raise SettingError(f"option payload.{other}: writing has {known}; remove it")
        form = payload.get("format")
        if form is not None:
            _parse_word("payload.format", form, ("json", "avro", "protobuf"))
        elif needs := next((name for name in values if name.startswith(("column.", "payload."))), None):
            raise SettingError(f"option {needs}: needs payload.format; add payload.format = json")
        if form is not None and (form == "json") == ("schema" in payload):
            raise SettingError(
                "option payload.schema: JSON payloads have none; remove it, or name another payload.format"
                if form == "json"
                else f"option payload.format: {form} needs a schema; add payload.schema, a file or a subject"
            )
        return cls(
            to=_require_option(values, "to", "a URL such as lading://127.0.0.1:7070"),
            topic=_require_option(values, "topic", "the name of a topic"),
            headers=split_column_headers(values.get("headers", "")),
            transactional_id=values.get("transactionalid", "").strip() or None,
            transaction_timeout_s=_count("transactionTimeoutS", values),
            dedupe_header=values.get("dedupe_header", DEDUPE_HEADER).strip() or None,
            payload_places=places if form is not None else None,
            payload=payload,
            transport=transport_options(values),
        )


SOURCE = (
    "from", "topic", "topics", "topic_pattern", "startingOffsets", "endingOffsets", "failOnDataLoss", "states",
    "maxRowsPerTrigger", "maxBytesPerTrigger", "maxRowsPerPartition", "maxRowsPerBatch", "maxBytesPerBatch",
    "on_bad_value", "headers", "verify_checksum", "where", "pushdown", "spool", "spoolKeepS", "channel",
)  # fmt: skip
SINK = ("to", "topic", "headers", "transactionalId", "transactionTimeoutS", "dedupe_header", "payload.format")
WRITTEN_PAYLOAD = ("format", "schema", "message", "registry", "subject", "subject_strategy")
"""Keys of ``payload.*`` for writing."""
SYNONYMS = {
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "starting": "startingOffsets",
    "ending": "endingOffsets",
    "subscribe": "topics",
    "subscribepattern": "topic_pattern",
    "topicpattern": "topic_pattern",
}
"""Names that Spark's Kafka connector has for the same, and other spellings of ours."""
ADDRESSES = frozenset(
    ("url", "uri", "server", "servers", "broker", "brokers", "address", "host", "bootstrap.servers", "bootstrapservers")
)
"""Names that other sources have for the place of a server."""
INSTEAD = {
    "assign": "topic, and startingOffsets by partition",
    "kafka.bootstrap.servers": 'from, as "kafka://host:9092"',
    "includeheaders": "nothing: there always is a column headers, and a header can be a column of the schema",
    "minpartitions": "maxRowsPerPartition",
    "startingtimestamp": 'startingOffsets, as {"timestamp": "2026-01-31T12:00:00Z"}',
    "endingtimestamp": 'endingOffsets, as {"timestamp": "2026-01-31T12:00:00Z"}',
    "startingoffsetsbytimestamp": 'startingOffsets, as {"timestamp": "2026-01-31T12:00:00Z"} for all partitions',
    "endingoffsetsbytimestamp": 'endingOffsets, as {"timestamp": "2026-01-31T12:00:00Z"} for all partitions',
    "startingoffsetsbytimestampstrategy": "nothing: a time after the last message is the end of its partition",
    "maxrecordsperpartition": "maxRowsPerPartition",
    "minoffsetspertrigger": "nothing: a batch takes what is there; lengthen the interval of the trigger",
    "maxtriggerdelay": "nothing: a batch takes what is there; lengthen the interval of the trigger",
    "fetchoffset.numretries": "transport.retries",
    "fetchoffset.retryintervalms": "nothing: how long a retry waits is not set",
    "kafkaconsumer.polltimeoutms": "transport.timeout_s",
    "groupidprefix": "nothing: partitions are read without a group",
    "kafka.group.id": "nothing: partitions are read without a group",
    "kafka.security.protocol": "transport.tls=true for SSL, and transport.username for SASL",
    "kafka.sasl.mechanism": "transport.username and transport.password_file",
    "kafka.sasl.jaas.config": "transport.username and transport.password_file",
    "kafka.ssl.truststore.location": "transport.ca_file, in PEM",
    "kafka.ssl.keystore.location": "transport.certificate_file and transport.key_file, in PEM",
}
"""Remedies for options of Spark's Kafka connector."""
BATCH_ONLY = dict.fromkeys(
    ("endingoffsets", "ending"),
    "a stream goes on after any offset; read a range that ends with spark.read and the same options, or limit the rows "
    "of a stream by the option where, such as \"timestamp < '2026-02-01'\"",
)
"""Remedies for options of ``spark.read`` that a stream cannot have, as Spark's Kafka source refuses them."""
SPARKS_OWN = ("checkpointlocation", "path", "queryname")
"""Options that Spark adds by itself."""


def refuse_batch_options(options: Mapping[str, str]) -> None:
    """Raise SettingError for an option that streams cannot have; it would be ignored."""
    for name in options:
        if (remedy := BATCH_ONLY.get(name.lower())) is not None:
            raise SettingError(f"option {name!r}: not supported by readStream; {remedy}")


def _normalize_options(options: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    words = {name.lower(): name for name in known}
    values: dict[str, str] = {}
    for name, value in options.items():
        low = SYNONYMS.get(name.lower(), name).lower()
        if low in INSTEAD:
            raise SettingError(f"{name!r} is an option of Spark's Kafka connector; here it is {INSTEAD[low]}")
        if low.startswith("kafka."):
            raise SettingError(
                f"{name!r} is an option of Spark's Kafka connector; leave it out, or give the option of the connection "
                "that does the same as transport.NAME, such as transport.timeout_s"
            )
        if low not in words and low not in SPARKS_OWN and not low.startswith(PREFIXES):
            places = [word for word in words if word in ("from", "to")]
            near = places if low in ADDRESSES else get_close_matches(low, words, 1, 0.6)
            hint = f"did you mean {words[near[0]]}? There" if near else "there"
            raise SettingError(f"unknown option {name!r}; {hint} are {', '.join(words.values())}")
        values[low] = value
    return values


def _parse_topics(values: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    """Return the names of the topics, or a pattern. Raises SettingError unless exactly one option selects them."""
    given = [name for name in ("topic", "topics", "topic_pattern") if values.get(name, "").strip()]
    if len(given) > 1:
        raise SettingError(f"options {' and '.join(given)}: both select topics; give one of them")
    if given == ["topic_pattern"]:
        _require_log(values, "topic_pattern")
        pattern = values["topic_pattern"].strip()
        TopicSelection.parse((), pattern)
        return (), pattern
    if given == ["topics"]:
        names = tuple(dict.fromkeys(filter(None, (name.strip() for name in values["topics"].split(",")))))
        if not names:
            raise SettingError(f"option topics {values['topics']!r}: names no topic; write for example flights,orders")
        if len(names) > 1:
            _require_log(values, "topics")
        return names, None
    return (_require_option(values, "topic", "a name (topics and topic_pattern take several)"),), None


def _require_log(values: Mapping[str, str], option: str) -> None:
    """Raise SettingError for a queue, of which a source reads one topic: each has a spool of its own."""
    if is_queue(values.get("from", "")):
        raise SettingError(
            f"option {option}: {values['from']} is a queue, and a source reads one topic of a queue; name it with "
            "topic, and give each topic a source of its own"
        )


def transport_options(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the options ``transport.*`` with their types. Raises SettingError for a value of another type."""
    given = _take_prefixed(values, "transport.")
    return {name: parse_option(name, text, prefix="transport.") for name, text in given.items()}


def type_transport(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a transport, as a file or a caller gives them, with their types."""
    return transport_options({f"transport.{name}": str(value) for name, value in options.items()})


def _take_prefixed(values: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name[len(prefix) :].lower(): value for name, value in values.items() if name.lower().startswith(prefix)}


def _require_option(values: Mapping[str, str], name: str, what: str) -> str:
    value = values.get(name, "").strip()
    if not value:
        raise SettingError(f'option {name!r} is missing: .option("{name}", …) takes {what}')
    return value


def _parse_flag(name: str, text: str) -> bool:
    low = text.strip().lower()
    if low not in ("true", "false"):
        raise SettingError(f"{name} is {text!r}; it takes true or false")
    return low == "true"


def _parse_word(name: str, text: str, words: tuple[Any, ...]) -> Any:
    low = text.strip().lower()
    if low not in words:
        raise SettingError(f"{name} is {text!r}; it takes {' or '.join(words)}")
    return low


def _count(name: str, values: Mapping[str, str]) -> int | None:
    text = values.get(name.lower())
    if text is None:
        return None
    plain = text.strip().replace("_", "")
    if not plain.isdigit() or int(plain) < 1:
        raise SettingError(f"{name} is {text!r}; it takes a whole number from 1 on")
    return int(plain)


UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


def _parse_size(name: str, values: Mapping[str, str]) -> int | None:
    text = values.get(name.lower())
    if text is None:
        return None
    plain = text.strip().lower()
    digits = plain.rstrip("bkmg ")
    try:
        size_bytes = float(digits) * UNITS[plain[len(digits) :].strip()]
    except (KeyError, ValueError):
        size_bytes = 0.0
    if not math.isfinite(size_bytes) or size_bytes < 1:
        raise SettingError(f"{name} is {text!r}; it takes a number of bytes, also as 64k, 16m or 1g")
    return int(size_bytes)
