"""A source and a quarantine topic behind an Iggy server: no topic ids, no epochs, no states."""

from __future__ import annotations

import re
from collections.abc import Callable

from lading import read_arrow, testing

from .conftest import PARTITIONS, ROWS, Place
from .direct import Driver, checked
from .flights import fate, found


def _at(iggy: str) -> Callable[[str], str]:
    """The same pipeline with everything at the Iggy server."""
    return lambda text: re.sub(r'lading://[^"]*', iggy, text)


def test_an_iggy_source(place: Place, served: testing.Running) -> None:
    iggy = f"iggy://{served.endpoints['iggy_tcp']}"
    counts = Driver(place.write(_at(iggy))).run()
    places = found(place.tables)
    assert counts["read"] == len(places) == PARTITIONS * ROWS
    assert all(len(kinds) == 1 for kinds in places.values())
    missing = [where for where, kinds in places.items() if kinds == ["missing_header"]]
    assert missing == [where for where in places if fate(where[1]) == "missing_header"]
    copies = read_arrow(iggy, place.copies, "reason string from lading-reason", verify_checksum=False)
    assert copies.num_rows == counts["quarantined"]
    assert Driver(place.write(_at(iggy))).run() == {}


def test_states_need_a_broker_that_has_them(place: Place, served: testing.Running) -> None:
    iggy = f"iggy://{served.endpoints['iggy_tcp']}"
    file = place.write(lambda text: _at(iggy)(text).replace('to = "parquet:./tables/late"', 'set_state = "poisoned"'))
    (problem,) = checked(file)
    assert (problem.part, "a route sets states, and at iggy://" in problem.sentence) == ("set_state", True)
