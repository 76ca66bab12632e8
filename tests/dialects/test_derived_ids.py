"""Ids for Iggy readers of messages without one (docs/reference/protocols/iggy.md#ids-of-messages-without-one)."""

from __future__ import annotations

import hashlib
import uuid

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.dialects.iggy.messages.derived_ids import derive_ids, fill_ids, find_derived
from lading.model.batch import SCHEMA

OFFSETS = st.integers(0, (1 << 62) - 1)
TOPICS = st.binary(min_size=16, max_size=16)
ID = SCHEMA.field("id").type


def number(row: np.ndarray) -> int:
    """The id as Iggy reads it, a little-endian number."""
    return int.from_bytes(row.tobytes(), "little")


def batch(ids: list[bytes | None], offsets: list[int]) -> pa.RecordBatch:
    columns = {
        field.name: pa.array(offsets, field.type) if field.name == "offset" else pa.nulls(len(ids), field.type)
        for field in SCHEMA
    }
    columns["id"] = pa.array(ids, ID)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def test_an_id_is_a_uuid_of_version_8_with_the_offset_at_its_end() -> None:
    topic = bytes(range(16))
    digest = hashlib.blake2b(topic + b"\3\0\0\0", digest_size=8).digest()
    (row,) = derive_ids(np.array([0x123456789], np.int64), topic, 3)
    found = uuid.UUID(int=number(row))
    assert (found.version, found.variant) == (8, uuid.RFC_4122)
    assert found.int & (1 << 62) - 1 == 0x123456789
    of_hash = int.from_bytes(digest, "little")
    assert found.int >> 80 == of_hash >> 16 ^ 0x123456789
    assert found.int >> 64 & 0xFFF == of_hash & 0xFFF


@given(st.lists(st.tuples(TOPICS, st.integers(0, 9), OFFSETS), unique=True, min_size=1, max_size=9))
def test_no_two_messages_share_an_id_and_none_is_zero(places: list[tuple[bytes, int, int]]) -> None:
    ids = [number(derive_ids(np.array([offset], np.int64), topic, part)[0]) for topic, part, offset in places]
    assert len(set(ids)) == len(places)
    assert 0 not in ids


@given(TOPICS, st.sets(st.integers(0, (1 << 48) - 1), min_size=2, max_size=9))
def test_ids_of_a_partition_differ_as_doubles_too(topic: bytes, offsets: set[int]) -> None:
    """JavaScript, and jq, read the numbers of JSON so."""
    ids = derive_ids(np.array(sorted(offsets), np.int64), topic, 0)
    assert len({float(number(row)) for row in ids}) == len(offsets)


@settings(deadline=None)
@given(TOPICS, st.lists(st.tuples(st.none() | st.binary(min_size=16, max_size=16), OFFSETS), max_size=9))
def test_only_what_has_none_is_given_one(topic: bytes, rows: list[tuple[bytes | None, int]]) -> None:
    ids, offsets = [row[0] for row in rows], [row[1] for row in rows]
    filled = fill_ids(batch(ids, offsets), topic, 0)
    assert filled.schema.equals(batch(ids, offsets).schema)
    found = filled.column("id").to_pylist()
    derived = find_derived(filled.column("id"), np.array(offsets, np.int64))
    for before, after, is_derived in zip(ids, found, derived, strict=True):
        assert after == before or (before is None and is_derived)
    # a part of a Batch is read at its place
    assert fill_ids(batch(ids, offsets)[1:], topic, 0).column("id").to_pylist() == found[1:]


@given(TOPICS, st.binary(min_size=16, max_size=16), OFFSETS)
def test_a_foreign_id_is_not_taken_for_a_derived_one(topic: bytes, foreign: bytes, offset: int) -> None:
    own = derive_ids(np.array([offset], np.int64), topic, 0)[0].tobytes()
    looks_derived = foreign[7] >> 6 == 2 and foreign[9] >> 4 == 8
    ids = pa.array([own, own, foreign], ID)
    found = find_derived(ids, np.array([offset, offset ^ 1, offset], np.int64))
    assert found[:2].tolist() == [True, False]
    assert not found[2] or looks_derived
