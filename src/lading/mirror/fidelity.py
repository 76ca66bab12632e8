"""The fidelity table: which facts of messages a target shows as they were, which a carrier rebuilds, which are lost.

Each row is one fact, counted over the messages that have it. Messages as they were are compared with messages as they
are read, so that the same count serves messages about to be sent and messages read back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..model.kinds import Kind

FACTS: Final[Mapping[str, str]] = {
    "order": "messages with several headers: their order",
    "duplicates": "messages with a repeated header name: all of its values",
    "null": "messages with a null header value or payload: that it is null",
    "empty": "messages with an empty header value or payload: that it is empty, not null",
    "kind": "messages with a typed header value: the types",
    "bytes": "messages with headers: every name and every byte of the values",
    "size": "all messages: the whole payload",
    "key": "messages with a key: the key",
    "id": "messages with an id: the id",
    "time": "all messages: the time, to the microsecond",
    "state": "messages in another state than available: the state",
}
"""Facts, and what each row counts."""

_Header = tuple[str, int, bytes | None]
_AVAILABLE: Final = 1
_STYLE: Final = (
    "body{font:14px sans-serif;margin:2em}td,th{padding:2px 10px;text-align:left}tr:nth-child(even){background:#f4f6fa}"
)


@dataclass(slots=True)
class Fidelity:
    """Counts by fact: messages that have it, those a plain reader sees changed, and those that are lost."""

    messages: int = 0
    having: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def add(self, were: pa.RecordBatch, plain: pa.RecordBatch, rebuilt: pa.RecordBatch) -> None:
        """Count changes of ``were``, the originals: ``plain`` as any reader gets them, ``rebuilt`` without carriers.

        All three have the same rows. ``rebuilt`` equals ``were`` if a carrier transports the facts that the target
        cannot hold.
        """
        self.messages += were.num_rows
        self.having.update({name: int(mask.sum()) for name, mask in _find_facts(were).items()})
        self.changed.update(count_changes(were, plain))
        if rebuilt is not were:
            self.lost.update(count_changes(were, rebuilt))
        self.lost["state"] = self.changed["state"]

    def add_refused(self, were: pa.RecordBatch) -> None:
        """Count messages that the target refused: all their facts are lost."""
        self.messages += were.num_rows
        for name, mask in _find_facts(were).items():
            count = int(mask.sum())
            self.having[name] += count
            self.changed[name] += count
            self.lost[name] += count

    def rows(self) -> list[dict[str, Any]]:
        """Return the table: ``fact``, ``messages``, ``exact``, ``rebuilt``, ``lost``, ``counted``."""
        return [
            {
                "fact": name,
                "messages": self.having[name],
                "exact": self.having[name] - self.changed[name],
                "rebuilt": self.changed[name] - self.lost[name],
                "lost": self.lost[name],
                "counted": counted,
            }
            for name, counted in FACTS.items()
        ]

    @property
    def is_lossless(self) -> bool:
        """Whether nothing was lost."""
        return not any(self.lost.values())


def to_html(title: str, facts: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as a page of its own."""
    heads = "".join(f"<th>{name}</th>" for name in ("fact", "messages", "exact", "rebuilt", "lost", "counted"))
    said = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_format_number(value))}</td>" for value in row.values()) + "</tr>"
        for row in rows
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"<h1>{escape(title)}</h1><table>{said}</table><h2>Fidelity</h2><table><tr>{heads}</tr>{body}</table></html>\n"
    )


