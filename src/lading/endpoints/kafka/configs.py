"""Configs of a topic, as Kafka calls them: a table over our own settings, for describing and changing.

* DescribeConfigs 1-4. 1 sources and synonyms (KIP-226); 3 types and documentation (KIP-569); 4 tagged fields.
* AlterConfigs 0-2: replaces all configs of a resource. 2 tagged fields.
* IncrementalAlterConfigs 0-1: sets, deletes, appends and subtracts one by one (KIP-339). 1 tagged fields.
* ListConfigResources 0-1. 0 client metrics alone (KIP-1000); 1 any type (KIP-1142).

Here: configs of topics have an effect or are kept as they were set. Configs of the broker with an effect are in its
settings file, and described; others, and those of groups, are kept (``dynamic_configs``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...broker.core.settings import (
    COMPACT,
    DIRTY_SHARE_MIN,
    NO_CLEANUP,
    SEGMENT_AGE_US,
    TOMBSTONE_RETENTION_US,
    UNLIMITED,
    TopicSettings,
)
from ...dialects.kafka.errors import INVALID_CONFIG, INVALID_REQUEST, UNSUPPORTED_VERSION, code_of
from ...dialects.kafka.versions import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from ...model.errors import LadingError, SettingError
from ...runtime.turns import Turn, TurnCounter, Turns, take_turns
from ..base.append_wait import wait_for_result
from .dynamic_configs import (
    BOOLEAN,
    BROKER,
    DEFAULT,
    DELETE_OP,
    DOUBLE,
    GROUP,
    INT,
    LIST,
    LONG,
    OF_ALL_BROKERS,
    OF_TOPIC,
    SET_OP,
    STATIC,
    STRING,
    SUBTRACT_OP,
    ConfigRefusal,
    DynamicConfigs,
    Operation,
    change_broker_configs,
    change_group_configs,
    make_choice_parser,
    make_number_parser,
    make_row,
    split_list,
)
from .handling import NODE_ID, Answer, Context, Fields, Handler, Request, Session

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

TOPIC, BROKER_LOGGER, CLIENT_METRICS = 2, 8, 16
KINDS_LISTED: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})
"""The kinds that Apache Kafka 4.3 lists; a request for another one gets UNSUPPORTED_VERSION."""
"""Kinds of resources next to BROKER and GROUP; the metrics of clients have no configs here."""
DELETE: Final = "delete"
"""The policy of topics whose messages are deleted by age and size alone."""


class Config(NamedTuple):
    """A config of topics: the setting that it is, its name for all topics, its type, and conversions from
    and to text.
    """

    setting: str
    broker_wide: str
    kind: int
    parse: Callable[[str], Any]
    show: Callable[[Any], str]


def _make_retention_parser(scale: int) -> Callable[[str], int]:
    number = make_number_parser(-1, UNLIMITED // scale - 1)

    def parse(text: str) -> int:
        value = number(text)
        return UNLIMITED if value < 0 else max(value * scale, 1)

    return parse


def _make_retention_printer(scale: int) -> Callable[[int], str]:
    return lambda value: "-1" if value >= UNLIMITED else str(value // scale)


def _parse_time_bound(text: str) -> int:
    bound_ms = make_number_parser(0, (1 << 63) - 1)(text)
    return UNLIMITED if bound_ms >= UNLIMITED // 1000 else max(bound_ms * 1000, 1)


def _show_time_bound(bound_us: int) -> str:
    return _NEVER_MS if bound_us >= UNLIMITED else str(bound_us // 1000)


def _parse_duration(text: str) -> int:
    duration_ms = make_number_parser(0, (1 << 63) - 1)(text)
    return min(duration_ms * 1000, UNLIMITED)


def _parse_limit(text: str) -> int:
    """Parse a duration in milliseconds, at least 1; return microseconds."""
    return min(make_number_parser(1, (1 << 63) - 1)(text) * 1000, UNLIMITED)


def _parse_share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise ValueError("it takes a number from 0 to 1")
    return share


def to_time_bound_us(bound_ms: int | None) -> int:
    """Return a bound of the endpoint's settings in the form of topics; UNLIMITED for None."""
    return UNLIMITED if bound_ms is None else _parse_time_bound(str(bound_ms))


