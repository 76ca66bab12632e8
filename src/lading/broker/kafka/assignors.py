"""Assignors of the newer consumer groups (KIP-848), by name: they decide which member gets which partitions.

``uniform`` gives each member as many, and moves as few as that takes. ``range`` gives each member neighbours of each
topic, the same numbers of topics that have as many partitions: instances first, by name, then members by id.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from ...runtime.turns import TurnCounter, Turns

Place = tuple[bytes, int]
"""A partition: the 16 bytes of its topic's id, and its number."""

Targets = dict[str, Set[Place]]
"""Partitions by member id."""


class AssignedMember(NamedTuple):
    """A member as an assignor sees it: ``target`` has the partitions of its previous target."""

    id: str
    instance: str | None
    topics: frozenset[bytes]
    target: Set[Place]


def assign_uniform(members: Sequence[AssignedMember], partitions_count: Mapping[bytes, int]) -> Turns[Targets]:
    """Return the targets of ``uniform``, in turns."""
    targets: dict[str, set[Place]] = {}
    owners: set[Place] = set()
    turn = TurnCounter()
    topics = members[0].topics if members else frozenset()
    is_same = all(member.topics is topics or member.topics == topics for member in members)
    total = sum(partitions_count.get(topic, 0) for topic in topics)
    least, more = divmod(total, len(members)) if members else (0, 0)
    for member in members:
        kept = sorted(
            place
            for place in member.target
            if place not in owners and place[0] in member.topics and place[1] < partitions_count.get(place[0], 0)
        )
        if is_same:
            # the first ones keep one more, as far as there are some
            size = least + (1 if more and len(kept) > least else 0)
            more -= size > least
            kept = kept[:size]
        targets[member.id] = set(kept)
        owners.update(kept)
        if turn.is_over(1 + len(kept)):
            yield
    for shared, subscribers in _list_shares(members, is_same):
        free = [
            place
            for topic in shared
            for number in range(partitions_count.get(topic, 0))
            if (place := (topic, number)) not in owners
        ]
        yield from _fill(targets, subscribers, free, turn)
        if turn.is_over(len(members)):
            yield
    if not is_same:
        yield from _balance(targets, members, turn)
    return {**targets}


def _list_shares(members: Sequence[AssignedMember], is_same: bool) -> Iterator[tuple[list[bytes], list[str]]]:
    """Yield topics, with the members that share them: each topic for itself unless all members have the same."""
    if is_same:
        yield sorted(members[0].topics if members else ()), [member.id for member in members]
        return
    for topic in _list_topics(members):
        yield [topic], [member.id for member in members if topic in member.topics]


def _list_topics(members: Sequence[AssignedMember]) -> list[bytes]:
    return sorted(frozenset().union(*{member.topics for member in members}))


def _fill(
    targets: Mapping[str, set[Place]], subscribers: Sequence[str], free: Sequence[Place], turn: TurnCounter
) -> Turns[None]:
    """Give each partition to the subscriber that has the fewest."""
    if not free:
        return
    fewest = [(len(targets[member]), index, member) for index, member in enumerate(subscribers)]
    heapq.heapify(fewest)
    for place in free:
        size, index, member = fewest[0]
        targets[member].add(place)
        heapq.heapreplace(fewest, (size + 1, index, member))
        if turn.is_over():
            yield


_PASSES_MAX: Final = 10
"""Passes over all topics while partitions still move: in the second pass hardly any does."""


def _balance(targets: Mapping[str, set[Place]], members: Sequence[AssignedMember], turn: TurnCounter) -> Turns[None]:
    """Move partitions from members with the most to subscribers of the same topic that have at least two fewer."""
    topics = _list_topics(members)
    for _ in range(_PASSES_MAX):
        has_moved = False
        for topic in topics:
            places: dict[str, list[Place]] = {member.id: [] for member in members if topic in member.topics}
            for member in places:
                places[member] = [place for place in targets[member] if place[0] == topic]
                if turn.is_over(1 + len(targets[member])):
                    yield
            while True:
                fullest = max((one for one in places if places[one]), key=lambda one: len(targets[one]), default=None)
                emptiest = min(places, key=lambda one: len(targets[one]), default=None)
                if turn.is_over(2 * len(places)):
                    yield
                if fullest is None or emptiest is None or len(targets[fullest]) < len(targets[emptiest]) + 2:
                    break
                place = places[fullest].pop()
                targets[fullest].remove(place)
                targets[emptiest].add(place)
                places[emptiest].append(place)
                has_moved = True
        if not has_moved:
            return


def assign_range(members: Sequence[AssignedMember], partitions_count: Mapping[bytes, int]) -> Turns[Targets]:
    """Return the targets of ``range``, in turns."""
    turn = TurnCounter()
    targets: dict[str, set[Place]] = {member.id: set() for member in members}
    ordered = sorted(members, key=lambda one: (one.instance is None, one.instance or one.id))
    for topic in _list_topics(members):
        subscribers = [member.id for member in ordered if topic in member.topics]
        least, more = divmod(partitions_count.get(topic, 0), len(subscribers))
        begin = 0
        for index, member in enumerate(subscribers):
            end = begin + least + (index < more)
            targets[member].update((topic, number) for number in range(begin, end))
            begin = end
            if turn.is_over(1 + least):
                yield
    return {**targets}


Assignor = Callable[[Sequence[AssignedMember], Mapping[bytes, int]], Turns[Targets]]

DEFAULT_ASSIGNOR: Final = "uniform"
ASSIGNORS: Final[Mapping[str, Assignor]] = {DEFAULT_ASSIGNOR: assign_uniform, "range": assign_range}
