"""Assignments of consumer groups: subscriptions and assignments as bytes, and the assignors.

The broker does not read these bytes: members agree on an assignor by its name, and one of them assigns for all
(kafka.md 3). The three assignors here are those that other clients offer, so that a group can be mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from lading.model.errors import MalformedMessage

from ...model.lazy_dataclass import lazy_dataclass
from .schemas import message

PROTOCOL: Final = "consumer"
"""The type of all groups of consumers."""
SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 1, 0
"""The version that is written; newer ones are read too."""
Place = tuple[str, int]
Shares = dict[str, list[Place]]
"""Partitions by member id."""


@lazy_dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a member subscribes to, and the partitions that it already has, as of ``generation`` (-1:
    unknown).
    """

    topics: frozenset[str]
    owned: frozenset[Place] = frozenset()
    generation: int = -1


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Return the subscription of a member to these topics, without partitions."""
    layout = message("consumer.metadata", "ConsumerProtocolSubscription")
    made = layout(topics=sorted(topics), user_data=None, owned_partitions=[])
    return bytes(made.encode(version=SUBSCRIPTION_VERSION))


def parse_subscription(data: bytes) -> Subscription:
    """Parse the subscription of a member of any client. Raises MalformedMessage if it cannot be read."""
    layout = message("consumer.metadata", "ConsumerProtocolSubscription")
    found = _decode_layout(layout, data, "subscription")
    owned = frozenset(_list_places(getattr(found, "owned_partitions", None) or ()))
    generation = getattr(found, "generation_id", -1)
    return Subscription(frozenset(found.topics), owned, -1 if generation is None else generation)


def encode_assignment(places: Iterable[Place]) -> bytes:
    """Encode the partitions that one member is to read."""
    layout = message("consumer.metadata", "ConsumerProtocolAssignment")
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        topics.setdefault(topic, []).append(number)
    rows = [layout.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return bytes(layout(assigned_partitions=rows, user_data=None).encode(version=ASSIGNMENT_VERSION))


def parse_assignment(data: bytes) -> list[Place]:
    """Return the partitions that this member is to read; an empty list without bytes.

    Raises MalformedMessage if they cannot be read.
    """
    layout = message("consumer.metadata", "ConsumerProtocolAssignment")
    return sorted(_list_places(_decode_layout(layout, data, "assignment").assigned_partitions)) if data else []


def _decode_layout(layout: Any, data: bytes, what: str) -> Any:
    try:
        return layout.decode(data)
    except Exception as error:
        raise MalformedMessage(
            f"the {what} of a group member cannot be read: {error or type(error).__name__}"
        ) from None


def _list_places(rows: Iterable[Any]) -> list[Place]:
    return [(row.topic, number) for row in rows for number in row.partitions]


def assign_range(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Shares:
    """Divide each topic into runs of adjacent partitions, one for each member.

    If that is uneven, the first members get one partition more each.
    """
    shares: Shares = {member: [] for member in members}
    for topic, count in sorted(counts.items()):
        wanting = _members_wanting(members, topic)
        if not wanting:
            continue
        each, more = divmod(count, len(wanting))
        low = 0
        for at, member in enumerate(wanting):
            high = low + each + (at < more)
            shares[member] += [(topic, number) for number in range(low, high)]
            low = high
    return shares


def assign_round_robin(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Shares:
    """Assign partitions in order to members in turn, skipping members that are not subscribed to the topic."""
    shares: Shares = {member: [] for member in members}
    turns = sorted(members)
    at = 0
    for place in _all_places(members, counts):
        while place[0] not in members[turns[at % len(turns)]].topics:
            at += 1
        shares[turns[at % len(turns)]].append(place)
        at += 1
    return shares


def assign_sticky(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Shares:
    """Let every member keep its partitions, as far as that is even.

    A partition that moves is not assigned before its holder has released it: a member that must release one joins the
    group again, and then the partition is free.
    """
    places = _all_places(members, counts)
    holder = _find_holders(members, frozenset(places))
    held: dict[str, list[Place]] = {member: [] for member in sorted(members)}
    for place in places:
        if place in holder:
            held[holder[place]].append(place)
    wanting = {topic: _members_wanting(members, topic) for topic, _ in places}
    # begin with the topics that fewest members can read, and with those members: others have more choice
    for place in sorted(places, key=lambda place: len(wanting[place[0]])):
        if place not in holder:
            takers = wanting[place[0]]
            held[min(takers, key=lambda member: (len(held[member]), len(members[member].topics)))].append(place)
    while (move := _find_uneven_partition(members, held, holder)) is not None:
        place, full, light = move
        held[full].remove(place)
        held[light].append(place)
    return {
        member: sorted(place for place in mine if holder.get(place, member) == member) for member, mine in held.items()
    }


def _find_uneven_partition(
    members: Mapping[str, Subscription], held: Mapping[str, Sequence[Place]], holder: Mapping[Place, str]
) -> tuple[Place, str, str] | None:
    """Return a partition that the member with most partitions should give to one with at least two fewer; first a free
    one.
    """
    lightest = sorted(held, key=lambda member: len(held[member]))
    for full in reversed(lightest):
        for light in lightest:
            if len(held[full]) <= len(held[light]) + 1:
                break
            mine = [place for place in reversed(held[full]) if place[0] in members[light].topics]
            if mine:
                return min(mine, key=lambda place: place in holder), full, light
    return None


def _find_holders(members: Mapping[str, Subscription], places: frozenset[Place]) -> dict[Place, str]:
    """Return the holder of each partition; if two claim it, the newer generation counts, and with equal
    ones neither.
    """
    found: dict[Place, tuple[int, str | None]] = {}
    for member, metadata in sorted(members.items()):
        for place in metadata.owned & places:
            if place[0] not in metadata.topics:
                continue
            generation, _ = found.get(place, (-2, None))
            if metadata.generation > generation:
                found[place] = metadata.generation, member
            elif metadata.generation == generation:
                found[place] = generation, None
    return {place: member for place, (_, member) in found.items() if member is not None}


def _members_wanting(members: Mapping[str, Subscription], topic: str) -> list[str]:
    return sorted(member for member, metadata in members.items() if topic in metadata.topics)


def _all_places(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> list[Place]:
    """Return every partition that a member subscribes to."""
    wanted = {topic for metadata in members.values() for topic in metadata.topics}
    return [(topic, number) for topic, count in sorted(counts.items()) if topic in wanted for number in range(count)]


ASSIGNORS: Final[Mapping[str, Callable[[Mapping[str, Subscription], Mapping[str, int]], Shares]]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "cooperative-sticky": assign_sticky,
}
"""Assignors by the names that clients have for them, in the order in which they are offered."""
