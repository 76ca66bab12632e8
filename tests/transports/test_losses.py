"""When a position is lost, for whoever stands there: what is not known is no loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.model.run import Decoded, Located
from lading.transports.losses import (
    LogState,
    LossCause,
    ReaderPosition,
    find_log_loss,
    find_wrong_payload,
    select_damage,
    select_messages,
)

ID = b"i" * 16
EPOCHS = ((1, 0), (3, 40), (4, 60))


@pytest.mark.parametrize(
    ("position", "log", "expected"),
    [
        (ReaderPosition(ID, 1, 30), LogState(ID, EPOCHS, 0), None),
        (ReaderPosition(ID, 1, 40), LogState(ID, EPOCHS, 0), None),
        (ReaderPosition(ID, 1, 41), LogState(ID, EPOCHS, 0), (LossCause.CUT_BACK, 40, 40)),
        (ReaderPosition(ID, 1, 41), LogState(ID, EPOCHS, 50), (LossCause.CUT_BACK, 40, 50)),
        (ReaderPosition(ID, 3, 41), LogState(ID, EPOCHS, 0), None),
        (ReaderPosition(ID, None, 41), LogState(ID, EPOCHS, 0), None),
        (ReaderPosition(ID, 4, 9), LogState(ID, EPOCHS, 10), (LossCause.RETENTION, 10, 10)),
        (ReaderPosition(ID, 4, None), LogState(ID, EPOCHS, 10), None),
        (ReaderPosition(ID, 4, 70), LogState(b"j" * 16, EPOCHS, 10), (LossCause.OTHER_TOPIC, 10, 10)),
        (ReaderPosition(ID, 4, None), LogState(b"j" * 16, EPOCHS, 10), (LossCause.OTHER_TOPIC, 10, 10)),
        (ReaderPosition(None, 4, 70), LogState(b"j" * 16, EPOCHS, 10), None),
        (ReaderPosition(ID, 4, 70), LogState(None, EPOCHS, 10), None),
        (ReaderPosition(ID, 0, 51), LogState(ID, (), 0, 50), (LossCause.BEYOND_END, 50, 0)),
        (ReaderPosition(ID, 0, 50), LogState(ID, (), 0, 50), None),
        (ReaderPosition(ID, 0, 51), LogState(ID, (), 0), None),
        (ReaderPosition(ID, 4, 99), LogState(ID, EPOCHS, 0, 50), None),
    ],
)
def test_when_a_position_is_lost(
    position: ReaderPosition, log: LogState, expected: tuple[LossCause, int, int] | None
) -> None:
    assert find_log_loss(position, log) == expected


def test_damage_is_told_to_whom_it_concerns() -> None:
    damaged = [(0, 5), (5, 9), (20, 30)]
    assert select_damage(damaged, 5, 20) == [(5, 9)]
    assert select_damage(damaged, 8, 21) == [(5, 9), (20, 30)]
    assert select_damage(damaged, 9, 20) == []


def messages(payloads: list[bytes | None], checksums: list[int | None], first: int = 0) -> Decoded:
    count = len(payloads)
    located = Located(np.zeros(8, np.uint8), np.arange(count), np.ones(count, np.int64), np.ones(count, np.int8))
    columns: dict[str, pa.Array[Any]] = {
        "offset": pa.array(range(first, first + count), pa.int64()),
        "payload": pa.array(payloads, pa.binary()),
        "checksum": pa.array(checksums, pa.uint32()),
    }
    return Decoded(count, columns, {"k": located})


def test_the_first_wrong_payload_is_found_across_parts() -> None:
    right, wrong = 0x8C736521, 7
    assert find_wrong_payload([]) is None
    assert find_wrong_payload([messages([b"a", None, b"x"], [None, wrong, None])]) is None
    assert find_wrong_payload([messages([b"\xff\xff\xff\xff"], [0xFFFFFFFF])]) is None
    parts = [messages([b"a"], [None]), messages([b"a", b"b", b"c"], [None, wrong, right], first=5)]
    assert find_wrong_payload(parts) == 6


def test_selecting_keeps_columns_and_located_headers_together() -> None:
    given = messages([b"a", b"b", b"c"], [None] * 3)
    assert select_messages(given, pa.array([True, True, True])) is given
    chosen = select_messages(given, pa.array([True, False, True]))
    assert chosen.count == 2
    assert chosen.columns["payload"].to_pylist() == [b"a", b"c"]
    assert chosen.located["k"].start.tolist() == [0, 2]
    assert select_messages(given, pa.array([False, False, False])).count == 0
