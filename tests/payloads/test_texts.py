"""Payloads of text: typed as a header of kind string, and malformed with the byte that is not UTF-8."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lading.columns.assemble import assemble
from lading.columns.contract import parse_columns
from lading.model.errors import SettingError
from lading.model.run import Decoded
from lading.registry.payload_form import parse_payload_form

TEXT = parse_payload_form({"format": "text"})


def test_the_whole_payload_is_one_column_of_any_type(half: str) -> None:
    payloads: list[bytes | None] = [b"12", "é".encode(), None, b"", b"a\xff", b"\xa9", b"-3"]
    held: dict[str, pa.Array[Any]] = {"payload": pa.array(payloads, pa.binary())}
    columns = "body string from payload, n int from payload, j json from payload, l array<string> from payload"
    made = assemble(Decoded(len(payloads), held, {}), parse_columns(columns, TEXT))
    made.batch.validate(full=True)
    assert made.batch.column("body").to_pylist() == ["12", "é", None, "", None, None, "-3"]
    assert made.batch.column("n").to_pylist() == [12, None, None, None, None, None, -3]
    assert made.batch.column("j").to_pylist() == ['"12"', '"é"', None, '""', None, None, '"-3"']
    assert made.walked is not None
    assert made.walked.malformed.tolist() == [False] * 4 + [True] * 2 + [False]
    assert [made.walked.describe(row) for row in (4, 5)] == ["is not UTF-8 (byte 1)", "is not UTF-8 (byte 0)"]


def test_text_has_no_members_and_no_schema() -> None:
    held: dict[str, pa.Array[Any]] = {"payload": pa.array([b"x"], pa.binary())}
    with pytest.raises(SettingError, match=r"payload.a.b: payloads of text have no members; write payload.a"):
        assemble(Decoded(1, held, {}), parse_columns("b string from payload.a.b", TEXT))
    with pytest.raises(SettingError, match=r"payload.registry: payloads of text have no schema; remove registry"):
        parse_payload_form({"format": "text", "registry": "http://h:1"})
