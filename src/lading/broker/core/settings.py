"""Settings of the broker; ``serve`` fills it from the settings file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final, Self

from ...model.durability import Durability
from ...model.errors import SettingError
from ...model.lazy_dataclass import lazy_dataclass
from ...schemas.subjects import STRATEGIES


@lazy_dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Limits and times of one broker. Sizes in bytes, times in microseconds unless the name says otherwise."""

    durability: Durability = "fsync"
    segment_bytes: int = 256 << 20
    retention_age_us: int | None = None
    """Messages older than this are deleted, a whole segment at a time, unless the topic has its own limit."""
    retention_bytes: int | None = None
    """Size limit of a partition, unless the topic has its own."""
    retention_check_us: int = 60_000_000
    retention_mark_us: int | None = None
    """Messages are marked for deletion this long before they are due; None marks them one check before."""
    compaction_check_us: int = 15_000_000
    """How often topics are looked at that keep the last message of each key."""
    compaction_memory_bytes: int = 16 << 20
    """Memory for the keys of one cleaning; more keys need more cleanings."""
    partitions_per_topic_max: int = 1_000
    """The real Iggy server takes 100,000; each partition here is a directory with open files."""
    open_files_max: int = 1 << 20
    """Files that partitions keep open at most; above this, those of the partitions unused for longest are closed."""
    unsynced_bytes_max: int = 64 << 20
    """Above this the broker is congested: endpoints stop reading from sockets until the disk has caught up."""
    position_flush_us: int = 100_000
    """Positions are written together, at most this long after they were stored."""
    session_timeout_us: int = 30_000_000
    """A native group member that sends no heartbeat for this long has left."""
    session_timeout_us_min: int = 6_000_000
    session_timeout_us_max: int = 1_800_000_000
    """Session timeouts that a member of a coordinated group may request."""
    rebalance_delay_us: int = 100_000
    """The first members of a coordinated group wait this long for others to join."""
    group_members_max: int = 1_000
    """Members of one coordinated group."""
    member_metadata_bytes_max: int = 1 << 20
    """Bytes of metadata of one member of a coordinated group; Apache Kafka keeps a whole group in this size."""
    groups_metadata_bytes_max: int = 32 << 20
    """Metadata of all members of all coordinated groups together: it is in memory until they leave."""
    group_assignment_bytes_max: int = 8 << 20
    """Bytes of the assignments of a coordinated group, all of its members together."""
    transaction_timeout_us: int = 3_600_000_000
    """A transaction that is open for longer is aborted, unless it was begun with its own time."""
    producer_timeout_us_max: int = 900_000_000
    """The longest time that a producer may ask for between the begin and the end of a transaction."""
    transaction_memory_us: int = 30 * 86_400_000_000
    """Commit keys and settled transactions are remembered at least this long."""
    writer_window: int = 64
    """Blocks per writer of which a repetition gets the offset of the first one."""
    writers_per_partition_max: int = 10_000
    """Writers whose sequence is remembered, the least recently used goes first."""


CARRIER_ON: Final = "on"
COMPACT: Final = "compact"
NO_CLEANUP: Final = "none"
UNLIMITED: Final = 1 << 62
"""Value for a topic that has no limit although the broker has one."""
SEGMENT_AGE_US: Final = 7 * 86_400_000_000
"""Active segments of compacted topics are closed at this age if the topic has no limit of its own."""
TOMBSTONE_RETENTION_US: Final = 86_400_000_000
DIRTY_SHARE_MIN: Final = 0.5
INERT_CONFIGS_LENGTH_MAX: Final = 16_384
"""Characters of the names and texts of a topic's ``inert_configs``, which are in the catalog and in memory."""


