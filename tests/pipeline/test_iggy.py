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


def test_an_iggy_source(place: Place, served: testing.BrokerProcess) -> None:
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


def test_a_route_sets_states_over_iggy_as_well(place: Place, served: testing.BrokerProcess) -> None:
    def poison(text: str) -> str:
        route = '[[route]]\nwhere = "delay = 7 OR offset BETWEEN 300 AND 399"\nset_state = "poisoned"\n\n[[route]]'
        return _at(f"iggy://{served.endpoints['iggy_tcp']}")(text.replace("[[route]]", route, 1))

    file = place.write(poison)
    assert checked(file) == []
    Driver(file).run()
    hit = [row for row in range(ROWS) if row % 200 == 7 or 300 <= row < 400]
    hit = [row for row in hit if fate(row) in ("flights", "late")]
    for partition in range(PARTITIONS):
        states = place.transport.states(place.topic, partition)
        assert [row for first, end, _ in states for row in range(first, end)] == hit
        assert {state.word for _, _, state in states} == {"poisoned"}


def test_states_need_a_broker_that_has_them(place: Place, served: testing.BrokerProcess) -> None:
    def poison(url: str) -> Callable[[str], str]:
        return lambda text: _at(url)(text).replace('to = "parquet:./tables/late"', 'set_state = "poisoned"')

    (problem,) = checked(place.write(poison(f"kafka://{served.endpoints['kafka']}")))
    assert (problem.part, "a route sets states, and at kafka://" in problem.sentence) == ("set_state", True)
    iggy = f"iggy://{served.endpoints['iggy_tcp']}"

    def beside(text: str) -> str:
        return poison(iggy)(text).replace(f'from = "{iggy}"', f'from = "{served.data_dir}"')

    (problem,) = [one for one in checked(place.write(beside)) if one.part == "set_state"]
    assert f"at {iggy} cannot be confirmed to be the one in {served.data_dir}" in problem.sentence
