"""The flat names of all topics, of which one is found by; a topic that is being renamed has its next name as well.

So no name is free for another topic before the catalog has the new one on disk: after a crash only one topic can
claim it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from ....model.names import flat_name
from ..topology import Stream, Topic


class FlatNames:
    """Topics by flat name, and the names that streams and topics are about to get."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._next: dict[Stream | Topic, str] = {}

    def find(self, name: str) -> Topic | None:
        """Return the topic that has or is about to get this flat name."""
        return self._topics.get(name)

    def names(self, stream: Stream, topic_names: Iterable[str]) -> list[str]:
        """Return the flat names of a topic of a stream that has or gets one of several names."""
        return [flat_name(*pair) for pair in product(self._with_next(stream, stream.name), topic_names)]

    def add(self, topic: Topic) -> None:
        """Have a topic found by all its names."""
        for name in self._names_of(topic):
            self._topics[name] = topic

    def remove(self, topic: Topic) -> None:
        """Have a topic found no more."""
        for name in self._names_of(topic):
            self._topics.pop(name, None)
        self._next.pop(topic, None)

    def reserve(self, renamed: Stream | Topic, name: str) -> None:
        """Have a topic, or the topics of a stream, found by their next names too. They are free."""
        self._next[renamed] = name
        for topic in _topics_of(renamed):
            self.add(topic)

    def settle(self, renamed: Stream | Topic, *, take: bool) -> None:
        """End what ``reserve`` began: with the next name if ``take``, else with the one before."""
        topics = _topics_of(renamed) if self._next.get(renamed) is not None else []
        known = [topic for topic in topics if any(self._topics.get(name) is topic for name in self._names_of(topic))]
        for topic in known:
            for name in self._names_of(topic):
                self._topics.pop(name, None)
        name = self._next.pop(renamed, renamed.name)
        if take:
            renamed.name = name
        for topic in known:
            self.add(topic)

    def _names_of(self, topic: Topic) -> list[str]:
        return self.names(topic.stream, self._with_next(topic, topic.name))

    def _with_next(self, one: Stream | Topic, name: str) -> list[str]:
        later = self._next.get(one)
        return [name] if later is None else [name, later]


def _topics_of(renamed: Stream | Topic) -> list[Topic]:
    return list(renamed.topics.values()) if isinstance(renamed, Stream) else [renamed]
