"""Whatever keys headers have, the columns and the contract that are proposed for them are accepted."""

from __future__ import annotations

import tomllib
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lading.columns.contract import FIELD_TYPES, parse_columns
from lading.columns.statistics import HeaderStatistics
from lading.model.batch import HEADERS_TYPE
from lading.model.kinds import Kind
from lading.pipeline.contract import headers_section
from lading.pipeline.header_section import parse_headers
from lading.pipeline.profile import FIELDS, TopicProfile

KEYS = st.lists(
    st.text(max_size=8)
    | st.sampled_from(["", "header_", " ", "ofset", "Value", "a.b", "a b", chr(34), "`", "from", "required", "A", "a"])
    | st.sampled_from(sorted(FIELD_TYPES)),
    min_size=1, max_size=6, unique=True,
)  # fmt: skip


def profile_of(keys: list[str]) -> TopicProfile:
    """The profile of two messages, of which the first has a header of each key."""
    rows = [[{"key": key, "kind": Kind.STRING, "value": b"v"} for key in keys], []]
    times = pa.array([0, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    columns: dict[str, Any] = {
        "partition": pa.array([0, 0], pa.int32()), "offset": pa.array([0, 1], pa.int64()), "timestamp": times,
        "key": pa.nulls(2, pa.binary()), "headers": pa.array(rows, HEADERS_TYPE), "payload": pa.nulls(2, pa.binary()),
    }  # fmt: skip
    found = TopicProfile()
    found.add(pa.RecordBatch.from_pydict({name: columns[name] for name in FIELDS.split(", ")}))
    return found


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(KEYS)
@example([""])
@example(["", "header_", "HEADER_"])
def test_every_key_gets_a_column_of_its_own(keys: list[str]) -> None:
    statistics: HeaderStatistics = profile_of(keys).statistics
    columns = parse_columns(", ".join(["offset", *statistics.suggest_columns()])).headers
    assert [column.header for column in columns] == keys
    names = [column.name.lower() for column in columns]
    assert len({*names, *FIELD_TYPES}) == len(names) + len(FIELD_TYPES)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(KEYS)
@example([""])
def test_every_key_is_in_a_contract_that_can_be_read(keys: list[str]) -> None:
    profile = profile_of(keys)
    for rows in (None, profile.document("topic", "here")["headers"]):
        section = tomllib.loads(headers_section(profile.statistics, "topic", rows))
        columns = parse_headers(section["headers"], "topic.toml").headers
        assert sorted(column.header for column in columns) == sorted(keys)