def _parse_policy(text: str) -> str | None:
    """Return the setting for a list of policies, None for the default.

    The order stays, which tools compare with what they have set. Kafka 4 also accepts the empty list: nothing is
    deleted or compacted.
    """
    names = list(dict.fromkeys(split_list(text)))
    if not {*names} <= {DELETE, COMPACT}:
        raise ValueError(f"it takes {DELETE}, {COMPACT}, both or neither")
    return None if names == [DELETE] else ",".join(names) or NO_CLEANUP


def _show_policy(policy: str) -> str:
    return "" if policy == NO_CLEANUP else policy


_NEVER_MS: Final = str((1 << 63) - 1)
_TIME_TYPES: Final = {"CreateTime": False, "LogAppendTime": True}

CONFIGS: Final[Mapping[str, Config]] = {
    "retention.ms": Config(
        "retention_age_us", "log.retention.ms", LONG, _make_retention_parser(1000), _make_retention_printer(1000)
    ),
    "retention.bytes": Config(
        "retention_bytes", "log.retention.bytes", LONG, _make_retention_parser(1), _make_retention_printer(1)
    ),
    "max.message.bytes": Config("message_bytes_max", "message.max.bytes", INT, make_number_parser(1, 1 << 30), str),
    "message.timestamp.type": Config(
        "append_time",
        "log.message.timestamp.type",
        STRING,
        lambda text: _TIME_TYPES[make_choice_parser(*_TIME_TYPES)(text)],
        lambda value: "LogAppendTime" if value else "CreateTime",
    ),
    "message.timestamp.before.max.ms": Config(
        "timestamp_before_max_us", "log.message.timestamp.before.max.ms", LONG, _parse_time_bound, _show_time_bound
    ),
    "message.timestamp.after.max.ms": Config(
        "timestamp_after_max_us", "log.message.timestamp.after.max.ms", LONG, _parse_time_bound, _show_time_bound
    ),
    "cleanup.policy": Config("cleanup_policy", "log.cleanup.policy", LIST, _parse_policy, _show_policy),
    "segment.bytes": Config("segment_bytes", "log.segment.bytes", INT, make_number_parser(1, (1 << 31) - 1), str),
    "segment.ms": Config("segment_age_us", "log.roll.ms", LONG, _parse_limit, _show_time_bound),
    "delete.retention.ms": Config(
        "tombstone_retention_us", "log.cleaner.delete.retention.ms", LONG, _parse_duration, _show_time_bound
    ),
    "min.compaction.lag.ms": Config(
        "compaction_lag_us_min", "log.cleaner.min.compaction.lag.ms", LONG, _parse_duration, _show_time_bound
    ),
    "max.compaction.lag.ms": Config(
        "compaction_lag_us_max", "log.cleaner.max.compaction.lag.ms", LONG, _parse_limit, _show_time_bound
    ),
    "min.cleanable.dirty.ratio": Config(
        "dirty_share_min", "log.cleaner.min.cleanable.ratio", DOUBLE, _parse_share, str
    ),
}
"""The configs that have an effect here and can be set."""


class Fixed(NamedTuple):
    """A config with only one possible value: its type, and the reason."""

    value: str
    kind: int
    why: str
    is_of_cluster: bool = False
    """Whether a cluster of Apache Kafka has it as a config of all brokers, which hides the default."""


FIXED: Final[Mapping[str, Fixed]] = {
    # written by the controller at its first start, for eligible leader replicas (KIP-966, Kafka 4.1)
    "min.insync.replicas": Fixed("1", INT, "there is one broker", is_of_cluster=True),
    "unclean.leader.election.enable": Fixed("false", BOOLEAN, "there is one broker"),
}
"""Configs that never change; setting them to their value is accepted."""

