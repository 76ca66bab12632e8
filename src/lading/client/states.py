"""Message states, set from Python: by filter, by offsets, by range."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import LocalError, SettingError
from ..model.state import STATE_BY_WORD, State

if TYPE_CHECKING:
    from ..transports.interface import Marking, Transport

OFFSETS_AT_ONCE = 10_000
"""Offsets in one request: its document stays far below the server's limit of 4 MiB."""


class Changed(NamedTuple):
    """Number of messages that were examined, that matched, and whose state changed."""

    seen: int
    matched: int
    changed: int


def set_state(
    url: str | Transport,
    topic: str,
    state: State | str,
    *,
    where: str | None = None,
    offsets: Iterable[int] | None = None,
    first: int | None = None,
    end: int | None = None,
    partition: int | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    on_progress: Callable[[Changed], None] = lambda changed: None,
) -> Changed:
    """Set the state of the messages that ``where`` selects, of ``offsets``, or of ``first`` up to ``end``.

    ``url`` is a broker's, ``lading://host:port`` or ``iggy://host:port``, or an open transport. A filter applies to all
    partitions, or to one and a range of it; it may test the state of a message, e.g.
    ``"state = 'available' AND delay > 60"``. Offsets and ranges are of one ``partition``, which may be omitted if the
    topic has only one. ``reason`` (at most 1,000 characters) goes with the copies in the dead letter topic, if the
    topic has one. ``on_progress`` is called about once a second with what is done so far. Messages that have the state
    already do not change, so that a call may be repeated.
    """
    from ..filter.parse import parse
    from ..transports.interface import Marking
    from ..transports.open import open_transport

    if isinstance(state, str) and state not in STATE_BY_WORD:
        raise SettingError(f"a state is one of {', '.join(STATE_BY_WORD)}, not {state!r}")
    if sum((where is not None, offsets is not None, where is None and (first is not None or end is not None))) != 1:
        raise SettingError("select the messages with where=…, or offsets=…, or first=… and end=…")
    if where is None and offsets is None and (first is None or end is None):
        raise SettingError("say both ends of the range: first=… and end=…, which is not included")
    if where is not None:
        # for a wrong filter, a protocol may return an error number without a sentence
        parse(where, closed=False)
    word = state if isinstance(state, str) else State(state).word
    common: dict[str, Any] = {"state": word, "reason": reason, "dry_run": dry_run}
    transport = open_transport(url) if isinstance(url, str) else url
    try:
        if not isinstance(transport, Marking):
            raise LocalError(
                f"states are set at a broker of Lading (lading://host:port, or iggy://host:port), not at {url}"
            )
        if where is not None and partition is None and first is None and end is None:
            return _in_topic(transport, topic, common | {"where": where}, on_progress)
        if partition is None:
            partition = _only_partition(transport, topic)
        if where is not None:
            document = common | {"where": where, "end": end}
            return _in_partition(transport, topic, partition, document, first or 0, on_progress)
        if offsets is not None:
            return _of_offsets(transport, topic, partition, common, offsets, on_progress)
        done = transport.put_states(topic, common | {"first": first, "end": end}, partition)
        return Changed(done["seen"], done["matched"], done["changed"])
    finally:
        if isinstance(url, str):
            transport.close()


def _only_partition(transport: Transport, topic: str) -> int:
    count = len(transport.topic(topic).partitions)
    if count != 1:
        raise SettingError(f"topic {topic!r} has {count} partitions; pass the one that the offsets belong to")
    return 0


def _in_topic(
    transport: Marking, topic: str, document: dict[str, Any], on_progress: Callable[[Changed], None]
) -> Changed:
    total = Changed(0, 0, 0)
    while True:
        done = transport.put_states(topic, document)
        total = _add_counts(total, done)
        on_progress(total)
        if done["done"]:
            return total
        document = document | {"ranges": done["ranges"]}


def _in_partition(
    transport: Marking,
    topic: str,
    partition: int,
    document: dict[str, Any],
    first: int,
    on_progress: Callable[[Changed], None],
) -> Changed:
    total = Changed(0, 0, 0)
    while True:
        done = transport.put_states(topic, document | {"first": first}, partition)
        total = _add_counts(total, done)
        on_progress(total)
        if done["done"]:
            return total
        # what arrives meanwhile is not looked at: the end stays that of the first response
        first, document = done["first"], document | {"end": done["end"]}


def _of_offsets(
    transport: Marking,
    topic: str,
    partition: int,
    document: dict[str, Any],
    offsets: Iterable[int],
    on_progress: Callable[[Changed], None],
) -> Changed:
    total = Changed(0, 0, 0)
    rest = iter(offsets)
    while some := list(islice(rest, OFFSETS_AT_ONCE)):
        total = _add_counts(total, transport.put_states(topic, document | {"offsets": some}, partition))
        on_progress(total)
    return total


def _add_counts(total: Changed, done: dict[str, Any]) -> Changed:
    return Changed(total.seen + done["seen"], total.matched + done["matched"], total.changed + done["changed"])
