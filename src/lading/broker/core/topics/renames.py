"""Renames of streams and topics: ids, messages, groups and positions stay, and so do the rights that rules give.

Only names in other protocols, dead letter settings and access rules refer to a topic by name. These change with it, in
this order: the new name is reserved; rules for it are on disk before a client can find the topic by it; the catalog
takes it in one transaction; when that is on disk the old name is free, and its rules are deleted. After a crash before
the catalog's commit the topic has the old name, after a later crash the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ....log.catalog import Catalog
from ....log.directory import DataDirectory
from ....model.errors import Reason, Refusal
from ....model.names import DEFAULT_STREAM, flat_name
from ..access.access import AccessControl
from ..access.rights import AccessRule, PatternKind, ResourceKind
from ..change import Change
from ..disk_refusals import refuse_disk_errors
from ..topology import Stream, Topic
from .namespace import Namespace, describe_topic
from .topology_changes import TopologyChanges

RenamedResources = Mapping[tuple[ResourceKind, PatternKind, str], str]
"""The resources of rules, each with its new name."""
SettingsDocuments = Mapping[bytes, Mapping[str, Any]]
"""Settings of topics by their 16-byte ids."""


class Renames:
    """Renames of one broker; each waits for other changes of the stream or topic, and of access rules."""

    def __init__(
        self,
        namespace: Namespace,
        changes: TopologyChanges,
        access: AccessControl,
        catalog: Catalog,
        directory: DataDirectory,
    ) -> None:
        self._namespace = namespace
        self._changes = changes
        self._access = access
        self._catalog = catalog
        self._directory = directory

    def rename_topic(self, topic: Topic, name: str) -> Change[None]:
        """Rename a topic. Raises Refusal if it is deleted, or the name is invalid or taken."""
        if name == topic.name:
            return
        self._namespace.reserve_topic_name(topic, name)
        resources = {
            (ResourceKind.TOPIC, PatternKind.LITERAL, topic.flat_name): flat_name(topic.stream.name, name),
        }
        yield from self._rename(topic, name, resources, partial(self._catalog.rename_topic, topic.uuid, name))

    def rename_stream(self, stream: Stream, name: str) -> Change[None]:
        """Rename a stream, and with it all its topics in other protocols. Raises Refusal as ``rename_topic``.

        ``default`` cannot be renamed, and no other stream can get its name: its topics have one-level names elsewhere.
        """
        if name == stream.name:
            return
        if DEFAULT_STREAM in (stream.name, name):
            raise Refusal(
                Reason.FEATURE_UNAVAILABLE,
                f"stream {stream.name!r} cannot be called {name!r}: topics that other protocols create are in the "
                f"stream {DEFAULT_STREAM!r}; create a stream of the wanted name",
            )
        self._namespace.reserve_stream_name(stream, name)
        resources = {
            (ResourceKind.STREAM, PatternKind.LITERAL, stream.name): name,
            (ResourceKind.TOPIC, PatternKind.IN_STREAM, stream.name): name,
        }
        for topic in stream.topics.values():
            resources[ResourceKind.TOPIC, PatternKind.LITERAL, topic.flat_name] = flat_name(name, topic.name)
        yield from self._rename(stream, name, resources, partial(self._catalog.rename_stream, stream.id, name))

    def _rename(
        self,
        renamed: Stream | Topic,
        name: str,
        resources: RenamedResources,
        write: Callable[[SettingsDocuments], None],
    ) -> Change[None]:
        former, is_written = list(self._list_rules(resources)), False
        copies = [replace(rule, name=resources[rule.kind, rule.pattern, rule.name]) for rule in former]
        added = [rule for rule in copies if rule not in self._access.table.rules.get(rule.user, ())]
        referring: dict[Topic, str] = {}

        def write_names() -> None:
            nonlocal is_written
            self._namespace.require_reserved(renamed)
            referring.update(self._find_referring(renamed, name))
            settings = {topic.uuid: replace(topic.settings, dead_letter_topic=to) for topic, to in referring.items()}
            write({uuid: one.to_stored_document() for uuid, one in settings.items()})
            is_written = True
            for topic in referring:
                topic.settings = settings[topic.uuid]

        try:
            if added:
                yield from self._access.change_rules(added)
            yield from self._changes.write_catalog(write_names)
        except Exception:
            if not is_written and added:
                yield from self._access.change_rules((), added)
            raise
        finally:
            # if only the sync failed, the catalog may have the new name at the next start
            self._namespace.settle_name(renamed, take=is_written)
        if self._access.is_enabled:
            # also for a topic without rules of its own: open readers now need rights by the new name
            yield from self._access.change_rules((), former)
        topics = [*referring, *(renamed.list_topics() if isinstance(renamed, Stream) else [renamed])]
        yield partial(self._describe, topics)

    def _list_rules(self, resources: RenamedResources) -> Iterator[AccessRule]:
        for rules in self._access.table.rules.values():
            yield from (rule for rule in rules if (rule.kind, rule.pattern, rule.name) in resources)

    def _find_referring(self, renamed: Stream | Topic, name: str) -> Iterator[tuple[Topic, str]]:
        """Yield the topics whose dead letter topic is renamed, each with its new name."""
        if isinstance(renamed, Topic):
            names = {renamed.flat_name: flat_name(renamed.stream.name, name)}
        else:
            names = {topic.flat_name: flat_name(name, topic.name) for topic in renamed.topics.values()}
        for topic in self._namespace.topics():
            if (target := topic.settings.dead_letter_topic) is not None and target in names:
                yield topic, names[target]

    def _describe(self, topics: list[Topic]) -> None:
        for topic in topics:
            with refuse_disk_errors(f"topic {topic.flat_name!r}"):
                self._directory.describe(describe_topic(topic, len(topic.partitions)))