def to_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as aligned text."""
    lines = [("fact", "messages", "exact", "rebuilt", "lost")]
    lines += [tuple(_format_number(row[name]) for name in lines[0]) for row in rows]  # type: ignore[misc]
    widths = [max(len(line[at]) for line in lines) for at in range(5)]
    return "".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        + "\n"
        for line in lines
    )


def to_json(document: Mapping[str, Any]) -> str:
    """Return a report as JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _format_number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _find_facts(batch: pa.RecordBatch) -> dict[str, NDArray[np.bool_]]:
    """Return for each fact which messages have it."""
    rows = batch.num_rows
    headers: Any = batch.column("headers")
    entries = headers.flatten()
    of_row = pc.list_parent_indices(headers).to_numpy()
    counts = np.bincount(of_row, minlength=rows)
    payload: Any = batch.column("payload")
    value = entries.field("value")
    sizes = _to_numpy(pc.fill_null(pc.binary_length(value), -1))
    payload_sizes = _to_numpy(pc.fill_null(pc.binary_length(payload), -1))

    def any_header(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.asarray(np.bincount(of_row[mask], minlength=rows) > 0)

    codes = _to_numpy(entries.field("key").dictionary_encode().indices).astype(np.int64)
    cells, repeats = np.unique(of_row * (codes.max(initial=0) + 1) + codes, return_counts=True)
    repeated = np.zeros(rows, np.bool_)
    repeated[(cells // (codes.max(initial=0) + 1))[repeats > 1]] = True
    return {
        "order": counts > 1,
        "duplicates": repeated,
        "null": any_header(sizes < 0) | (payload_sizes < 0),
        "empty": any_header(sizes == 0) | (payload_sizes == 0),
        "kind": any_header(_to_numpy(entries.field("kind")) != int(Kind.RAW)),
        "bytes": counts > 0,
        "size": np.ones(rows, np.bool_),
        "key": _to_numpy(pc.is_valid(batch.column("key"))),
        "id": _to_numpy(pc.is_valid(batch.column("id"))),
        "time": np.ones(rows, np.bool_),
        "state": _to_numpy(batch.column("state")) != _AVAILABLE,
    }


def count_changes(were: pa.RecordBatch, are: pa.RecordBatch) -> Counter[str]:
    """Return for each fact the number of messages that had it and are read with another value."""
    having = _find_facts(were)
    found: Counter[str] = Counter()
    for name, column in (("key", "key"), ("id", "id"), ("time", "timestamp"), ("state", "state")):
        found[name] = int((_find_different(were.column(column), are.column(column)) & having[name]).sum())
    payload = _find_different(were.column("payload"), are.column("payload"))
    contents: Any = were.column("payload")
    was_none = _to_numpy(pc.fill_null(pc.binary_length(contents), 0)) == 0
    # a null or empty payload that is shown as another one has rows of its own
    found["size"] = int((payload & ~was_none).sum())
    null_payload = _to_numpy(pc.is_null(were.column("payload")))
    headers = {
        name: np.zeros(were.num_rows, np.bool_) for name in ("order", "duplicates", "null", "empty", "kind", "bytes")
    }
    for row, before, after in _list_changed_headers(were, are):
        for name in _header_changes(before, after):
            headers[name][row] = True
    headers["null"] |= payload & null_payload
    headers["empty"] |= payload & was_none & ~null_payload
    for name, mask in headers.items():
        found[name] = int((mask & having[name]).sum())
    return found


def _list_changed_headers(
    were: pa.RecordBatch, are: pa.RecordBatch
) -> Iterator[tuple[int, list[_Header], list[_Header]]]:
    """Yield the rows whose headers differ, with both."""
    before: Any = were.column("headers")
    after: Any = are.column("headers")
    counts = [_to_numpy(pc.list_value_length(column)) for column in (before, after)]
    suspects = counts[0] != counts[1]
    same = pa.array(~suspects)
    left, right = before.filter(same), after.filter(same)
    entries, others = left.flatten(), right.flatten()
    differ = np.zeros(len(entries), np.bool_)
    for name in ("key", "kind", "value"):
        differ |= _find_different(entries.field(name), others.field(name))
    places = np.flatnonzero(~suspects)
    suspects[places[pc.list_parent_indices(left).to_numpy()[differ]]] = True
    rows = np.flatnonzero(suspects)
    for row, one, other in zip(
        rows.tolist(), before.take(pa.array(rows)).to_pylist(), after.take(pa.array(rows)).to_pylist(), strict=True
    ):
        yield row, [tuple(entry.values()) for entry in one], [tuple(entry.values()) for entry in other]


def _header_changes(before: list[_Header], after: list[_Header]) -> Iterator[str]:
    """Yield the facts about the headers of one message that changed."""
    names, now = [key for key, _, _ in before], [key for key, _, _ in after]
    kept = Counter(now)
    if [key for key in dict.fromkeys(names) if key in kept] != list(dict.fromkeys(now)):
        yield "order"
    if any(count > 1 and kept[key] != count for key, count in Counter(names).items()):
        yield "duplicates"
    for fact, wanted in (("null", None), ("empty", b"")):
        if Counter(key for key, _, value in before if value == wanted) - Counter(
            key for key, _, value in after if value == wanted
        ):
            yield fact
    if Counter((key, kind) for key, kind, _ in before) - Counter((key, kind) for key, kind, _ in after):
        yield "kind"
    if Counter((key, value) for key, _, value in before) - Counter((key, value) for key, _, value in after):
        yield "bytes"


def _find_different(one: Any, other: Any) -> NDArray[np.bool_]:
    """Return which rows of two columns differ; null equals null."""
    equal = pc.fill_null(pc.equal(one, other.cast(one.type)), False)
    return _to_numpy(pc.invert(pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(other)))))


def _to_numpy(array: Any) -> NDArray[Any]:
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
