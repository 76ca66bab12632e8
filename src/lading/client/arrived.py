"""Find out which messages of an interrupted send have arrived, by reading the target back if it cannot report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..model.scan_request import ScanRequest
from .delivery import Parts

if TYPE_CHECKING:
    import pyarrow as pa

    from ..transports.interface import Transport

COMPARED: Final = ("key", "headers", "payload")


def skip_arrived(transport: Transport, topic: str, ends: Mapping[int, int], parts: Parts) -> Parts:
    """Yield (partition, messages) without the first messages of each partition that the target has already.

    These are the messages in the target from the offset in ``ends`` on, at which the partition ended before the send.
    After a message of another sender all further ones are yielded again. ``transport`` may be the one of the send,
    unless that has several batches in progress.
    """
    rows: dict[int, Iterator[dict[str, Any]]] = {}
    for number, batch in parts:
        end = ends.get(number)
        if end is not None and number not in rows:
            rows[number] = _read_back(transport, topic, number, end)
        arrived = rows.get(number)
        done = 0 if arrived is None else _count_equal(batch, arrived)
        if done < batch.num_rows:
            rows[number] = iter(())
            yield number, batch.slice(done)


def _count_equal(batch: pa.RecordBatch, arrived: Iterator[dict[str, Any]]) -> int:
    count = 0
    for row, there in zip(batch.select(list(COMPARED)).to_pylist(), arrived, strict=False):
        if row != there:
            break
        count += 1
    return count


def _read_back(transport: Transport, topic: str, partition: int, first: int) -> Iterator[dict[str, Any]]:
    at = first
    while True:
        fetched = transport.fetch(topic, partition, at)
        for part in fetched.decode(ScanRequest(at, fields=frozenset(COMPARED)), states="all"):
            columns = [part.columns[name].to_pylist() for name in COMPARED]
            for values in zip(*columns, strict=True):
                yield dict(zip(COMPARED, values, strict=True))
        if fetched.end_offset <= at:
            return
        at = fetched.end_offset
