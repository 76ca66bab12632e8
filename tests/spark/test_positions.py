"""Positions, losses, ranges and admission: pure functions, no Spark session."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.model.errors import SettingError
from lading.tables.formats.manifest import advance, cover, overlap, same_ranges
from lading.tables.plan.offset_options import instant_us, parse_offsets, resolve_offsets
from lading.tables.plan.offsets import PartitionOffset, PartitionOffsets, document, find_loss, parse_document
from lading.tables.plan.ranges import OffsetRange, limit_rows, merge_ranges, split_ranges
from lading.transports.interface import PartitionMeta, TopicMeta

ID = bytes(range(16))


def topic(*parts: PartitionMeta, topic_id: bytes | None = ID) -> TopicMeta:
    return TopicMeta("default", "t", "t", topic_id, parts)


@pytest.mark.parametrize(
    ("offset", "epoch", "epochs", "first", "lost_until"),
    [
        (100, 1, ((1, 0),), 0, None),
        (100, 1, ((1, 0), (2, 100)), 0, None),
        (100, 1, ((1, 0), (2, 200)), 0, None),
        (100, 1, ((1, 0), (2, 90)), 0, 90),
        (100, 2, ((1, 0), (2, 90)), 0, None),
        (100, 1, ((1, 0), (2, 150), (3, 90)), 0, None),
        (160, 1, ((1, 0), (2, 150), (3, 155)), 0, 150),
        (100, 1, ((1, 0),), 101, 101),
        (100, 1, ((1, 0), (2, 90)), 95, 95),
        (700, 1, ((1, 0),), 0, None),
    ],
    ids=[
        "same epoch", "new epoch at the position", "new epoch after it", "cut back below it", "read under the new one",
        "only the epoch that follows counts", "two recoveries", "retention", "cut and retention", "not yet there",
    ],
)  # fmt: skip
def test_loss_rule(
    offset: int, epoch: int, epochs: tuple[tuple[int, int], ...], first: int, lost_until: int | None
) -> None:
    part = PartitionMeta(0, first, 500, epochs[-1][0], epochs)
    found = find_loss(PartitionOffset(ID.hex(), epoch, offset), topic(part), part)
    assert (None if found is None else found.resume) == lost_until


def test_another_topic_of_the_name_is_a_loss() -> None:
    part = PartitionMeta(0, 3, 500, 1, ((1, 0),))
    found = find_loss(PartitionOffset(bytes(16).hex(), 1, 10), topic(part), part)
    assert found is not None
    assert found.resume == 3
    assert "failOnDataLoss=false" in found.sentence("t", 0, 10)


def test_without_epochs_an_end_below_the_position_is_a_loss() -> None:
    part = PartitionMeta(0, 0, 50)
    assert find_loss(PartitionOffset(None, 0, 51), topic(part, topic_id=None), part) is not None
    assert find_loss(PartitionOffset(None, 0, 50), topic(part, topic_id=None), part) is None


def marks(ends: list[int]) -> PartitionOffsets:
    return {number: PartitionOffset(ID.hex(), 1, end) for number, end in enumerate(ends)}


starts_and_ends = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=5).map(
    lambda pairs: ([min(pair) for pair in pairs], [max(pair) for pair in pairs])
)


@settings(deadline=None)
@given(starts_and_ends, st.integers(1, 3_000))
def test_ranges_cover_every_offset_once_and_stay_small(both: tuple[list[int], list[int]], rows_max: int) -> None:
    start, end = both
    ranges = split_ranges("t", marks(start), marks(end), rows_max)
    assert ranges == split_ranges("t", marks(start), marks(end), rows_max)
    assert all(0 < piece.rows <= rows_max for piece in ranges)
    for number, (low, high) in enumerate(zip(start, end, strict=True)):
        mine = [piece for piece in ranges if piece.partition == number]
        assert [offset for piece in mine for offset in (piece.start, piece.end)][::1] == sorted(
            offset for piece in mine for offset in (piece.start, piece.end)
        )
        assert sum(piece.rows for piece in mine) == high - low
    assert same_ranges(ranges, split_ranges("t", marks(start), marks(end), 10_000_000))


@settings(deadline=None)
@given(starts_and_ends, st.integers(1, 20_000))
def test_admission_bounds_and_starves_nobody(both: tuple[list[int], list[int]], rows_max: int) -> None:
    start, end = both
    admitted = limit_rows(marks(start), marks(end), rows_max)
    moved = [admitted[number].offset - low for number, low in enumerate(start)]
    assert sum(moved) <= rows_max + len(start)
    assert all(admitted[number].offset <= high for number, high in enumerate(end))
    assert all(moved[number] >= 1 for number, (low, high) in enumerate(zip(start, end, strict=True)) if high > low)
    if sum(high - low for low, high in zip(start, end, strict=True)) <= rows_max:
        assert admitted == marks(end)


def test_what_was_resumed_begins_where_it_says() -> None:
    since = {0: PartitionOffset(ID.hex(), 1, 100)}
    until = {0: PartitionOffset(ID.hex(), 2, 95, resumed_at=90), 1: PartitionOffset(ID.hex(), 2, 7, resumed_at=3)}
    assert [(piece.partition, piece.start, piece.end, piece.resumed) for piece in split_ranges("t", since, until)] == [
        (0, 90, 95, True),
        (1, 3, 7, True),
    ]
    assert limit_rows(since, until, 4)[0].offset in (92, 93)


def test_offsets_document_is_readable_and_survives() -> None:
    made = document("t", {1: PartitionOffset(ID.hex(), 3, 7), 0: PartitionOffset(None, 0, 5, 2)})
    assert made == {
        "t": {
            "0": {"topic_id": None, "epoch": 0, "offset": 5, "resumed_at": 2},
            "1": {"topic_id": ID.hex(), "epoch": 3, "offset": 7},
        }
    }
    assert parse_document("t", made) == {0: PartitionOffset(None, 0, 5, 2), 1: PartitionOffset(ID.hex(), 3, 7)}
    with pytest.raises(SettingError, match=r"'t'.*not of 'u'"):
        parse_document("u", made)


@pytest.mark.parametrize(
    "wrong",
    ["first", "{}", "[1]", '{"x": 1}', '{"0": -3}', '{"0": 1.5}', '{"0": true}', '{"9": 1}', '{"timestamp": "soon"}'],
)  # fmt: skip
def test_wrong_starting_offsets_are_named(wrong: str) -> None:
    part = PartitionMeta(0, 0, 50, 1, ((1, 0),))
    with pytest.raises(SettingError, match="startingOffsets"):
        value = parse_offsets("startingOffsets", wrong)
        resolve_offsets("startingOffsets", value, None, topic(part), "earliest")  # type: ignore[arg-type]


def test_starting_offsets_per_partition() -> None:
    parts = [PartitionMeta(number, 2, 50, 1, ((1, 0),)) for number in range(4)]
    value = parse_offsets(
        "startingOffsets", '{"t": {"0": 11, "1": "latest", "2": {"topic_id": null, "epoch": 9, "offset": 4}}}'
    )
    found = resolve_offsets("startingOffsets", value, None, topic(*parts), "earliest")  # type: ignore[arg-type]
    assert [found[number].offset for number in range(4)] == [11, 50, 4, 2]
    assert found[2].epoch == 9
    # as Spark's Kafka connector has it
    value = parse_offsets("startingOffsets", '{"t": {"0": 11, "1": -1, "2": -2}}')
    found = resolve_offsets("startingOffsets", value, None, topic(*parts), "latest")  # type: ignore[arg-type]
    assert [found[number].offset for number in range(4)] == [11, 50, 2, 50]


@pytest.mark.parametrize(
    ("text", "offset"), [("11", 11), ("-10", 40), ("-99", 2), ("now", 50), ("Latest", 50), (" earliest ", 2)]
)
def test_one_expression_for_every_partition(text: str, offset: int) -> None:
    part = PartitionMeta(0, 2, 50, 1, ((1, 0),))
    value = parse_offsets("endingOffsets", text)
    found = resolve_offsets("endingOffsets", value, None, topic(part), "latest")  # type: ignore[arg-type]
    assert found[0].offset == offset


def test_a_time_without_a_zone_is_utc() -> None:
    for text in ("2026-01-31T12:00", "2026-01-31T12:00Z", "2026-01-31T13:00+01:00"):
        value = parse_offsets("starting", text)
        assert isinstance(value, dict)
        assert instant_us("starting", value["timestamp"]) == 1_769_860_800_000_000


def test_points_in_time() -> None:
    assert instant_us("x", "1970-01-01T00:00:01Z") == 1_000_000
    assert instant_us("x", "1970-01-01T01:00:00+01:00") == 0
    assert instant_us("x", "1970-01-02") == 86_400_000_000
    assert instant_us("x", 5) == 5


def piece(start: int, end: int, partition: int = 0, resumed: bool = False) -> OffsetRange:
    return OffsetRange("t", partition, ID.hex(), 1, start, end, resumed)


def test_manifests_know_what_is_covered() -> None:
    covered = cover(cover({}, [piece(0, 10), piece(0, 5, 1)]), [piece(10, 20)])
    assert covered == {ID.hex(): {"0": [(0, 20)], "1": [(0, 5)]}}
    assert overlap(covered, [piece(20, 30), piece(5, 9, 1)]) is None
    assert overlap(covered, [piece(20, 30), piece(4, 9, 1)]) == piece(4, 9, 1)
    # what a recovery cut off has other messages now
    again = [piece(15, 18, resumed=True)]
    assert overlap(covered, again) is None
    assert cover(covered, again)[ID.hex()]["0"] == [(0, 18)]
    assert advance({}, [piece(0, 10), piece(10, 20)])["t"]["0"]["offset"] == 20
    assert merge_ranges([piece(10, 20), piece(0, 10), piece(30, 40)]) == [piece(0, 20), piece(30, 40)]
