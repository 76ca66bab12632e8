"""Configs that clients set for the broker and for groups, Kafka's dynamic configs: they are kept and described.

Only those of consumer and share groups, ``consumer.*`` and ``share.*``, have an effect. Those of the broker configure
how Kafka divides its work, compacts, and stores segments elsewhere; configs with an effect here are in the settings
file, and described as read-only. The remaining configs of groups belong to a protocol that this broker does not serve.
Defaults, bounds and errors are those of Apache Kafka 4.3.1, except that any DOUBLE from 0 on is accepted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...broker.kafka.share_start import LATEST, find_duration_us
from ...dialects.kafka.errors import INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION

if TYPE_CHECKING:
    from ...broker.broker import Broker

BROKER, GROUP = 4, 32
"""Kinds of resources."""
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Types of values."""
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, STATIC, DEFAULT, OF_GROUP = 1, 2, 3, 4, 5, 8
"""Origins of a value: the topic, the broker, all brokers, the broker's settings file, the default, the group."""
SET_OP, DELETE_OP, APPEND_OP, SUBTRACT_OP = range(4)
RESOURCES_MAX: Final = 10_000
"""Limit of brokers and groups with configs; a group need not exist to have some."""
NAME_CHARACTERS_MAX: Final = 255
TEXT_CHARACTERS_MAX: Final = 1_000
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


def make_number_parser(low: int, high: int) -> Callable[[str], int]:
    """Return a function that parses a whole number, and raises ValueError for any other text."""

    def parse(text: str) -> int:
        try:
            # int() alone would accept digits of all scripts, and 1_6
            value = int(text) if _WHOLE_NUMBER.fullmatch(text) else low - 1
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ValueError(f"it takes a number from {low} to {high}")
        return value

    return parse


def make_choice_parser(*texts: str) -> Callable[[str], str]:
    """Return a function that accepts only these texts, and raises ValueError for any other."""

    def parse(text: str) -> str:
        if text not in texts:
            raise ValueError(f"it takes {' or '.join(texts)}")
        return text

    return parse


def split_list(text: str) -> list[str]:
    """Return the values of a config of the type LIST."""
    return [each.strip() for each in text.split(",") if each.strip()]


def make_row(
    name: str,
    value: str | None,
    source: int,
    kind: int,
    levels: Iterable[tuple[str, str | None, int]] = (),
    *,
    read_only: bool = False,
) -> dict[str, Any]:
    """Return one config as a row of the response.

    ``levels`` are its possible names, values and sources, the one in effect first.
    """
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [dict(zip(("name", "value", "source"), level, strict=True)) for level in levels],
        "config_type": kind,
        "documentation": None,
    }


class DynamicConfig(NamedTuple):
    """A config without effect: its type, its default, and its check, which raises ValueError for a wrong text."""

    kind: int
    default: str | None
    check: Callable[[str], Any]


def _whole_config(default: int | None, low: int = 0, high: int = (1 << 31) - 1, kind: int = INT) -> DynamicConfig:
    return DynamicConfig(kind, None if default is None else str(default), make_number_parser(low, high))


def _long_config(default: int | None, low: int = 0) -> DynamicConfig:
    return _whole_config(default, low, (1 << 63) - 1, LONG)


def _switch(default: str) -> DynamicConfig:
    return DynamicConfig(BOOLEAN, default, make_choice_parser("true", "false"))


def _share(default: str) -> DynamicConfig:
    return DynamicConfig(DOUBLE, default, _check_share)


def _check_share(text: str) -> None:
    # NaN is outside of every interval
    if not 0.0 <= float(text) <= math.inf:
        raise ValueError(f"it takes a number from 0.0 to {math.inf}")


def _text_config(default: str | None) -> DynamicConfig:
    return DynamicConfig(STRING, default, str)


def _check_policies(text: str) -> None:
    names = set(split_list(text))
    if not names <= {"compact", "delete"}:
        raise ValueError("it takes compact and delete")
    if "delete" not in names:
        # not accepted: retention would still delete, which a user who sets this alone would not expect
        raise ValueError("delete cannot be left out for all topics here; set cleanup.policy of a topic")


