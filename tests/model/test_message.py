"""Message: its timestamp, and how notebooks show it."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

import lading
from lading.model.headers import Header, Headers
from lading.model.kinds import Kind
from lading.model.message import Message
from lading.model.values import HeaderValue, f64, u16


def test_timestamps_are_exact_to_the_microsecond_and_aware() -> None:
    assert Message(b"", timestamp_us=1_690_000_000_123_457).timestamp == datetime(2023, 7, 22, 4, 26, 40, 123457, UTC)
    assert Message(b"", timestamp_us=-1).timestamp == datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
    assert Message(b"").timestamp == datetime(1970, 1, 1, tzinfo=UTC)
    # microseconds where Kafka wants milliseconds are often seen
    assert Message(b"", timestamp_us=1_690_000_000_123_457_000).timestamp == datetime.max.replace(tzinfo=UTC)
    assert Message(b"", timestamp_us=-(1 << 62)).timestamp == datetime.min.replace(tzinfo=UTC)


def test_headers_as_html_show_kinds_and_tell_null_from_empty() -> None:
    html = Headers([("delay", u16(12)), ("via", None), ("note", ""), ("ratio", f64(math.nan))])._repr_html_()
    assert ">uint16</span></td><td>12</td>" in html
    assert "<td>via</td><td><span" in html
    assert ">null</i>" in html
    assert ">empty</i>" in html
    assert "<td>nan</td>" in html
    assert "no headers" in Headers()._repr_html_()


def test_html_is_escaped() -> None:
    html = Headers([("<b>", "<script>alert('x')</script>"), ("raw", b"<i>")])._repr_html_()
    assert "<script>" not in html
    assert "<td><b></td>" not in html
    assert "&lt;script&gt;" in html
    assert "&lt;i&gt;" in html


def test_bytes_that_are_no_text_are_shown_as_hex() -> None:
    html = Headers([("a", b"\xff\x00"), Header("b", Kind.UINT16, b"\x01"), Header("c", 99, b"\x80")])._repr_html_()
    assert "0xff00" in html
    assert "0x01" in html
    assert "kind 99" in html


def test_a_message_as_html() -> None:
    message = Message(b"x" * 500, Headers([("a", "1")]), key=None, offset=7, topic="<t>", id=b"\x01" * 16, checksum=9)
    html = message._repr_html_()
    assert "&lt;t&gt; / 0" in html
    assert "<tr><th>offset</th><td>7</td></tr>" in html
    assert "500 characters" in html
    assert "01" * 16 in html
    assert "null" in html


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), st.integers(0, 20), st.none() | st.binary(max_size=17))))
@example([("a", Kind.FLOAT64, struct.pack("<d", math.nan)), ("b", Kind.FLOAT32, struct.pack("<f", -math.inf))])
@example([("a", Kind.UINT16, b"\x0c\x00"), ("b", Kind.BOOL, b"\x02"), ("c", Kind.STRING, None), ("d", Kind.RAW, None)])
def test_a_repr_makes_the_same_headers(rows: list[tuple[str, int, bytes | None]]) -> None:
    headers = Headers(Header(*row) for row in rows)
    names = {name: getattr(lading, name) for name in lading.__all__} | {"HeaderValue": HeaderValue}
    assert eval(repr(headers), names) == headers


def test_a_repr_shows_values_as_python_writes_them() -> None:
    headers = Headers([("carrier", "UA"), ("delay", u16(12)), ("via", None), ("raw", b"\xff"), ("ok", True)])
    assert repr(headers) == (
        "Headers([('carrier', 'UA'), ('delay', u16(12)), ('via', None), ('raw', b'\\xff'), ('ok', True)])"
    )