@lazy_dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of one topic; None means the broker's setting."""

    retention_age_us: int | None = None
    retention_bytes: int | None = None
    retention_mark_us: int | None = None
    hide_states: bool = False
    """Whether Iggy polls leave out messages that are not available, instead of showing them with their state."""
    kafka_states: str | None = None
    """``shown`` or ``hidden``: whether Kafka readers get messages that are not available, with their state in a header;
    None is hidden."""
    message_bytes_max: int | None = None
    """The largest batch of messages that a producer may send at once, if its protocol has such a limit."""
    append_time: bool = False
    """Whether messages get the time of their append even if their producer has set one."""
    timestamp_before_max_us: int | None = None
    timestamp_after_max_us: int | None = None
    """Bounds on a producer's own times, before and after the broker's clock, if a protocol has such bounds."""
    cleanup_policy: str | None = None
    """``compact``, ``compact,delete`` or ``delete,compact``, as Kafka calls them: the last message of each key stays,
    earlier ones are removed; retention does not apply to the first. ``none`` is Kafka's empty list: nothing is deleted
    nor compacted. None is ``delete``."""
    segment_bytes: int | None = None
    """A segment is closed before it becomes larger; only closed ones are compacted. None is the broker's setting."""
    segment_age_us: int | None = None
    """A segment is closed this long after its first message; None is a week in compacted topics, never in others."""
    tombstone_retention_us: int | None = None
    """How long a message without a payload stays in a compacted topic after its key was cleaned; None is a day."""
    compaction_lag_us_min: int | None = None
    """Segments with a message younger than this are not compacted."""
    compaction_lag_us_max: int | None = None
    """Messages are compacted at the latest this long after they were appended."""
    dirty_share_min: float | None = None
    """A partition is compacted when this share of its bytes is new, from 0 to 1; None is 0.5."""
    inert_configs: Mapping[str, str] | None = None
    """Configs by name that a client has set and that have no effect here: kept, so that it finds what it set."""
    header_form: str | None = None
    """``extended`` or ``plain``: the only form in which clients of a protocol that has both may read; None lets each
    choose."""
    carrier: str | None = None
    """``on`` or ``off``: whether readers of other protocols get carriers; None is the endpoint's setting."""
    dead_letter_topic: str | None = None
    """Flat name of the topic that gets a copy of every message that is marked poisoned; made when it is needed."""
    dead_letter_setter: int | str | None = None
    """User who set ``dead_letter_topic``: copies are made only with this user's rights. The id, or the name if the user
    is known by a certificate or another issuer; None for a setter who may do everything. Never set by or shown to
    clients."""
    attempts_max: int | None = None
    """Deliveries after which a channel gives a message up: it goes to the dead letter topic and is done there."""
    poison_given_up: bool = False
    """Whether a message that a channel gives up is marked poisoned, for all readers."""
    validate_schemas: bool = False
    """Whether Kafka's producers may send only values whose schema id is of the topic's subject in the schema registry.
    """
    subject_strategy: str | None = None
    """Which subject that is, as Confluent's serialisers name them: ``TOPIC``, ``RECORD`` or ``TOPIC_RECORD``; None is
    ``TOPIC``, the subject ``TOPIC-value``."""
    columns: str | None = None
    """Typed columns of the topic's live table, ``carrier string, delay int`` (docs/reference/contract)."""

    def document(self) -> dict[str, Any]:
        """Return the settings as JSON for clients, without what is not set."""
        values = {name: getattr(self, name) for name in _TOPIC_VALUES}
        return {name: value for name, value in values.items() if value is not None and value is not False}

    def to_stored_document(self) -> dict[str, Any]:
        """Return the settings as JSON for the disk, including the user who set ``dead_letter_topic``."""
        setter = self.dead_letter_setter
        return self.document() | ({} if setter is None else {_SETTER: setter})

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Return the settings of a JSON document, null being not set. SettingError names what is wrong."""
        for name, value in document.items():
            if name not in _TOPIC_VALUES:
                near = get_close_matches(name, _TOPIC_VALUES, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_TOPIC_VALUES)}"
                raise SettingError(f"unknown topic setting {name!r}; {hint}")
            holds, takes = _VALUES[_TOPIC_VALUES[name]]
            if value is not None and not holds(value):
                raise SettingError(f"topic setting {name} takes {takes}, not {value!r:.200}")
        if columns := document.get("columns"):
            # few topics have any: the others do not pay for the import
            from ...columns.topic_columns import parse_topic_columns

            parse_topic_columns(columns)
        return cls(**{name: value for name, value in document.items() if value is not None})

    @classmethod
    def parse_stored(cls, document: Mapping[str, Any]) -> Self:
        """Return the settings that ``to_stored_document`` describes. Raises SettingError as ``parse`` does."""
        setter = document.get(_SETTER)
        if setter is not None and not (isinstance(setter, int | str) and setter and setter is not True):
            raise SettingError(f"topic setting {_SETTER} takes the id or the name of a user, not {setter!r}")
        # columns were checked when they were set; a release that reads fewer types starts all the same
        unchecked = (_SETTER, "columns")
        checked = {name: value for name, value in document.items() if name not in unchecked}
        settings = cls.parse(_move_effective_configs(checked))
        return replace(settings, dead_letter_setter=setter, columns=document.get("columns"))

    def merge(self, document: Mapping[str, Any]) -> Self:
        """Return these settings changed by ``document``; null resets one. Raises SettingError as ``parse`` does.

        Another ``dead_letter_topic``, or the same one set again, has no setter until the caller gives it one.
        """
        settings = self.parse({**self.document(), **document})
        kept = None if "dead_letter_topic" in document else self.dead_letter_setter
        return replace(settings, dead_letter_setter=kept)


_EFFECTIVE_CONFIGS: Final[Mapping[str, tuple[str, Callable[[str], int | float]]]] = {
    "segment.bytes": ("segment_bytes", int),
    "segment.ms": ("segment_age_us", lambda text: min(max(int(text), 1) * 1000, UNLIMITED)),
    "delete.retention.ms": ("tombstone_retention_us", lambda text: min(int(text) * 1000, UNLIMITED)),
    "min.compaction.lag.ms": ("compaction_lag_us_min", lambda text: min(int(text) * 1000, UNLIMITED)),
    "max.compaction.lag.ms": ("compaction_lag_us_max", lambda text: min(max(int(text), 1) * 1000, UNLIMITED)),
    "min.cleanable.dirty.ratio": ("dirty_share_min", float),
}
"""Configs that had no effect before topics were compacted, and were kept as texts; with the settings that they are."""


def _move_effective_configs(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings with the configs that have an effect by now as settings of their own."""
    kept = document.get("inert_configs")
    if not isinstance(kept, Mapping) or not _EFFECTIVE_CONFIGS.keys() & kept.keys():
        return dict(document)
    moved: dict[str, Any] = {}
    for name in _EFFECTIVE_CONFIGS.keys() & kept.keys():
        setting, parse = _EFFECTIVE_CONFIGS[name]
        with suppress(ValueError):
            value = parse(kept[name])
            holds, _ = _VALUES[_TOPIC_VALUES[setting]]
            if holds(value):
                moved[setting] = value
    left = {name: text for name, text in kept.items() if name not in _EFFECTIVE_CONFIGS}
    return {**document, **moved, "inert_configs": left or None}


