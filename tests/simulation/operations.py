"""The history of a simulated partition, and of positions in it, as operations for a checker of linearizability."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tests.simulation.history import SeenMessages
from tests.simulation.positions_world import PositionCall
from tests.simulation.world import World

EVER: Final = 1 << 40
"""The end of an operation of which nobody was told one."""
_NOWHERE: Final = -1
"""The offset of what should be in the log and is not: no read agrees with it."""


Operation = dict[str, Any]
"""An append, a transaction or a read, from the step of its ``call`` to that of its ``return``, with its ``entries``."""


def list_operations(world: World) -> list[Operation]:
    """Return what the clients of a life did and saw; the last operation is a read of all that there is in the end.

    Where an append of unknown outcome took effect is told by that last read; one that it does not show had no effect.
    """
    last = world.history.last
    assert last is not None
    at = {payload: offset for offset, payload in last.rows}
    found: list[Operation] = []
    for sent in world.history.sent:
        if sent.base_offset is not None:
            rows = list(enumerate(sent.payloads, sent.base_offset))
        else:
            rows = [(at[payload], payload) for payload in sent.payloads if payload in at]
        if rows:
            found.append(_change("append", sent.sent_step, sent.acknowledged_step, rows))
    for transaction in world.history.transactions:
        # a transaction of unknown outcome that shows at all has to show as a whole
        is_there = transaction.is_committed is None and any(payload in at for payload in transaction.payloads)
        if transaction.payloads and (transaction.is_committed or is_there):
            rows = [(at.get(payload, _NOWHERE), payload) for payload in transaction.payloads]
            found.append(_change("transaction", transaction.begun_step, transaction.ended_step, rows))
    return [*found, *(_read(seen, whole=not world.has_transactions) for seen in [*world.history.seen, last])]


def list_positions(calls: Iterable[PositionCall]) -> list[Operation]:
    """Return stores, fetches and crashes in the life of consumers' positions."""
    return [
        {
            "kind": one.kind, "consumer": one.consumer, "call": one.call, "return": one.end, "value": one.value,
            "confirmed": one.is_confirmed,
        }
        for one in calls
    ]  # fmt: skip


def _change(kind: str, call: int, end: int | None, rows: Iterable[tuple[int, bytes]]) -> Operation:
    return {"kind": kind, "call": call, "return": EVER if end is None else end, "entries": _entries(rows)}


def _read(seen: SeenMessages, *, whole: bool) -> Operation:
    found = {"kind": "read", "call": seen.step, "return": seen.step, "entries": _entries(seen.rows)}
    return {**found, "first": seen.first, "end": seen.end, "whole": whole}


def _entries(rows: Iterable[tuple[int, bytes]]) -> list[Operation]:
    return [{"offset": offset, "payload": payload.decode("ascii")} for offset, payload in rows]
