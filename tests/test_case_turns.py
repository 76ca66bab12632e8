"""Slow cases take turns: each has run after some days, and one of them runs every day."""

from __future__ import annotations

from collections import defaultdict
from copy import copy

import pytest
from hypothesis import core, given, settings
from hypothesis import strategies as st

from tests import slow_tests
from tests.case_turns import DAY, SLOW_TURNS, choose_others, choose_part, skip_others, vary_examples


@pytest.mark.parametrize(("count", "turns"), [(1, 3), (2, 3), (3, 3), (7, 3), (240, 4), (5, 2)])
def test_every_case_has_its_turn_and_no_day_is_without_one(count: int, turns: int) -> None:
    run = [set(range(count)) - set(choose_others(day, count, turns)) for day in range(740_000, 740_000 + turns)]
    assert all(run)
    assert set().union(*run) == set(range(count))
    assert max(map(len, run)) == -(-count // min(turns, count))


@pytest.mark.parametrize("case", range(2))
def test_others_are_skipped_in_a_run_of_everything(
    case: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases of other tests are left alone."""

    def list_skipped(day: str, full: str) -> set[str]:
        items = [copy(item) for item in request.session.items if item.path == request.path]
        for item in items:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "skip"]
            if item.nodeid.startswith(request.node.nodeid.partition("[")[0]):
                item.own_markers.append(pytest.mark.turns(2).mark)
        monkeypatch.setenv(DAY, day)
        monkeypatch.setenv("LADING_TEST_FULL", full)
        skip_others(items)
        return {item.name for item in items if item.get_closest_marker("skip")}

    days = [list_skipped(day, "") for day in ("740000", "740001")]
    wanted = {item.name for item in request.session.items if item.name.startswith(f"{request.node.originalname}[")}
    assert days[0] | days[1] == wanted
    assert days[0] & days[1] == set()
    assert list_skipped("740000", "1") == set()


def test_tests_with_parts_take_turns_with_each_other(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = [copy(item) for item in request.session.items if item.path == request.path][:3]
    monkeypatch.delenv("LADING_TEST_FULL", raising=False)

    def list_run(day: int) -> list[int]:
        for part, item in enumerate(tests):
            item.own_markers = [pytest.mark.turns(3, part=part).mark]
        monkeypatch.setenv(DAY, str(day))
        skip_others(tests)
        return [part for part, item in enumerate(tests) if not item.get_closest_marker("skip")]

    assert [list_run(day) for day in range(4)] == [[0], [1], [2], [0]]


def test_slow_tests_have_their_turn_and_one_of_many_cases_runs_every_day(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parametrized test of this file stands for those of many cases, the others for those of one."""
    monkeypatch.delenv("LADING_TEST_FULL", raising=False)
    of_this_file = [item for item in request.session.items if item.path == request.path]
    monkeypatch.setattr(
        slow_tests, "read_list", lambda: list({slow_tests.name_function(item.nodeid): None for item in of_this_file})
    )
    run: list[list[str]] = []
    for day in range(740_000, 740_000 + SLOW_TURNS):
        items = [copy(item) for item in of_this_file]
        for item in items:
            item.own_markers = [mark for mark in item.own_markers if mark.name not in ("skip", "turns")]
        monkeypatch.setenv(DAY, str(day))
        skip_others(items)
        run.append([item.nodeid for item in items if not item.get_closest_marker("skip")])
    assert sorted({name for names in run for name in names}) == sorted(item.nodeid for item in of_this_file)
    many = [item.nodeid for item in of_this_file if "test_every_case_has_its_turn" in item.nodeid]
    for names in run:
        assert set(many) & set(names), "a day without a case"
    one = [name for names in run for name in names if "[" not in name]
    assert len(one) == len(set(one)), "a test of one case runs twice in its turns"


def test_slow_functions_are_those_that_take_long_together() -> None:
    lines = [
        "a::f\t0.3\t0.3",
        "a::f\t0.3\t0.3",
        "a::g\t0.1\t2.5",
        "a::h\t0.3\t1.9",
        "tests/house/test_words.py::i\t9\t9",
    ]
    assert slow_tests.choose_slow(lines) == ["a::f", "a::g"]


def test_listed_functions_exist_and_have_no_other_turns(request: pytest.FixtureRequest) -> None:
    """Only files that were collected whole can say so: all of them in a run of everything."""
    options = request.config.option
    if options.keyword or options.markexpr or any("::" in argument for argument in request.config.args):
        pytest.skip("a choice of tests says nothing about the others")
    found = {slow_tests.name_function(item.nodeid): item for item in request.session.items}
    files = {name.partition("::")[0] for name in found}
    for name in slow_tests.read_list():
        if name.partition("::")[0] in files:
            assert name in found, f"{name} is not there any more: take it out of {slow_tests.LIST.name}"
            assert found[name].get_closest_marker("turns") is None, f"{name} has a mark: take it out of the list"


def test_parts_of_the_cases_of_one_test_are_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LADING_TEST_FULL", raising=False)
    parts: list[int] = []
    for day in range(740_000, 740_003):
        monkeypatch.setenv(DAY, str(day))
        parts += choose_part(range(10), 3)
    assert sorted(parts) == list(range(10))
    assert choose_part(range(1), 3) == range(1), "a day without a case"
    monkeypatch.delenv(DAY)
    assert choose_part(range(10), 3) == range(10)


def test_no_part_is_without_a_day(request: pytest.FixtureRequest) -> None:
    parts: defaultdict[int, set[int]] = defaultdict(set)
    for item in request.session.items:
        marker = item.get_closest_marker("turns")
        if marker is not None and "part" in marker.kwargs:
            parts[marker.args[0]].add(marker.kwargs["part"])
    for turns, found in parts.items():
        assert found <= set(range(turns)), "a test never runs"


def test_examples_are_those_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """In CI Hypothesis has the same ones for ever, unless it is told otherwise."""
    monkeypatch.delenv("LADING_TEST_FULL", raising=False)
    monkeypatch.setattr(core, "global_force_seed", None)
    before = settings.get_current_profile_name()

    def draw(day: str) -> list[int]:
        monkeypatch.setenv(DAY, day)
        settings.load_profile("ci")
        vary_examples()
        drawn: list[int] = []

        @given(st.integers(0, 1 << 60))
        @settings(max_examples=20, database=None, deadline=None)
        def collect(number: int) -> None:
            drawn.append(number)

        collect()
        return drawn

    try:
        assert draw("740000") == draw("740000") != draw("740001")
    finally:
        settings.load_profile(before)
