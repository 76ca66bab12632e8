"""The document of nsqd's ``/stats``: topics, channels and clients in NSQ's words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ....dialects.nsq.commands import ClientState
from ....runtime.turns import TurnCounter, Turns
from ..fork import VERSION, takes_ext

if TYPE_CHECKING:
    from ....broker.channels import Channel
    from ....broker.core.topology import Topic
    from .node import Node, NodeClient

_STATES = {ClientState.FRESH: 2, ClientState.SUBSCRIBED: 3, ClientState.CLOSING: 4}
_NS_PER_MS = 1_000_000
ROWS_AT_ONCE: Final = 5
"""Topics, channels and clients that are listed between two readings of the clock: each has twenty members."""
LINES_AT_ONCE: Final = 50
"""Lines of the text form of /stats that are written between two readings of the clock."""


def statistics(node: Node, topic: str = "", channel: str = "", *, clients: bool = True) -> Turns[dict[str, Any]]:
    """Return the document, in turns: of one topic or channel if named; without ``clients`` it has only their number.

    Times are in nanoseconds if NSQ's are.
    """
    turn = TurnCounter(ROWS_AT_ONCE)
    publishers: dict[str, list[NodeClient]] = {}
    subscribers: dict[Channel, list[NodeClient]] = {}
    producers = []
    for connection in list(node.connections):
        for name in connection.published:
            publishers.setdefault(name, []).append(connection)
        if connection.published if not topic else topic in connection.published:
            # for one topic only its own producers: the caller may lack the right to see others
            producers.append(_client(connection))
        if connection.consumer is not None:
            subscribers.setdefault(connection.consumer.channel, []).append(connection)
        if turn.is_over(1 + len(connection.published)):
            yield
    rows = []
    for one in list(node.topics()):
        if turn.is_over():
            yield
        if topic not in ("", one.flat_name):
            continue
        if channel and node.channels.find(one, channel) is None:
            # as in nsqd: a topic without the requested channel is left out
            continue
        channels = []
        for each in list(node.channels.of_topic(one)):
            if channel in ("", each.name):
                readers = subscribers.get(each, [])
                channels.append(_describe_channel(each, readers, clients))
                if turn.is_over(1 + len(readers)):
                    yield
        rows.append(_describe_topic(node, one, channels, publishers.get(one.flat_name, [])))
        if turn.is_over(len(one.partitions)):
            yield
    return {
        "version": VERSION,
        "health": "OK",
        "start_time": node.started_s,
        "topics": rows,
        "producers": producers,
    }


def _describe_topic(
    node: Node, topic: Topic, channels: Sequence[dict[str, Any]], publishers: Iterable[NodeClient]
) -> dict[str, Any]:
    depth = node.channels.topic_depth(topic)
    return {
        "topic_name": topic.flat_name,
        "topic_full_name": f"{topic.flat_name}-0",
        "topic_partition": "0",
        "partition_num": len(topic.partitions),
        "channels": channels,
        "channel_num": len(channels),
        "depth": depth,
        "backend_depth": depth,
        # a delayed message is counted when it is published, though it enters the log later
        "message_count": sum(
            partition.log.next_offset + node.broker.postponed.count(partition) for partition in topic.partitions
        ),
        "message_bytes": topic.size_bytes,
        "paused": node.channels.is_paused(topic),
        "is_leader": True,
        "is_multi_part": len(topic.partitions) > 1,
        "is_multi_ordered": False,
        "is_ext": takes_ext(topic),
        "is_channel_auto_create_disabled": False,
        "client_pub_stats": [
            {
                "remote_addr": one.address,
                "user_agent": one.identity.user_agent,
                "pub_count": one.published[topic.flat_name],
            }
            for one in publishers
        ],
        "e2e_processing_latency": {"count": 0, "percentiles": None},
    }


def _describe_channel(channel: Channel, clients: Sequence[NodeClient], with_clients: bool) -> dict[str, Any]:
    figures = channel.statistics()
    return {
        "channel_name": channel.name,
        "depth": figures.depth,
        "backend_depth": figures.depth,
        "backlogs": figures.depth,
        "in_flight_count": figures.in_flight,
        "deferred_count": figures.deferred,
        "message_count": figures.arrived,
        "requeue_count": figures.requeued,
        "timeout_count": figures.timed_out,
        "clients": [_client(one) for one in clients] if with_clients else [],
        "client_num": len(clients),
        "client_count": len(clients),
        "paused": channel.paused,
        "skipped": channel.skipping,
        "zan_test_skipped": False,
        "delayed_queue_count": 0,
        "e2e_processing_latency": {"count": 0, "percentiles": None},
    }


def _client(connection: NodeClient) -> dict[str, Any]:
    identity = connection.identity
    subscriber = connection.consumer.subscriber if connection.consumer is not None else None
    return {
        "name": identity.client_id,
        "client_id": identity.client_id,
        "hostname": identity.hostname,
        "version": "V2",
        "remote_address": connection.address,
        "state": _STATES[connection.state],
        "ready_count": subscriber.ready if subscriber else 0,
        "in_flight_count": subscriber.in_flight if subscriber else 0,
        "message_count": subscriber.delivered if subscriber else 0,
        "finish_count": subscriber.finished if subscriber else 0,
        "requeue_count": subscriber.requeued if subscriber else 0,
        "timeout_count": subscriber.timed_out if subscriber else 0,
        "connect_ts": connection.connected_s,
        "sample_rate": identity.sample_rate,
        "deflate": connection.features.deflate,
        "snappy": connection.features.snappy,
        "tls": connection.is_encrypted(),
        "pub_counts": [{"topic": name, "count": count} for name, count in sorted(connection.published.items())],
        "user_agent": identity.user_agent,
        "desired_tag": identity.desired_tag,
        "extend_support": identity.extend_support,
        "ext_filter": identity.ext_filter,
        "output_buffer_size": identity.output_buffer_bytes,
        "output_buffer_timeout": identity.output_buffer_ms * _NS_PER_MS,
        "msg_timeout": identity.message_timeout_ms * _NS_PER_MS,
    }


def statistics_text(document: dict[str, Any], now_s: float) -> Turns[str]:
    """Return the statistics as nsqd's text, in turns, but without its Go version and the memory of Go."""
    turn = TurnCounter(LINES_AT_ONCE)
    lines = [
        f"nsqd v{document['version']}",
        f"start_time {time.strftime('%FT%TZ', time.gmtime(document['start_time']))}",
        f"uptime {format_duration(now_s - document['start_time'])}",
        "",
        f"Health: {document['health']}",
        "",
        "Topics:" if document["topics"] else "Topics: None",
    ]
    for topic in document["topics"]:
        lines.append(_TOPIC_LINE.format("*P " if topic["paused"] else "   ", **topic))
        for channel in topic["channels"]:
            lines.append(_CHANNEL_LINE.format("   *P " if channel["paused"] else "      ", **channel))
            for client in channel["clients"]:
                lines.append(f"        {_describe_client(client, now_s)}")
                if turn.is_over(1):
                    yield
        if turn.is_over(1 + len(topic["channels"])):
            yield
        # nsqd has an empty line before each topic but the first
        lines.append("")
    if not document["topics"]:
        lines.append("")
    lines.append("Producers:" if document["producers"] else "Producers: None")
    for client in document["producers"]:
        lines.append(f"   {_describe_client(client, now_s)}")
        if turn.is_over(1):
            yield
    return "\n".join(lines) + "\n"


