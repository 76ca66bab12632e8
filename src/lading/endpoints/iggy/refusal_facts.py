"""Facts about a refused HTTP request that the text of its error document names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic.primitives import Partitioning, PartitioningKind
from ...dialects.iggy.classic.validation import normalise_name
from ...dialects.iggy.http.messages import parse_send
from ...model.errors import LadingError

if TYPE_CHECKING:
    from ...broker.broker import Broker

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
"""The fact that each field of a command is."""


def find_partitioning(body: bytes) -> Partitioning | None:
    """Return the partitioning of a send over HTTP, or None if its body cannot be parsed. From any thread."""
    try:
        return parse_send(body).partitioning
    except LadingError:
        return None


def find_send_facts(broker: Broker, fields: Mapping[str, Any], partitioning: Partitioning | None) -> dict[str, object]:
    """Return what a send over HTTP named, like ``find_facts``, from its path and its body."""
    if partitioning is None:
        return find_facts(broker, c.GetTopic(fields["stream"], fields["topic"]))
    return find_facts(broker, c.SendMessages(fields["stream"], fields["topic"], partitioning, b""))


def find_facts(broker: Broker, command: Any) -> dict[str, object]:
    """Return what a request named, for the text of an error document (``classic.errors.text_of``)."""
    facts = {fact: getattr(command, name) for name, fact in _FACTS.items() if hasattr(command, name)}
    partitioning = getattr(command, "partitioning", None)
    if partitioning is not None and partitioning.kind == PartitioningKind.PARTITION_ID:
        facts["partition"] = partitioning.partition_id
    if isinstance(command, c.CreateStream | c.CreateTopic):
        facts["new_name"] = normalise_name(command.name)
    # the real server gives the number of what it found, also if the request gave its name
    try:
        stream = broker.topology.stream(facts["stream"])
        facts["stream"] = stream.id
        facts["topic"] = broker.topology.topic(stream.id, facts["topic"]).id
    except (LadingError, KeyError):
        pass
    return facts
