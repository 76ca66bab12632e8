"""Kernels and twin find the same header of each list, which is the last that a loop over the lists finds."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.columns.locate import Entries
from lading.kernels import engine
from lading.kernels.entries import KERNEL_MODULE, locate
from lading.model.headers import Header
from lading.model.kinds import Kind
from lading.model.run import Located
from tests.columns.values import headers_array

engine.load(KERNEL_MODULE)

KEYS = ("a", "b", "ab", "grüße", "\\xff", "carrier", "carriel")
HEADERS = st.builds(
    Header,
    st.sampled_from(KEYS),
    st.sampled_from([int(Kind.RAW), int(Kind.STRING), int(Kind.UINT16), 99, 127]),
    st.none() | st.binary(max_size=9),
)
ROWS = st.lists(st.none() | st.lists(HEADERS, max_size=4), max_size=20)
HALVES = {
    "kernel": lambda home, twin, size_bytes: engine.load(home),
    "twin": lambda home, twin, size_bytes: twin,
}


def show(found: Located) -> list[Any]:
    """Kind and bytes of each row: None where the header is null, a word where it is absent."""
    assert (found.start >= 0).all()
    assert (found.start + found.length.clip(min=0) <= len(found.data)).all()
    return [
        "absent" if length == -1 else (kind, None if length == -2 else found.data[start : start + length].tobytes())
        for start, length, kind in zip(found.start.tolist(), found.length.tolist(), found.kind.tolist(), strict=True)
    ]


@settings(deadline=None)
@given(ROWS, st.sampled_from([*KEYS, "none", ""]), st.data())
def test_the_last_header_of_a_key(rows: list[list[Header] | None], key: str, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(rows)))
    count = data.draw(st.integers(0, len(rows) - first))
    column: Any = headers_array(rows).slice(first, count)
    if data.draw(st.booleans()):
        # a batch of a batch, whose parts begin inside those of the whole
        column = pa.concat_arrays([headers_array([[Header("a", 1, b"x"), Header("b", 2, None)]]), column]).slice(1)
    chosen = rows[first : first + count]
    expected: list[Any] = []
    for row in chosen:
        last = next((one for one in reversed(row or []) if one.key == key), None)
        expected.append("absent" if last is None else (last.kind, last.value))
    for choose in HALVES.values():
        with mock.patch.object(engine, "select", choose):
            assert show(locate(column, [key])[key]) == expected
            entries = Entries.of(column)
            places = entries.last(key)
        assert show(entries.locate(places)) == expected
        assert np.array_equal(places >= 0, np.array([one != "absent" for one in expected], bool))
