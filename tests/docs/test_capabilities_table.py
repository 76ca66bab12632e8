"""The table of what each protocol keeps, on the page about the carrier, says what the rows of the protocols say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from lading.dialects.protocols import PROTOCOLS
from lading.model.protocol import BYTES_MAX, Capabilities

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "carrier.md"


def yes(kept: bool) -> str:
    return "yes" if kept else "no"


def size(bytes_max: int | None) -> str:
    return "any" if bytes_max in (None, BYTES_MAX) else f"{bytes_max:,}"


def kinds(kept: Capabilities) -> str:
    if kept.form is not None:
        return "as its form has them"
    return "no: raw" if kept.kind_max is None else f"1 to {kept.kind_max}"


def time(kept: Capabilities) -> str:
    return {None: "no: the server's own", 1: "yes", 1000: "by the millisecond"}[kept.time_step_us]


LINES: Final[dict[str, Callable[[Capabilities], str]]] = {
    "several headers of one key": lambda kept: yes(kept.duplicate_keys),
    "order of headers": lambda kept: yes(kept.order),
    "null values": lambda kept: yes(kept.nulls),
    "empty values": lambda kept: yes(kept.empties),
    "kinds": kinds,
    "keys that are not UTF-8": lambda kept: yes(kept.binary_names),
    "bytes of a key": lambda kept: f"{kept.name_bytes_min} to {size(kept.name_bytes_max)}",
    "bytes of a value": lambda kept: size(kept.value_bytes_max),
    "bytes of all values": lambda kept: size(kept.values_sum_max),
    "message key": lambda kept: yes(kept.key),
    "null payload": lambda kept: yes(kept.null_payload),
    "empty payload": lambda kept: yes(kept.empty_payload),
    "bytes of the payload": lambda kept: size(kept.payload_bytes_max),
    "bytes of both": lambda kept: size(kept.whole_bytes_max),
    "id": lambda kept: yes(kept.id),
    "id of 16 zero bytes": lambda kept: yes(kept.id and kept.zero_id),
    "timestamp": time,
}


def print_table() -> str:
    columns = {
        f"`{one.name}{'_' if use else ''}{use}`": kept for one in PROTOCOLS for use, kept in one.capabilities.items()
    }
    head = f"| of the message | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}"
    rows = [f"| {name} | {' | '.join(line(kept) for kept in columns.values())} |" for name, line in LINES.items()]
    return "\n".join([head, *rows])


def test_the_table_says_what_the_rows_say() -> None:
    assert print_table() in PAGE.read_text(), f"the page should show:\n{print_table()}"
