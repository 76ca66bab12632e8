"""Admin: listing, creating and deleting streams and topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.rights import Resource, ResourceKind, Right, topic_resource
from ...broker.core.dead_letter_rights import list_needed_rights
from ...broker.core.settings import TopicSettings
from ...broker.core.upkeep.record_deletion import delete_all
from ...model.errors import Reason, Refusal
from ...runtime.turns import finish_in_turns, map_in_turns
from ..base.services import Services, now_us
from ..base.sizes import measure_streams
from ..base.topic_creation import create_topic
from ..http_shared.documents import NewSettings, NewStream, NewTopic, answer_rows, json_response, parse_body
from ..http_shared.http_guard import principal_of, resource_in_path
from ..http_shared.routing import HttpRoute, Parameters

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic


NAME_BYTES_MAX: Final = 255
"""The longest name that Iggy's protocol can express."""


class AdminTopics:
    """Handlers of streams and topics."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router."""
        return [
            HttpRoute("GET", "/streams", "streams.list", self._list_streams, right=None),
            HttpRoute("POST", "/streams/{stream}", "stream.create", self._create_stream, right=Right.CREATE),
            HttpRoute("DELETE", "/streams/{stream}", "stream.delete", self._delete_stream, right=Right.DELETE),
            HttpRoute("GET", "/topics", "topics.list", self._list_topics, right=None),
            HttpRoute("GET", "/topics/{stream}/{topic}", "topic.get", self._show_topic, right=Right.DESCRIBE),
            HttpRoute("POST", "/topics/{stream}/{topic}", "topic.create", self._create_topic, right=Right.CREATE),
            HttpRoute("DELETE", "/topics/{stream}/{topic}", "topic.delete", self._delete_topic, right=Right.DELETE),
            HttpRoute("POST", "/topics/{stream}/{topic}/empty", "topic.empty", self._empty_topic, right=Right.DELETE),
            HttpRoute(
                "PUT", "/topics/{stream}/{topic}/settings", "topic.alter", self._alter_topic, right=Right.ALTER_CONFIGS
            ),
        ]

    async def _list_streams(self, request: Request, path: Parameters) -> Response:
        access, principal = self._broker.access, principal_of(request)
        shown = [
            stream for stream in self._broker.topology.streams()
            if access.allows(principal, Right.DESCRIBE, Resource(ResourceKind.STREAM, stream.name))
        ]  # fmt: skip
        sizes = await finish_in_turns(measure_streams(shown))
        return json_response(
            [
                {
                    "id": stream.id,
                    "name": stream.name,
                    "topics": len(stream.topics),
                    "size_bytes": size.size_bytes,
                    "messages": size.messages_count,
                }
                for stream, size in sizes.items()
            ]
        )

    async def _create_stream(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(NewStream, request, self._services.receive)
        name = require_name("stream", path["stream"], Reason.INVALID_STREAM_NAME)
        stream = await self._services.changes.make(self._broker.changes.create_stream(wanted.id, name, now_us=now_us()))
        return json_response({"id": stream.id, "name": stream.name}, 201)

    async def _delete_stream(self, request: Request, path: Parameters) -> Response:
        stream = self._broker.topology.stream(path["stream"])
        topics = stream.list_topics()
        self._broker.access.require_topics(principal_of(request), Right.DELETE, topics, stream.name)
        await self._services.changes.make(self._broker.changes.delete_stream(stream))
        return Response(status_code=204)

    async def _list_topics(self, request: Request, path: Parameters) -> Response:
        access, principal = self._broker.access, principal_of(request)

        def describe(topic: Topic) -> dict[str, Any] | None:
            resource = topic_resource(topic.stream.name, topic.name)
            return _describe_new_topic(topic) if access.allows(principal, Right.DESCRIBE, resource) else None

        return await answer_rows(self._broker.topology.list_topics(), describe, self._services.requests)

    async def _show_topic(self, request: Request, path: Parameters) -> Response:
        topic = self._broker.topology.topic(path["stream"], path["topic"])
        return json_response(_describe_topic(topic, await map_in_turns(self._describe_partition, topic.partitions)))

    def _describe_partition(self, partition: Partition) -> dict[str, Any]:
        """Return the facts of a partition, with how far it is compacted, if its topic is."""
        status = self._broker.compaction.find_status(partition)
        return _describe_resting_partition(partition) | ({} if status is None else {"compaction": status._asdict()})

    async def _create_topic(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(NewTopic, request, self._services.receive)
        settings = TopicSettings.parse(wanted.settings)
        require_name("stream", path["stream"], Reason.INVALID_STREAM_NAME)
        require_name("topic", path["topic"], Reason.INVALID_TOPIC_NAME)
        settings = self._with_setter(request, path, settings)
        topic = await create_topic(
            self._services, path["topic"], wanted.partitions, stream=path["stream"], settings=settings
        )
        return json_response(_describe_new_topic(topic), 201)

    async def _alter_topic(self, request: Request, path: Parameters) -> Response:
        changes = await parse_body(NewSettings, request, self._services.receive)
        topic = self._broker.topology.topic(path["stream"], path["topic"])
        document = changes.model_extra or {}
        settings = topic.settings.merge(document)
        if "dead_letter_topic" in document:
            settings = self._with_setter(request, path, settings)
        await self._services.changes.make_in_turn(topic, self._broker.changes.alter_topic(topic, settings))
        return json_response(_describe_new_topic(topic))

    def _with_setter(self, request: Request, path: Parameters, settings: TopicSettings) -> TopicSettings:
        """Return settings with the user who sets their dead letter topic. Raises Refusal if that user may not."""
        name = settings.dead_letter_topic
        if name is None:
            return settings
        access, principal = self._broker.access, principal_of(request)
        for right, resource in list_needed_rights(resource_in_path(request, path), name, self._broker.topology.resolve):
            access.require(principal, right, resource)
        return replace(settings, dead_letter_setter=access.grantor_of(principal))

    async def _delete_topic(self, request: Request, path: Parameters) -> Response:
        topic = self._broker.topology.topic(path["stream"], path["topic"])
        await self._services.changes.make_in_turn(topic, self._broker.changes.delete_topic(topic))
        return Response(status_code=204)

    async def _empty_topic(self, request: Request, path: Parameters) -> Response:
        """Delete all messages; groups and channels of all protocols continue with messages sent later."""
        topic = self._broker.topology.topic(path["stream"], path["topic"])
        counts = await map_in_turns(delete_all, topic.partitions)
        return json_response({"partitions": len(counts), "deleted": sum(counts)})


def require_name(kind: str, name: str, reason: Reason) -> str:
    """Return ``name`` if it is valid for a new stream or topic; existing names are found even if they are not valid."""
    if len(name.encode()) > NAME_BYTES_MAX or not name.isprintable():
        raise Refusal(
            reason,
            f"{kind} name {name[:40]!r}: invalid; use 1 to {NAME_BYTES_MAX} bytes of printable characters",
        )
    return name


def _describe_new_topic(topic: Topic) -> dict[str, Any]:
    return _describe_topic(topic, [_describe_resting_partition(partition) for partition in topic.partitions])


def _describe_topic(topic: Topic, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "stream": topic.stream.name,
        "topic": topic.name,
        "name": topic.flat_name,
        "id": topic.uuid.hex(),
        "partitions": partitions,
        "settings": topic.settings.document(),
    }


def _describe_resting_partition(partition: Partition) -> dict[str, Any]:
    log = partition.log
    return {
        "partition": partition.number,
        "first_offset": log.first_offset,
        "next_offset": log.next_offset,
        "synced_end": log.high_watermark,
        "stable_end": log.last_stable_offset,
        "epoch": log.epoch,
        "epochs": [[epoch, first] for epoch, first in log.epochs],
        "size_bytes": log.size_bytes,
        "segments": log.segments_count,
        "has_unavailable": log.has_unavailable,
        "refusal": None if log.refusal is None else str(log.refusal),
    }