_MOST: Final = (1 << 63) - 1
BROKER_CONFIGS: Final[Mapping[str, DynamicConfig]] = {
    "background.threads": _whole_config(10, 1),
    "compression.gzip.level": _whole_config(-1, -1, 9),
    "compression.lz4.level": _whole_config(9, 1, 17),
    "compression.type": DynamicConfig(
        STRING, "producer", make_choice_parser("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "compression.zstd.level": _whole_config(3, -131_072, 22),
    "group.coordinator.cached.buffer.max.bytes": _whole_config(1_048_588, 512 * 1024),
    "log.cleaner.backoff.ms": _long_config(15_000),
    "log.cleaner.dedupe.buffer.size": _long_config(134_217_728),
    "log.cleaner.delete.retention.ms": _long_config(86_400_000),
    "log.cleaner.io.buffer.load.factor": _share("0.9"),
    "log.cleaner.io.buffer.size": _whole_config(524_288),
    "log.cleaner.io.max.bytes.per.second": _share("1.7976931348623157E308"),
    "log.cleaner.max.compaction.lag.ms": _long_config(_MOST, 1),
    "log.cleaner.min.cleanable.ratio": _share("0.5"),
    "log.cleaner.min.compaction.lag.ms": _long_config(0),
    "log.cleaner.threads": _whole_config(1, 0),
    "log.cleanup.policy": DynamicConfig(LIST, "delete", _check_policies),
    "log.flush.interval.messages": _long_config(_MOST, 1),
    "log.flush.interval.ms": _long_config(None),
    "log.index.interval.bytes": _whole_config(4096),
    "log.index.size.max.bytes": _whole_config(10_485_760, 4),
    "log.preallocate": _switch("false"),
    "log.roll.jitter.ms": _long_config(None),
    "log.roll.ms": _long_config(None, 1),
    "log.segment.delete.delay.ms": _long_config(60_000),
    "num.io.threads": _whole_config(8, 1),
    "num.network.threads": _whole_config(3, 1),
    "num.recovery.threads.per.data.dir": _whole_config(2, 1),
    "num.replica.fetchers": _whole_config(1),
    "producer.id.expiration.ms": _whole_config(86_400_000, 1),
    "remote.fetch.max.wait.ms": _whole_config(500, 1),
    "remote.list.offsets.request.timeout.ms": _long_config(30_000, 1),
    "remote.log.index.file.cache.total.size.bytes": _long_config(1_073_741_824, 1),
    "remote.log.manager.copier.thread.pool.size": _whole_config(10, 1),
    "remote.log.manager.copy.max.bytes.per.second": _long_config(_MOST, 1),
    "remote.log.manager.expiration.thread.pool.size": _whole_config(10, 1),
    "remote.log.manager.fetch.max.bytes.per.second": _long_config(_MOST, 1),
    "remote.log.manager.follower.thread.pool.size": _whole_config(2, 1),
    "remote.log.reader.threads": _whole_config(10, 1),
    "sasl.kerberos.kinit.cmd": _text_config("/usr/bin/kinit"),
    "sasl.kerberos.min.time.before.relogin": _long_config(60_000),
    "sasl.kerberos.service.name": _text_config(None),
    "sasl.kerberos.ticket.renew.jitter": _share("0.05"),
    "sasl.kerberos.ticket.renew.window.factor": _share("0.8"),
    "sasl.login.refresh.buffer.seconds": _whole_config(300, 0, 3600),
    "sasl.login.refresh.min.period.seconds": _whole_config(60, 0, 900),
    "sasl.login.refresh.window.factor": _share("0.8"),
    "sasl.login.refresh.window.jitter": _share("0.05"),
    "share.coordinator.cached.buffer.max.bytes": _whole_config(1_048_588, 512 * 1024),
    "transaction.partition.verification.enable": _switch("true"),
    # throttles of replication, which kafka-reassign-partitions sets and removes
    "leader.replication.throttled.rate": _long_config(None),
    "follower.replication.throttled.rate": _long_config(None),
    "replica.alter.log.dirs.io.max.bytes.per.second": _long_config(None),
}
"""Configs of the broker that clients may change in Kafka, and that have no effect here."""

GROUP_CONFIGS: Final[Mapping[str, DynamicConfig]] = {
    **{
        f"{protocol}.{name}": config
        for protocol in ("consumer", "share", "streams")
        for name, config in (
            ("session.timeout.ms", _whole_config(45_000, 45_000, 60_000)),
            ("heartbeat.interval.ms", _whole_config(5_000, 5_000, 15_000)),
            ("assignment.interval.ms", _whole_config(1_000, 0, 15_000)),
        )
    },
    "share.auto.offset.reset": DynamicConfig(STRING, LATEST, find_duration_us),
    "share.delivery.count.limit": _whole_config(5, 2, 10),
    "share.isolation.level": DynamicConfig(
        STRING, "read_uncommitted", make_choice_parser("read_committed", "read_uncommitted")
    ),
    "share.partition.max.record.locks": _whole_config(2_000, 100, 4_000),
    "share.record.lock.duration.ms": _whole_config(30_000, 15_000, 60_000),
    "share.renew.acknowledge.enable": _switch("true"),
    "streams.initial.rebalance.delay.ms": _whole_config(3_000),
    "streams.num.standby.replicas": _whole_config(0, 0, 2),
}
"""Configs of groups, for the newer group protocols."""
_WITHOUT_BROKER_WIDE: Final = ("share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable")
"""Configs of groups whose default has no config of its own at the broker."""


class Operation(NamedTuple):
    """A change of one config; ``operation`` is SET_OP, DELETE_OP, APPEND_OP or SUBTRACT_OP."""

    name: str
    operation: int
    text: str | None


class ConfigRefusal(Exception):
    """A refused change, with Kafka's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class DynamicConfigs:
    """The configs of the broker, of all brokers (under an empty name) and of groups."""

    def __init__(self, broker: Broker) -> None:
        self._table = broker.kafka_configs

    def list_groups(self) -> list[str]:
        """Return the names of groups that have configs, whether or not the groups exist."""
        return self._table.list_names(GROUP)

    def find(self, kind: int, name: str) -> dict[str, str]:
        """Return the configs that are set for a resource."""
        return self._table.find(kind, name)

    def broker_rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of the broker, or of the configs for all brokers."""
        of_all = self.find(BROKER, "")
        if not name:
            return [
                make_row(key, text, OF_ALL_BROKERS, BROKER_CONFIGS[key].kind, [(key, text, OF_ALL_BROKERS)])
                for key, text in of_all.items()
            ]
        own, rows = self.find(BROKER, name), []
        for key, config in BROKER_CONFIGS.items():
            levels: list[tuple[str, str | None, int]] = [
                (key, values[key], source)
                for values, source in ((own, OF_BROKER), (of_all, OF_ALL_BROKERS))
                if key in values
            ]
            if config.default is not None:
                levels.append((key, config.default, DEFAULT))
            _, text, source = levels[0] if levels else (key, None, DEFAULT)
            rows.append(make_row(key, text, source, config.kind, levels))
        return rows

    def group_rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a group, whether or not it exists."""
        own, rows = self.find(GROUP, name), []
        for key, config in GROUP_CONFIGS.items():
            levels = [(key if key in _WITHOUT_BROKER_WIDE else f"group.{key}", config.default, DEFAULT)]
            if key in own:
                levels.insert(0, (key, own[key], OF_GROUP))
            _, text, source = levels[0]
            rows.append(make_row(key, text, source, config.kind, levels))
        return rows

    def replace(self, kind: int, name: str, configs: Mapping[str, str]) -> None:
        """Replace the configs of a resource; the caller waits for the disk. Raises ConfigRefusal if there
        are too many.
        """
        is_new = bool(configs) and not self.find(kind, name)
        if is_new and self._table.count() >= RESOURCES_MAX:
            raise ConfigRefusal(
                POLICY_VIOLATION,
                f"{RESOURCES_MAX} resources have configs, the most there may be; delete those of others",
            )
        self._table.replace(kind, name, configs)


def change_broker_configs(
    configs: Mapping[str, str], operations: Iterable[Operation], read_only: Iterable[str]
) -> dict[str, str]:
    """Return the configs of the broker after changes. Raises ConfigRefusal; ``read_only`` are the configs of its
    settings file.
    """
    wanted = list(operations)
    if fixed := [change.name for change in wanted if change.name in read_only]:
        raise ConfigRefusal(
            INVALID_REQUEST,
            f"Cannot update these configs dynamically: {fixed}; change them in the broker's settings file",
        )
    return _change_configs(configs, wanted, BROKER_CONFIGS, INVALID_REQUEST)


def change_group_configs(name: str, configs: Mapping[str, str], operations: Iterable[Operation]) -> dict[str, str]:
    """Return the configs of a group after changes. Raises ConfigRefusal."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise ConfigRefusal(
            INVALID_REQUEST,
            f"a group with configs has a name of 1 to {NAME_CHARACTERS_MAX} characters, not {len(name)}",
        )
    return _change_configs(configs, operations, GROUP_CONFIGS, INVALID_CONFIG)


def _change_configs(
    configs: Mapping[str, str], operations: Iterable[Operation], known: Mapping[str, DynamicConfig], code: int
) -> dict[str, str]:
    changed = dict(configs)
    for name, operation, text in operations:
        config = known.get(name)
        if operation == DELETE_OP:
            changed.pop(name, None)
        elif config is None:
            raise ConfigRefusal(code, f"config {name!r} is not known here; there are {', '.join(known)}")
        else:
            value = text or ""
            if operation in (APPEND_OP, SUBTRACT_OP):
                value = _change_list(name, config, changed.get(name, config.default or ""), operation, value)
            changed[name] = _require_value(name, config, value, code)
    return changed


def _change_list(name: str, config: DynamicConfig, text: str, operation: int, change: str) -> str:
    if config.kind != LIST:
        word = "append" if operation == APPEND_OP else "subtract"
        raise ConfigRefusal(INVALID_CONFIG, f"Config value {word} is not allowed for config key: {name}")
    now, named = split_list(text), split_list(change)
    kept = [each for each in now if operation == APPEND_OP or each not in named]
    return ",".join([*kept, *(each for each in named if operation == APPEND_OP and each not in now)])


def _require_value(name: str, config: DynamicConfig, text: str, code: int) -> str:
    try:
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ValueError(f"it takes {TEXT_CHARACTERS_MAX} characters at most")
        # Apache Kafka accepts spaces around a value
        config.check(text.strip())
    except ValueError as error:
        raise ConfigRefusal(code, f"Invalid value {text:.100} for configuration {name}: {error}") from None
    return text
