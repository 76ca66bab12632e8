"""Message states over ``iggy://``, by the commands that only Lading's own Iggy endpoint serves.

Requests and responses are the documents of ``docs/reference/http-states.md``, so that callers use every transport
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...dialects.iggy.classic.commands import Ping
from ...dialects.iggy.classic.errors import CODE_OF
from ...dialects.iggy.classic.records import validate
from ...dialects.iggy.classic.state_commands import GetStates, ListedStates, SetStates, SetStatesWhere, StatesProgress
from ...model.errors import LocalError, Reason, RemoteError
from ...model.ranges import ranges_of
from ...model.state import STATE_BY_WORD, State
from ..interface import TopicMeta
from .group import StreamTopic
from .socket import ConnectionBroken, IggySocket

OFFSETS_END: Final = (1 << 63) - 1
_TRIES: Final = 2
"""A first closed connection may be chance; the second one after a ping means that the server does not know the
command.
"""


class IggyStates:
    """Lists and sets the states of one server's messages."""

    def __init__(
        self, url: str, socket: IggySocket, place: Callable[[str], StreamTopic], topic: Callable[[str], TopicMeta]
    ) -> None:
        self._url = url
        self._socket = socket
        self._place = place
        self._topic = topic

    def list_ranges(self, topic: str, partition: int, first: int, end: int | None) -> list[tuple[int, int, State]]:
        """Return ranges (first, end, state) of messages that are not available."""
        found: list[tuple[int, int, State]] = []
        end = OFFSETS_END if end is None else end
        while first < end:
            listed: ListedStates = self._ask(GetStates(*self._place(topic), partition + 1, first, end))
            found += [(one.first, one.end, one.state) for one in listed.ranges]
            first = max(listed.next_offset, first + 1)
        return found

    def count(self, topic: str) -> list[dict[str, Any]]:
        """Return for each ``partition`` its offsets, and the number of messages in each state."""
        rows = []
        for part in self._topic(topic).partitions:
            counts = dict.fromkeys((state.word for state in State), 0)
            for first, end, state in self.list_ranges(topic, part.number, part.first_offset, part.end_offset):
                counts[state.word] += end - first
            counts[State.AVAILABLE.word] = part.end_offset - part.first_offset - sum(counts.values())
            rows.append(
                {
                    "partition": part.number,
                    "first_offset": part.first_offset,
                    "next_offset": part.end_offset,
                    "states": counts,
                }
            )
        return rows

    def put(self, topic: str, document: dict[str, Any], partition: int | None) -> dict[str, Any]:
        """Set states as ``document`` says, in a partition or in all, and return the response's document."""
        if partition is None:
            return self._put_in_topic(topic, document)
        place, state = self._place(topic), STATE_BY_WORD[document["state"]]
        dry_run, reason = bool(document.get("dry_run")), document.get("reason") or ""
        where, end = document.get("where"), document.get("end")
        if where is not None:
            first = document.get("first") or 0
            end = OFFSETS_END if end is None else end
            return _to_progress(
                self._ask(SetStatesWhere(*place, partition + 1, state, dry_run, first, end, reason, where))
            )
        offsets: Sequence[int] | None = document.get("offsets")
        ranges = tuple(ranges_of(offsets)) if offsets is not None else ((int(document["first"]), int(document["end"])),)
        return _to_progress(self._ask(SetStates(*place, partition + 1, state, dry_run, reason, ranges)))

    def _put_in_topic(self, topic: str, document: dict[str, Any]) -> dict[str, Any]:
        """Set states in the next partition of the document, and return the remaining ranges in it and in the others."""
        left: dict[str, Sequence[int]] = document.get("ranges") or {
            str(part.number): (part.first_offset, part.end_offset) for part in self._topic(topic).partitions
        }
        number = next(iter(left), None)
        if number is None:
            return {"seen": 0, "matched": 0, "changed": 0, "ranges": {}, "done": True}
        first, end = left[number]
        done = self.put(topic, document | {"first": first, "end": end}, int(number))
        rest = {name: bounds for name, bounds in left.items() if name != number}
        ranges = rest if done["done"] else {number: (done["first"], done["end"])} | rest
        return {name: done[name] for name in ("seen", "matched", "changed")} | {"ranges": ranges, "done": not ranges}

    def _ask(self, command: GetStates | SetStates | SetStatesWhere) -> Any:
        """Return the response. Raises LocalError if the server does not know the command.

        Iggy's own server closes the connection then. A server that closes it twice and responds to a ping in between
        does not know the command. Repeating the request is harmless: messages that have the state already are not set
        again.
        """
        validate(command)
        for _ in range(_TRIES):
            try:
                return self._socket.ask(command, again=False)
            except ConnectionBroken:
                self._socket.ask(Ping())
            except RemoteError as refusal:
                if not isinstance(command, GetStates) and refusal.code == CODE_OF[Reason.UNKNOWN_COMMAND]:
                    # several reasons share this number; a server that lists states knows the other commands
                    self._ask(GetStates(command.stream, command.topic, command.partition_id, 0, 0))
                if not isinstance(command, GetStates) or refusal.code != CODE_OF[Reason.UNKNOWN_COMMAND]:
                    raise
                break
        raise LocalError(
            f"{self._url}: the Iggy server there neither sets nor lists message states, its protocol has no command "
            "for it; Lading's broker does, at iggy://, lading://host:port or over HTTP"
        )


def _to_progress(done: StatesProgress) -> dict[str, Any]:
    return {
        "seen": done.seen, "matched": done.matched, "changed": done.changed,
        "first": done.first, "end": done.end, "done": done.first >= done.end,
    }  # fmt: skip
