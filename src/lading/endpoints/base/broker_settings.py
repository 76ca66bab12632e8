"""The settings file as the broker takes it: at the start, and again at SIGHUP as far as that is possible."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from ...broker.core.access.access import AccessControl
from ...broker.core.settings import BrokerSettings
from ...model.errors import LocalError
from ...runtime.open_files import open_files_limit, share_open_files
from ...settings.settings import Settings
from .services import Services

log = logging.getLogger("lading")

RELOADED: Final = frozenset(
    {
        "log_level",
        "retention.age_ms", "retention.size_bytes", "retention.check_ms", "retention.mark_ms",
        "compaction.check_ms", "compaction.memory_bytes",
        "broker.group_members_max", "broker.member_metadata_bytes_max", "broker.groups_metadata_bytes_max",
        "broker.group_assignment_bytes_max", "broker.member_session_min_ms",
        "connections.first_request_timeout_ms", "connections.head_timeout_ms", "connections.request_timeout_ms",
        "connections.idle_timeout_ms", "connections.http_idle_timeout_ms", "connections.unread_timeout_ms",
        "connections.peer_share", "connections.receive_bytes_max", "connections.keepalive_s",
        "endpoints.*.connections_max",
    }
)  # fmt: skip
"""Settings that SIGHUP changes in a running broker; ``*`` is any name, those of listeners included.

docs/reference/settings.md lists them.
"""


def to_broker_settings(settings: Settings) -> BrokerSettings:
    """Return the part of the settings that the broker takes, in its units."""
    limits, retention = settings.broker, settings.retention
    return BrokerSettings(
        durability=settings.durability,
        segment_bytes=settings.log.segment_bytes,
        retention_age_us=None if retention.age_ms is None else retention.age_ms * 1_000,
        retention_bytes=retention.size_bytes,
        retention_check_us=retention.check_ms * 1_000,
        retention_mark_us=None if retention.mark_ms is None else retention.mark_ms * 1_000,
        compaction_check_us=settings.compaction.check_ms * 1_000,
        compaction_memory_bytes=settings.compaction.memory_bytes,
        partitions_per_topic_max=limits.partitions_per_topic_max,
        open_files_max=share_open_files(open_files_limit(), settings.log.open_files_max).log_files,
        unsynced_bytes_max=limits.unsynced_bytes_max,
        position_flush_us=limits.position_flush_ms * 1_000,
        session_timeout_us=limits.session_timeout_ms * 1_000,
        session_timeout_us_min=limits.member_session_min_ms * 1_000,
        rebalance_delay_us=limits.rebalance_delay_ms * 1_000,
        group_members_max=limits.group_members_max,
        member_metadata_bytes_max=limits.member_metadata_bytes_max,
        groups_metadata_bytes_max=limits.groups_metadata_bytes_max,
        group_assignment_bytes_max=limits.group_assignment_bytes_max,
        transaction_timeout_us=limits.transaction_timeout_ms * 1_000,
        transaction_memory_us=limits.transaction_memory_ms * 1_000,
        writers_per_partition_max=limits.writers_per_partition_max,
    )


def is_reloaded(key: str) -> bool:
    """Return whether SIGHUP changes a setting while the broker runs."""
    return any(fnmatchcase(key, pattern) for pattern in RELOADED)


class SettingsReload:
    """Reads the settings again; what cannot change while the broker runs is logged and stays as it is."""

    def __init__(self, services: Services, load: Callable[[], Settings]) -> None:
        """``load`` reads file, environment and options as the start did; it raises LocalError."""
        self._services = services
        self._load = load

    def reload(self) -> None:
        """Apply what has changed; if the settings are invalid, say so and keep all of the old ones."""
        try:
            wanted = _flatten_document(self._load().model_dump())
        except (LocalError, OSError) as error:
            log.error("SIGHUP: %s; all settings stay as they are", error)
            return
        now = _flatten_document(self._services.settings.model_dump())
        changed = {key for key in now.keys() | wanted.keys() if now.get(key) != wanted.get(key)}
        # a listener that was added or removed needs a restart, with all its settings
        applied = sorted(key for key in changed & now.keys() & wanted.keys() if is_reloaded(key))
        if applied:
            self._apply({key: wanted[key] for key in applied})
            log.info("SIGHUP: changed %s", ", ".join(applied))
        if kept := sorted(changed.difference(applied)):
            log.warning("SIGHUP: restart the broker to change %s", ", ".join(kept))

    def _apply(self, values: Mapping[str, Any]) -> None:
        settings = self._services.settings
        for key, value in values.items():
            settings = _replace(settings, key.split("."), value)
        self._services.settings = settings
        self._services.broker.change_settings(to_broker_settings(settings))
        for callback in self._services.limits_callbacks:
            callback(settings)
        logging.getLogger().setLevel(settings.log_level.upper())


def report_access_file(access: AccessControl) -> None:
    """Log an error if the file of users and rights differs from those in memory, which stay in use."""
    difference = access.find_file_difference()
    if difference is not None:
        log.error(
            "SIGHUP: %s. This broker keeps the users and rights that it has in memory; their next change writes the "
            "file again", difference,
        )  # fmt: skip


def _replace(section: Any, names: Sequence[str], value: object) -> Any:
    """Return a section, or listeners by name, with another value of the setting that ``names`` lead to."""
    name, *rest = names
    if isinstance(section, Mapping):
        return {**section, name: _replace(section[name], rest, value)}
    return section.model_copy(update={name: _replace(getattr(section, name), rest, value) if rest else value})


def _flatten_document(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            found |= _flatten_document(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
