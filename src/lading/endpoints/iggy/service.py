"""What Iggy classic's commands do: one table for the TCP and the HTTP face alike (iggy.md A3 and A8).

Sending and polling are apart, in ``send.py`` and ``poll.py``: they are the hot path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...broker.core.states import list_states
from ...dialects.iggy_classic import commands as c
from ...dialects.iggy_classic import responses as r
from ...dialects.iggy_classic.primitives import PartitioningKind
from ...dialects.iggy_classic.state_commands import RANGES_MAX, GetStates, ListedStates, StateRange
from ...dialects.iggy_classic.validation import normalise_name
from ...model.errors import LadingError, Reason, Refusal
from ...model.state import State
from ..base.process import machine
from ..base.services import Services, now_us
from .clients import Client
from .poll import consumer_of

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Stream, Topic
    from ...broker.iggy.groups import IggyGroup


class IggyService:
    """Answers every command of the generation but send and poll."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._machine = machine()

    def answer(self, command: c.Command, client: Client | None = None) -> Any:
        """The result that ``commands.encode_response`` and the JSON dialect take; Refusal where it is refused.

        ``client`` is the connection that asks; HTTP has none, and none of the commands that need one.
        """
        return _HANDLERS[type(command)](self, command, client)

    def topic(self, command: Any) -> Topic:
        """The topic a command names."""
        return self._broker.topic(command.stream, command.topic)

    # -- the server

    def _kill(self, command: c.Kill, client: Client | None) -> None:
        raise Refusal(
            Reason.UNKNOWN_COMMAND, "this server is not to be killed by a client; send SIGTERM to its process"
        )

    def _ping(self, command: c.Ping, client: Client | None) -> None:
        return None

    def _stats(self, command: c.Stats, client: Client | None) -> r.StatsInfo:
        process = self._services.process.figures()
        streams = self._broker.streams()
        topics = [topic for stream in streams for topic in stream.topics.values()]
        partitions = [partition for topic in topics for partition in topic.partitions]
        return r.StatsInfo(
            process_id=process.pid,
            cpu_usage=process.cpu_percent,
            memory_usage=process.memory_bytes,
            total_memory=process.total_memory_bytes,
            available_memory=process.available_memory_bytes,
            run_time=process.run_time_s,
            start_time=process.start_time_s,
            read_bytes=process.read_bytes,
            written_bytes=process.written_bytes,
            messages_size_bytes=sum(stream.size_bytes for stream in streams),
            streams_count=len(streams),
            topics_count=len(topics),
            partitions_count=len(partitions),
            segments_count=sum(partition.log.segments_count for partition in partitions),
            messages_count=sum(partition.messages_count for partition in partitions),
            clients_count=len(self._services.clients),
            groups_count=self._broker.groups.count(),
            hostname=self._machine.hostname,
            os_name=self._machine.os_name,
            os_version=self._machine.os_version,
            kernel_version=self._machine.kernel_version,
        )

    def _me(self, command: c.Me, client: Client | None) -> r.ClientDetails:
        if client is None:
            raise Refusal(Reason.FEATURE_UNAVAILABLE, "a client without a connection of its own has no details")
        return self._client_details(client)

    def _client(self, command: c.GetClient, client: Client | None) -> r.ClientDetails:
        return self._client_details(self._services.clients.get(command.client_id))

    def _clients(self, command: c.GetClients, client: Client | None) -> list[r.ClientInfo]:
        return [self._client_info(one) for one in self._services.clients]

    def _client_info(self, client: Client) -> r.ClientInfo:
        return r.ClientInfo(
            client.id, client.transport, client.address, len(self._broker.groups.memberships(client.id))
        )

    def _client_details(self, client: Client) -> r.ClientDetails:
        groups = [
            r.ConsumerGroupInfo(group_id, topic_id, stream_id)
            for stream_id, topic_id, group_id in self._broker.groups.memberships(client.id)
        ]
        return r.ClientDetails(self._client_info(client), groups)

    # -- streams, topics, partitions

    def _stream(self, command: c.GetStream, client: Client | None) -> r.StreamDetails:
        stream = self._broker.stream(command.stream)
        return r.StreamDetails(_stream_info(stream), [_topic_info(stream.topics[one]) for one in sorted(stream.topics)])

    def _streams(self, command: c.GetStreams, client: Client | None) -> list[r.StreamInfo]:
        return [_stream_info(stream) for stream in self._broker.streams()]

    def _create_stream(self, command: c.CreateStream, client: Client | None) -> None:
        self._broker.create_stream(command.stream_id, normalise_name(command.name), now_us=now_us())

    def _delete_stream(self, command: c.DeleteStream, client: Client | None) -> None:
        self._broker.delete_stream(command.stream)

    def _topic(self, command: c.GetTopic, client: Client | None) -> r.TopicDetails:
        topic = self.topic(command)
        return r.TopicDetails(_topic_info(topic), [_partition_info(partition) for partition in topic.partitions])

    def _topics(self, command: c.GetTopics, client: Client | None) -> list[r.TopicInfo]:
        topics = self._broker.stream(command.stream).topics
        return [_topic_info(topics[one]) for one in sorted(topics)]

    def _create_topic(self, command: c.CreateTopic, client: Client | None) -> None:
        self._broker.create_topic(
            command.stream, command.topic_id, normalise_name(command.name), command.partitions_count, now_us=now_us()
        )

    def _delete_topic(self, command: c.DeleteTopic, client: Client | None) -> None:
        self._broker.delete_topic(command.stream, command.topic)

    def _create_partitions(self, command: c.CreatePartitions, client: Client | None) -> None:
        self._broker.add_partitions(self.topic(command), command.partitions_count)

    def _delete_partitions(self, command: c.DeletePartitions, client: Client | None) -> None:
        self._broker.delete_partitions(self.topic(command), command.partitions_count)

    # -- positions and groups

    def _offset(self, command: c.GetOffset, client: Client | None) -> r.StoredOffset:
        # as a group neither membership nor existence is asked for (iggy.md M13)
        stored = self._broker.poller.position(
            self.topic(command), consumer_of(command.consumer), command.partition_id - 1
        )
        return r.StoredOffset(command.consumer.id, stored or 0)

    def _store_offset(self, command: c.StoreOffset, client: Client | None) -> None:
        self._broker.poller.store_position(
            self.topic(command),
            consumer_of(command.consumer),
            client.id if client else None,
            command.partition_id - 1,
            command.offset,
            now_us=now_us(),
        )

    def _group(self, command: c.GetGroup, client: Client | None) -> r.GroupDetails:
        group = self._broker.groups.get(self.topic(command), command.group_id)
        members = [r.MemberInfo(member.id, [number + 1 for number in member.partitions]) for member in group.members]
        return r.GroupDetails(_group_info(group), members)

    def _groups(self, command: c.GetGroups, client: Client | None) -> list[r.GroupInfo]:
        return [_group_info(group) for group in self._broker.groups.of_topic(self.topic(command))]

    def _create_group(self, command: c.CreateGroup, client: Client | None) -> None:
        self._broker.groups.create(self.topic(command), command.group_id)

    def _delete_group(self, command: c.DeleteGroup, client: Client | None) -> None:
        self._broker.groups.delete(self.topic(command), command.group_id)

    def _join(self, command: c.JoinGroup, client: Client | None) -> None:
        self._broker.groups.join(self.topic(command), command.group_id, _member(client))

    def _leave(self, command: c.LeaveGroup, client: Client | None) -> None:
        self._broker.groups.leave(self.topic(command), command.group_id, _member(client))

    # -- message states; setting them waits for the disk and is apart, in ``states.py``

    def _states(self, command: GetStates, client: Client | None) -> ListedStates:
        partition = self.topic(command).partition(command.partition_id - 1)
        listed = list_states(partition, command.first, command.end)
        ranges = [StateRange(first, end, State(state)) for first, end, state in listed[:RANGES_MAX]]
        return ListedStates(ranges[-1].end if len(listed) > RANGES_MAX else command.end, ranges)

    # -- the words of a refusal

    def facts(self, command: Any) -> dict[str, object]:
        """What a request named, for the text of an error document (``iggy_classic.errors.text_of``)."""
        facts = {fact: getattr(command, name) for name, fact in _FACTS.items() if hasattr(command, name)}
        partitioning = getattr(command, "partitioning", None)
        if partitioning is not None and partitioning.kind == PartitioningKind.PARTITION_ID:
            facts["partition"] = partitioning.partition_id
        if isinstance(command, c.CreateStream | c.CreateTopic):
            facts["new_name"] = normalise_name(command.name)
        # the real server names what it found by number, however it was asked for
        try:
            stream = self._broker.stream(facts["stream"])
            facts["stream"] = stream.id
            facts["topic"] = self._broker.topic(stream.id, facts["topic"]).id
        except (LadingError, KeyError):
            pass
        return facts


