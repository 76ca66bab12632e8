"""The tables of the page for users of Iggy: what the rows of the behaviours say, which the suite holds to be true.

A "no" there is an excuse in ``tests/behaviours/rows.py``: a behaviour that is expected to fail, and whose pass fails
the suite. ``python -m tests.docs.test_coming_from_iggy`` prints what the page should show.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lading.dialects.iggy.classic.releases import RELEASES
from tests.behaviours.rows import CLIENTS, GROUPS, Client

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from-iggy.md"
TRANSPORTS: Final = ("TCP", "QUIC", "WebSocket", "HTTP")
FIRST_WITH_WEBSOCKET: Final = "0.8"

BY_ITS_CRATE: Final = {("0.0.30", "HTTP"): "test_rust_headers_only.py"}
"""What no row shows, but a published client in ``tests/interop``, by the test that runs it."""

COLUMNS: Final[dict[str, Sequence[str]]] = {
    "create, send, poll": (
        "messages_are_read_once_and_in_order",
        "payload_bytes_are_exact",
        "a_named_partition_is_the_one_written",
        "reading_begins_at_any_offset",
        "a_topic_is_created_once",
    ),
    "typed headers in order": ("every_kind_is_exact", "order_is_kept", "header_keys_are_exact"),
    "groups": GROUPS,
    "a header key twice": ("duplicates_stay_in_order",),
    "null and empty header values": ("null_and_empty_values_are_different",),
    "values over 255 bytes": ("long_values_are_exact",),
    "null and empty payloads": ("null_and_empty_payloads_are_different",),
    "message keys": ("keys_are_exact",),
}
"""What the second table tells, by the behaviours that show it."""


def _reason_of(client: Client, behaviours: Sequence[str]) -> str | None:
    excuses = {**client.exceptions, **client.cannot_write, **client.left_out}
    return next((excuses[one] for one in behaviours if one in excuses), None)


def _not_served(release: str, transport: str) -> str:
    names = [each.name for each in RELEASES]
    if release not in names:
        return "nothing here has tried it"
    if transport == "WebSocket" and names.index(release) < names.index(FIRST_WITH_WEBSOCKET):
        return "its clients have none"
    return "not served yet"


class Notes:
    """Reasons by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cell(self, reason: str | None) -> str:
        if reason is None:
            return "yes"
        return f"no ({self._numbers.setdefault(reason, len(self._numbers) + 1)})"

    def lines(self) -> list[str]:
        return [f"{number}. {reason}" for reason, number in self._numbers.items()]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def print_tables() -> str:
    """What the page shows: which transports serve a release, and what works for its clients."""
    by_place = {client.iggy: client for client in CLIENTS if client.iggy is not None}
    served, worked = Notes(), Notes()
    lines = [_row("release", *TRANSPORTS), "|---|" + "---|" * len(TRANSPORTS)]
    releases = dict.fromkeys([*(each.name for each in RELEASES), *(release for release, _ in by_place)])
    for release in releases:
        known = {*by_place, *BY_ITS_CRATE}
        cells = [
            served.cell(None if (release, transport) in known else _not_served(release, transport))
            for transport in TRANSPORTS
        ]
        lines.append(_row(release, *cells))
    lines += ["", *served.lines(), "", _row("release", "transport", *COLUMNS), "|---|---|" + "---|" * len(COLUMNS)]
    for (release, transport), client in by_place.items():
        lines.append(_row(release, transport, *(worked.cell(_reason_of(client, each)) for each in COLUMNS.values())))
    return "\n".join([*lines, "", *worked.lines()])


def test_the_page_says_what_the_suite_holds() -> None:
    page = PAGE.read_text()
    for table in print_tables().split("\n\n"):
        assert f"\n{table}\n" in page, f"the page should show:\n{table}"


def test_every_behaviour_that_the_tables_name_is_one() -> None:
    suite = "".join(path.read_text() for path in (PAGE.parents[2] / "tests" / "behaviours").glob("test_*.py"))
    for behaviours in COLUMNS.values():
        for name in behaviours:
            assert f"def test_{name}(" in suite


def test_what_a_published_client_shows_has_its_test() -> None:
    for test in BY_ITS_CRATE.values():
        assert (PAGE.parents[2] / "tests" / "interop" / test).exists()


if __name__ == "__main__":
    print(print_tables())
