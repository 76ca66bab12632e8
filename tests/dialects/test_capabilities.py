"""Whatever a protocol keeps and loses, in any mixture: its messages show no more, and nothing is lost on the way."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lading.dialects.carrier import NAME, carry, is_reserved, restore
from lading.model.protocol import Capabilities
from tests.dialects.targets import TARGETS
from tests.dialects.test_carrier import ROUND_TRIPS, ROWS, Row, batch_of, rows_of

MIXTURES = (4 if os.environ.get("LADING_TEST_FULL") == "1" else 2) * ROUND_TRIPS

FLAGS = st.booleans()
KEPT = st.builds(
    Capabilities,
    duplicate_keys=FLAGS,
    order=FLAGS,
    nulls=FLAGS,
    empties=FLAGS,
    key=FLAGS,
    null_payload=FLAGS,
    empty_payload=FLAGS,
    kind_max=st.sampled_from([None, 15, 127]),
    id=FLAGS,
    zero_id=FLAGS,
    time_step_us=st.sampled_from([None, 1]),
    time_us_min=st.sampled_from([0, -(1 << 63)]),
    binary_names=FLAGS,
    name_bytes_min=st.integers(0, 1),
    name_bytes_max=st.sampled_from([255, (1 << 31) - 1]),
    value_bytes_max=st.sampled_from([255, (1 << 31) - 1]),
    text_carrier=FLAGS,
).filter(lambda kept: kept.order or not kept.duplicate_keys)
"""All but the step of a time: one that is only cut is no reason for a carrier (test_carrier has it for Kafka)."""


def shown_wrongly(row: Row, kept: Capabilities) -> list[str]:
    """What of a message is more than the protocol shows."""
    id_, key, headers, payload, _ = row
    names = [name for name, _, _ in headers]
    values = [value for _, _, value in headers]
    claims = {
        "duplicate keys": kept.duplicate_keys or len(set(names)) == len(names),
        "nulls": kept.nulls or None not in values,
        "empties": kept.empties or b"" not in values,
        "key": kept.key or key is None,
        "null payload": kept.null_payload or payload is not None,
        "empty payload": kept.empty_payload or payload != b"",
        "kinds": all(kind == 1 if kept.kind_max is None else 1 <= kind <= kept.kind_max for _, kind, _ in headers),
        "id": kept.id or id_ is None,
        "zero id": kept.zero_id or id_ != bytes(16),
        "names": all(kept.name_bytes_min <= len(name.encode()) for name in names),
        "values": all(len(value or b"") <= kept.value_bytes_max for value in values),
    }
    return [claim for claim, holds in claims.items() if not holds]


@given(kept=KEPT, rows=st.lists(ROWS, min_size=1, max_size=4), shuffle=st.randoms(use_true_random=False))
@settings(max_examples=MIXTURES, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_mixture_of_capabilities_is_kept_to_and_undone(
    kept: Capabilities, rows: list[Row], shuffle: random.Random
) -> None:
    carried = carry(batch_of(rows), kept)
    assert not carried.unholdable
    shown = rows_of(carried.batch)
    assert [shown_wrongly(row, kept) for row in shown] == [[]] * len(rows)
    for at, row in enumerate(shown):
        if not kept.order:
            shuffle.shuffle(row[2])
        if row[4] is not None and (kept.time_step_us is None or row[4] < kept.time_us_min):
            shown[at] = (*row[:4], 1)
    assert rows_of(restore(batch_of(shown))) == rows


@given(rows=st.lists(ROWS, min_size=1, max_size=4))
@settings(max_examples=ROUND_TRIPS, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_what_keeps_everything_carries_only_names_of_carriers_and_kinds_that_are_none(rows: list[Row]) -> None:
    batch = batch_of(rows)
    shown = carry(batch, Capabilities()).batch
    odd = any(key.startswith(("\\", NAME)) or is_reserved(key) or kind < 1 for row in rows for key, kind, _ in row[2])
    assert odd or shown is batch


@pytest.mark.parametrize("target", ["iggy", "nsq"])
def test_a_time_before_the_first_one_is_kept_with_whatever_else_is_carried(target: str) -> None:
    rows: list[Row] = [(None, None, [("via", 2, b"ORD"), ("via", 2, b"DEN")], b"p", -5), (None, b"k", [], b"p", -5)]
    shown: list[Row] = [(*row[:4], 1) for row in rows_of(carry(batch_of(rows), TARGETS[target]).batch)]
    assert rows_of(restore(batch_of(shown))) == rows