def _describe_client(client: dict[str, Any], now_s: float) -> str:
    """Return the line of a client: a producer's if it has published."""
    name = f"{client['hostname']}:{client['remote_address'].rpartition(':')[2]} {client['user_agent']}"
    counts = client["pub_counts"]
    if counts:
        topics = ",".join(f"{one['topic']}={one['count']}" for one in counts)
        figures = f"msgs: {sum(one['count'] for one in counts):<8} topics: {topics}"
    else:
        figures = _CONSUMER_FIGURES.format(**client)
    connected = format_duration(int(now_s - client["connect_ts"]))
    return f"[{client['version']} {name:<21}] {figures} connected: {connected}"


def format_duration(seconds: float) -> str:
    """Return a time as Go writes one, such as ``1h2m3.5s``."""
    minutes, rest = divmod(max(seconds, 0.0), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:.9f}".rstrip("0").rstrip(".") + "s"
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}" if minutes else text


_TOPIC_LINE: Final = (
    "{}[{topic_name:<15}] depth: {depth:<5} be-depth: {backend_depth:<5} msgs: {message_count:<8} e2e%: "
)
_CHANNEL_LINE: Final = (
    "{}[{channel_name:<25}] depth: {depth:<5} be-depth: {backend_depth:<5} inflt: {in_flight_count:<4} "
    "def: {deferred_count:<4} re-q: {requeue_count:<5} timeout: {timeout_count:<5} msgs: {message_count:<8} e2e%: "
)
_CONSUMER_FIGURES: Final = (
    "state: {state} inflt: {in_flight_count:<4} rdy: {ready_count:<4} fin: {finish_count:<8} "
    "re-q: {requeue_count:<8} msgs: {message_count:<8}"
)