_WHOLE: Final = make_number_parser(0, (1 << 63) - 1)
_LEVEL: Final = make_number_parser(-(1 << 31), (1 << 31) - 1)


class InertConfig(NamedTuple):
    """A config without effect here: its type, and its check, which raises ValueError for a text of another type."""

    kind: int
    check: Callable[[str], Any]


INERT: Final[Mapping[str, InertConfig]] = {
    "compression.type": InertConfig(
        STRING, make_choice_parser("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
    ),
    **dict.fromkeys(
        ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"), InertConfig(INT, _LEVEL)
    ),
    **dict.fromkeys(("segment.index.bytes", "index.interval.bytes"), InertConfig(INT, _WHOLE)),
    **dict.fromkeys(("segment.jitter.ms", "flush.messages", "flush.ms"), InertConfig(LONG, _WHOLE)),
    "file.delete.delay.ms": InertConfig(LONG, _WHOLE),
    "preallocate": InertConfig(BOOLEAN, make_choice_parser("true", "false")),
    **dict.fromkeys(
        ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"), InertConfig(LIST, str)
    ),
    # configs of tiered storage can only be switched off, or left as they are
    **dict.fromkeys(
        ("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"),
        InertConfig(BOOLEAN, make_choice_parser("false")),
    ),
    **dict.fromkeys(("local.retention.ms", "local.retention.bytes"), InertConfig(LONG, make_choice_parser("-2"))),
}
"""Configs of how a broker lays out, packs and replicates its files.

No reader or writer can see the difference, and Kafka Streams cannot create a topic without some of them. Values of the
right type are kept and described, so that a tool that compares finds the values it has set; and all of them may be
reset, as MirrorMaker does.
"""
_INERT_DEFAULTS: Final[Mapping[str, str]] = {"compression.type": "producer"}
"""Inert configs that are described even if they are not set: their default is what the broker does."""
_INERT_SETTING: Final = "inert_configs"


def changes_of(configs: Iterable[tuple[str, str | None]], inert: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the members of ``TopicSettings`` that configs mean, by name and text. Raises SettingError that names the
    wrong one.

    ``inert`` are the topic's present inert configs.
    """
    document: dict[str, Any] = {}
    kept = dict(inert or {})
    for name, text in configs:
        if name in FIXED:
            fixed = FIXED[name]
            if text is not None and text != fixed.value:
                raise SettingError(f"{name} is {fixed.value!r} here and cannot be {text!r}: {fixed.why}; leave it out")
            continue
        config = CONFIGS.get(name)
        if config is None and name not in INERT:
            raise SettingError(f"topics have no config {name!r} here; there are {', '.join((*CONFIGS, *FIXED))}")
        try:
            if config is not None:
                document[config.setting] = None if text is None else config.parse(text)
            elif text is None:
                kept.pop(name, None)
            else:
                INERT[name].check(text.strip())
                kept[name] = text
        except ValueError as error:
            raise SettingError(f"{name} cannot be {text!r}: {error}") from None
    if kept != (inert or {}):
        document[_INERT_SETTING] = kept or None
    return document


def handlers(context: Context) -> Mapping[int, Handler]:
    """DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""
    answers = _Handlers(context)
    return {
        DESCRIBE_CONFIGS: answers.describe,
        ALTER_CONFIGS: answers.replace,
        INCREMENTAL_ALTER_CONFIGS: answers.change,
        LIST_CONFIG_RESOURCES: answers.resources,
    }


class _Handlers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._dynamic = DynamicConfigs(context.broker)

    def describe(self, session: Session, request: Request) -> Answer:
        return take_turns(self._describe(session, request))

    def _describe(self, session: Session, request: Request) -> Turns[Fields]:
        synonyms, turn = bool(request.body.include_synonyms), TurnCounter()
        results = []
        for one in request.body.resources:
            results.append(self._describe_resource(session, one, synonyms=synonyms))
            if turn.is_over(len(CONFIGS) + len(FIXED) + len(INERT)):
                yield
        return {"results": results}

    def _describe_resource(self, session: Session, asked: Any, *, synonyms: bool) -> Fields:
        row = {"resource_type": asked.resource_type, "resource_name": asked.resource_name, "error_message": None}
        try:
            if asked.resource_type == TOPIC:
                rows = topic_rows(self._context, self._context.topics.find(asked.resource_name).settings)
            elif asked.resource_type == BROKER and asked.resource_name == str(NODE_ID):
                rows = self._static_rows(session) + self._dynamic.broker_rows(asked.resource_name)
            elif (asked.resource_type, asked.resource_name) == _ALL:
                rows = self._dynamic.broker_rows(asked.resource_name)
            elif asked.resource_type == GROUP:
                rows = self._dynamic.group_rows(asked.resource_name)
            elif asked.resource_type == CLIENT_METRICS:
                rows = []
            else:
                return {**row, "error_code": INVALID_REQUEST, "error_message": _NO_SUCH.format(asked.resource_name)}
        except LadingError as error:
            return {**row, "error_code": code_of(error), "error_message": str(error)}
        wanted = asked.configuration_keys
        told = [one for one in rows if wanted is None or one["name"] in wanted]
        if not synonyms:
            told = [{**one, "synonyms": []} for one in told]
        return {**row, "error_code": 0, "configs": told}

    def resources(self, session: Session, request: Request) -> Fields:
        """Return the resources that have or may have configs: topics, the broker and groups, as ListConfigResources
        lists them.
        """
        named = {
            TOPIC: [topic.flat_name for topic in self._context.topics.list_topics()],
            BROKER: [str(NODE_ID)],
            GROUP: sorted({*self._context.broker.coordinated_groups.names(), *self._dynamic.list_groups()}),
        }
        # the first version lists metrics of clients only; in later ones an empty list means every kind
        if request.version and not KINDS_LISTED.issuperset(request.body.resource_types or ()):
            return {"error_code": UNSUPPORTED_VERSION, "config_resources": []}
        wanted = (request.body.resource_types or tuple(named)) if request.version else ()
        rows = [
            {"resource_name": name, "resource_type": kind} for kind in named if kind in wanted for name in named[kind]
        ]
        return {"error_code": 0, "config_resources": rows}

    def _static_rows(self, session: Session) -> list[dict[str, Any]]:
        ours, settings = self._context.settings, self._context.services.settings
        login = "SASL_" if self._context.broker.access.is_enabled else ""
        protocol = login + ("SSL" if ours.tls.enabled else "PLAINTEXT")
        listener = session.here if ours.address.port == 0 else ours.address
        advertised = self._context.choose_address(session)
        values = {
            "auto.create.topics.enable": (str(ours.auto_create).lower(), BOOLEAN),
            "num.partitions": (str(ours.partitions), INT),
            "message.max.bytes": (str(int(ours.message_bytes_max)), INT),
            "log.retention.ms": (str(settings.retention.age_ms or -1), LONG),
            "log.retention.bytes": (str(int(settings.retention.size_bytes or -1)), LONG),
            "log.segment.bytes": (str(int(settings.log.segment_bytes)), INT),
            "default.replication.factor": ("1", INT),
            "log.message.timestamp.type": ("CreateTime", STRING),
            "log.message.timestamp.before.max.ms": (
                _show_time_bound(to_time_bound_us(ours.message_timestamp_before_max_ms)),
                LONG,
            ),
            "log.message.timestamp.after.max.ms": (
                _show_time_bound(to_time_bound_us(ours.message_timestamp_after_max_ms)),
                LONG,
            ),
            "listeners": (f"{protocol}://{listener}", LIST),
            "advertised.listeners": (f"{protocol}://{advertised}", LIST),
        }
        return [make_row(name, value, STATIC, kind, read_only=True) for name, (value, kind) in values.items()]

    async def change(self, session: Session, request: Request) -> Fields:
        """Change some configs of a resource; the others stay."""
        return await self._all_altered(
            request,
            lambda asked, settings: changes_of(
                (_change(config, settings) for config in asked.configs), settings.inert_configs
            ),
            lambda asked: (
                self._dynamic.find(asked.resource_type, asked.resource_name),
                [Operation(config.name, config.config_operation, config.value) for config in asked.configs],
            ),
        )

    async def replace(self, session: Session, request: Request) -> Fields:
        """Replace all configs of a resource: those that are not named go back to their defaults."""
        unset: dict[str, Any] = {config.setting: None for config in CONFIGS.values()}
        return await self._all_altered(
            request,
            lambda asked, settings: unset | changes_of(_replace(asked.configs), settings.inert_configs),
            lambda asked: ({}, [Operation(config.name, SET_OP, config.value) for config in asked.configs]),
        )

    async def _all_altered(self, request: Request, changes: _Changes, operations: _Operations) -> Fields:
        body, turn, rows = request.body, Turn(), []
        for one in body.resources:
            if one.resource_type in (BROKER, GROUP):
                rows.append(self._alter_dynamic(one, operations, validate_only=body.validate_only))
            else:
                rows.append(await self._alter_topic(one, changes, validate_only=body.validate_only))
            await turn.give_way()
        if any(row["resource_type"] != TOPIC and not row["error_code"] for row in rows):
            try:
                await wait_for_result(self._context.broker.catalog_commit.confirm())
            except LadingError as error:
                failed = {"error_code": code_of(error), "error_message": str(error)}
                rows = [
                    row if row["resource_type"] == TOPIC or row["error_code"] else {**row, **failed} for row in rows
                ]
        return {"responses": rows}

    def _alter_dynamic(self, asked: Any, operations: _Operations, *, validate_only: bool) -> dict[str, Any]:
        kind, name = asked.resource_type, asked.resource_name
        row = {"resource_type": kind, "resource_name": name, "error_code": 0, "error_message": None}
        try:
            if kind == GROUP:
                changed = change_group_configs(name, *operations(asked))
            elif name in ("", str(NODE_ID)):
                changed = change_broker_configs(*operations(asked), _STATIC_NAMES)
            else:
                raise ConfigRefusal(INVALID_REQUEST, f"broker {name!r} does not exist; the only one is {NODE_ID}")
            if not validate_only:
                self._dynamic.replace(kind, name, changed)
        except ConfigRefusal as refusal:
            return {**row, "error_code": refusal.code, "error_message": str(refusal)}
        except LadingError as error:
            return {**row, "error_code": code_of(error), "error_message": str(error)}
        return row

    async def _alter_topic(self, asked: Any, changes: _Changes, *, validate_only: bool) -> dict[str, Any]:
        row = {"resource_type": asked.resource_type, "resource_name": asked.resource_name, "error_message": None}
        if asked.resource_type != TOPIC:
            return {**row, "error_code": INVALID_REQUEST, "error_message": _NO_SUCH.format(asked.resource_name)}
        try:
            topic = self._context.topics.find_to_change(asked.resource_name)
            settings = topic.settings.merge(changes(asked, topic.settings))
            if not validate_only:
                change = self._context.broker.changes.alter_topic(topic, settings)
                await self._context.services.changes.make_in_turn(topic, change)
        except SettingError as error:
            return {**row, "error_code": INVALID_CONFIG, "error_message": str(error)}
        except LadingError as error:
            return {**row, "error_code": code_of(error), "error_message": str(error)}
        return {**row, "error_code": 0}


_Changes = Callable[[Any, TopicSettings], dict[str, Any]]
_Operations = Callable[[Any], tuple[Mapping[str, str], Iterable[Operation]]]
_ALL: Final = (BROKER, "")
"""The name under which configs for all brokers are set."""
_STATIC_NAMES: Final = frozenset(
    {
        "auto.create.topics.enable", "num.partitions", "message.max.bytes", "log.retention.ms", "log.retention.bytes",
        "log.segment.bytes", "default.replication.factor", "listeners", "advertised.listeners",
        "log.message.timestamp.type", "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms",
    }
)  # fmt: skip
"""Configs of the broker that clients cannot change: those with an effect, and those with only one value."""
_NO_SUCH: Final = "{!r} has no configs here; topics, broker 1 and groups have some"


def _change(config: Any, settings: TopicSettings) -> tuple[str, str | None]:
    name, operation = config.name, config.config_operation
    if operation in (SET_OP, DELETE_OP):
        return name, None if operation == DELETE_OP else config.value
    known = CONFIGS.get(name) or INERT.get(name)
    if known is None or known.kind != LIST:
        raise SettingError(f"{name} is not a list of values, which could be appended to or subtracted from; set it")
    now = split_list(_show_list(name, settings))
    named = split_list(config.value or "")
    left = [*now, *(each for each in named if each not in now)]
    if operation == SUBTRACT_OP:
        left = [each for each in now if each not in named]
    return name, ",".join(left)


def _replace(configs: Iterable[Any]) -> Iterator[tuple[str, str | None]]:
    """Yield what resets all inert configs of this protocol, then the configs that are named."""
    yield from ((name, None) for name in INERT)
    yield from ((config.name, config.value) for config in configs)


def _show_list(name: str, settings: TopicSettings) -> str:
    """Return the text of a topic's config whose type is a list."""
    if name in INERT:
        return (settings.inert_configs or {}).get(name, "")
    return _show_policy(settings.cleanup_policy or DELETE)


def topic_rows(context: Context, settings: TopicSettings) -> list[dict[str, Any]]:
    """Return all configs of a topic."""
    own = settings.document()
    retention = context.services.settings.retention
    broker_wide: dict[str, Any] = {
        "retention_age_us": None if retention.age_ms is None else retention.age_ms * 1000,
        "retention_bytes": retention.size_bytes,
        "message_bytes_max": int(context.settings.message_bytes_max),
        "append_time": False,
        "timestamp_before_max_us": to_time_bound_us(context.settings.message_timestamp_before_max_ms),
        "timestamp_after_max_us": to_time_bound_us(context.settings.message_timestamp_after_max_ms),
        "cleanup_policy": DELETE,
        "segment_bytes": int(context.services.settings.log.segment_bytes),
        "segment_age_us": SEGMENT_AGE_US,
        "tombstone_retention_us": TOMBSTONE_RETENTION_US,
        "compaction_lag_us_min": 0,
        "compaction_lag_us_max": UNLIMITED,
        "dirty_share_min": DIRTY_SHARE_MIN,
    }
    rows = []
    for name, config in CONFIGS.items():
        wide = broker_wide[config.setting]
        levels = [(config.broker_wide, config.show(UNLIMITED if wide is None else wide), DEFAULT)]
        if config.setting in own:
            levels.insert(0, (name, config.show(own[config.setting]), OF_TOPIC))
        _, text, source = levels[0]
        rows.append(make_row(name, text, source, config.kind, levels))
    set_here = settings.inert_configs or {}
    for name, inert in INERT.items():
        if name in set_here:
            rows.append(make_row(name, set_here[name], OF_TOPIC, inert.kind, [(name, set_here[name], OF_TOPIC)]))
        elif name in _INERT_DEFAULTS:
            default = _INERT_DEFAULTS[name]
            rows.append(make_row(name, default, DEFAULT, inert.kind, [(name, default, DEFAULT)]))
    for name, (value, kind, _, is_of_cluster) in FIXED.items():
        sources = (OF_ALL_BROKERS, DEFAULT) if is_of_cluster else (DEFAULT,)
        levels = [(name, value, source) for source in sources]
        rows.append(make_row(name, value, sources[0], kind, levels, read_only=True))
    return rows


def describe_topic(context: Context, topic: Topic) -> list[dict[str, Any]]:
    """Return the configs of a topic as CreateTopics returns them."""
    told = ("name", "value", "read_only", "config_source", "is_sensitive")
    return [{name: row[name] for name in told} for row in topic_rows(context, topic.settings)]
