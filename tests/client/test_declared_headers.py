"""Declared headers that no message of a run had are warnings with the names seen; columns are a text or a list."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from lading import Consumer, Producer, read_arrow
from lading.model.errors import SettingError, UnseenHeaderWarning
from tests.client.memory import MemoryTransport


@pytest.fixture
def transport() -> MemoryTransport:
    """Topic ``t``: three messages with ``carrier`` and a null ``via``."""
    made = MemoryTransport(t=1)
    with Producer(made) as producer:
        for _ in range(3):
            producer.send("t", b"x", headers=[("carrier", "UA"), ("via", None)])
    return made


def test_read_arrow_warns_of_a_mistyped_header(transport: MemoryTransport) -> None:
    sentence = r"none of the 3 messages of 't' has a header 'carier' \(did you mean 'carrier'\?\); .* 'carrier', 'via'"
    with pytest.warns(UnseenHeaderWarning, match=sentence) as caught:
        table = read_arrow(transport, "t", "offset, carier string, via string")
    assert table.num_rows == 3
    assert [warning.filename for warning in caught] == [__file__], "the user's own line is named, once"


def test_batches_warn_at_their_end(transport: MemoryTransport) -> None:
    with pytest.warns(UnseenHeaderWarning, match="has a header 'carier'"):
        list(Consumer(transport, "t", timeout_s=0).batches(["offset", "carier string"]))


def test_a_filter_on_a_mistyped_header_that_selects_nothing_is_told(transport: MemoryTransport) -> None:
    with pytest.warns(UnseenHeaderWarning, match="has a header 'carier'"):
        assert read_arrow(transport, "t", where="carier = 'UA'").num_rows == 0


def test_a_consumer_whose_filter_selects_nothing_is_told_once(transport: MemoryTransport) -> None:
    consumer = Consumer(transport, "t", where="carier = 'UA'", timeout_s=0)
    with pytest.warns(UnseenHeaderWarning, match="has a header 'carier'") as caught:
        assert list(consumer) == []
        assert list(consumer) == []
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("columns", ["carrier string, via string", ["carrier string", "via string"], "via int", None])
def test_headers_that_are_there_or_null_are_no_warning(transport: MemoryTransport, columns: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_arrow(transport, "t", columns).num_rows == 3


def test_nothing_is_said_of_an_empty_topic() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_arrow(MemoryTransport(t=1), "t", "carrier string").num_rows == 0


def test_what_is_no_column_text_is_refused(transport: MemoryTransport) -> None:
    with pytest.raises(
        SettingError, match=r"columns 3: a column is a text; write .* or \['offset', 'carrier string'\]"
    ):
        read_arrow(transport, "t", ["offset", 3])  # type: ignore[list-item]