def _member(client: Client | None) -> int:
    if client is None:
        raise Refusal(Reason.FEATURE_UNAVAILABLE, "a client without a connection of its own cannot be a group member")
    return client.id


def _stream_info(stream: Stream) -> r.StreamInfo:
    return r.StreamInfo(stream.id, len(stream.topics), stream.size_bytes, stream.messages_count, stream.name)


def _topic_info(topic: Topic) -> r.TopicInfo:
    return r.TopicInfo(topic.id, len(topic.partitions), topic.size_bytes, topic.messages_count, topic.name)


def _partition_info(partition: Partition) -> r.PartitionInfo:
    log = partition.log
    return r.PartitionInfo(
        partition.number + 1, log.segments_count, max(log.next_offset - 1, 0), log.size_bytes, partition.messages_count
    )


def _group_info(group: IggyGroup) -> r.GroupInfo:
    return r.GroupInfo(group.id, len(group.topic.partitions), len(group.members))


_FACTS: Final[Mapping[str, str]] = {
    "stream": "stream",
    "topic": "topic",
    "partition_id": "partition",
    "group_id": "group",
    "client_id": "client",
    "offset": "offset",
    "stream_id": "new_id",
    "topic_id": "new_id",
}
"""Which field of a command is which fact."""

_HANDLERS: Final[Mapping[type[Any], Callable[[IggyService, Any, Client | None], Any]]] = {
    c.Kill: IggyService._kill,
    c.Ping: IggyService._ping,
    c.Stats: IggyService._stats,
    c.Me: IggyService._me,
    c.GetClient: IggyService._client,
    c.GetClients: IggyService._clients,
    c.GetOffset: IggyService._offset,
    c.StoreOffset: IggyService._store_offset,
    c.GetStream: IggyService._stream,
    c.GetStreams: IggyService._streams,
    c.CreateStream: IggyService._create_stream,
    c.DeleteStream: IggyService._delete_stream,
    c.GetTopic: IggyService._topic,
    c.GetTopics: IggyService._topics,
    c.CreateTopic: IggyService._create_topic,
    c.DeleteTopic: IggyService._delete_topic,
    c.CreatePartitions: IggyService._create_partitions,
    c.DeletePartitions: IggyService._delete_partitions,
    c.GetGroup: IggyService._group,
    c.GetGroups: IggyService._groups,
    c.CreateGroup: IggyService._create_group,
    c.DeleteGroup: IggyService._delete_group,
    c.JoinGroup: IggyService._join,
    c.LeaveGroup: IggyService._leave,
    GetStates: IggyService._states,
}
"""Who answers which command."""