def _is_short_texts(value: Any) -> bool:
    """Return whether this is a mapping of names to texts, and not too long to keep."""
    if not isinstance(value, Mapping) or not value:
        return False
    texts = [*value.keys(), *value.values()]
    return all(isinstance(text, str) for text in texts) and sum(map(len, texts)) <= INERT_CONFIGS_LENGTH_MAX


_SETTER: Final = "dead_letter_setter"
_VALUES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "number": (lambda value: type(value) is int and 1 <= value < 1 << 63, "a whole number from 1"),
    "count": (lambda value: type(value) is int and 0 <= value < 1 << 63, "a whole number from 0"),
    "flag": (lambda value: type(value) is bool, "true or false"),
    "policy": (
        lambda value: value in (COMPACT, "compact,delete", "delete,compact", NO_CLEANUP),
        f"compact, compact,delete or {NO_CLEANUP}",
    ),
    "texts": (lambda value: _is_short_texts(value), f"texts by name, {INERT_CONFIGS_LENGTH_MAX} characters at most"),
    "form": (lambda value: value in ("extended", "plain"), "extended or plain"),
    "showing": (lambda value: value in ("shown", "hidden"), "shown or hidden"),
    "share": (lambda value: type(value) in (int, float) and 0 <= value <= 1, "a number from 0 to 1"),
    "switch": (lambda value: value in (CARRIER_ON, "off"), "on or off"),
    "strategy": (lambda value: value in STRATEGIES, ", ".join(STRATEGIES)),
    "columns": (
        lambda value: isinstance(value, str) and bool(value.strip()),
        "typed columns: carrier string, delay int",
    ),
    "name": (lambda value: isinstance(value, str) and 0 < len(value.encode(errors="replace")) <= 255, "a topic name"),
}
_TOPIC_VALUES: Final[Mapping[str, str]] = {
    "retention_age_us": "number",
    "retention_bytes": "number",
    "retention_mark_us": "number",
    "hide_states": "flag",
    "kafka_states": "showing",
    "message_bytes_max": "number",
    "append_time": "flag",
    "timestamp_before_max_us": "number",
    "timestamp_after_max_us": "number",
    "cleanup_policy": "policy",
    "segment_bytes": "number",
    "segment_age_us": "number",
    "tombstone_retention_us": "count",
    "compaction_lag_us_min": "count",
    "compaction_lag_us_max": "number",
    "dirty_share_min": "share",
    "inert_configs": "texts",
    "header_form": "form",
    "carrier": "switch",
    "dead_letter_topic": "name",
    "attempts_max": "number",
    "poison_given_up": "flag",
    "validate_schemas": "flag",
    "subject_strategy": "strategy",
    "columns": "columns",
}
"""Which values each topic setting takes."""
