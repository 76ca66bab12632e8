"""The state of a mirror that is damaged: it is refused by name, and never read as another one."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lading.mirror.state import DATABASE, MappedRange, MirrorState, Range, require_intact_log
from lading.model.errors import LocalError

TOPICS = ("air.flights", "orders")
V1 = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE positions (
    topic TEXT, partition INTEGER, offset INTEGER NOT NULL, epoch INTEGER NOT NULL, PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE works (topic TEXT PRIMARY KEY, number INTEGER NOT NULL, ranges TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE offsets (
    topic TEXT, partition INTEGER, first INTEGER, end INTEGER NOT NULL, target INTEGER NOT NULL, exact INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, first)
) WITHOUT ROWID;
INSERT INTO facts VALUES ('version', '1'), ('id', '0123456789abcdef'), ('works', '7'), ('work 7', 'abcd');
INSERT INTO positions VALUES ('orders', 0, 40, 3), ('orders', 1, 41, 3);
INSERT INTO works VALUES ('orders', 7, '[[0, 40, 50, 90, 3]]');
INSERT INTO offsets VALUES ('orders', 0, 0, 40, 50, 1);
"""
"""A state as Lading wrote it before rows had digests."""


def fill_state(directory: Path) -> MirrorState:
    state = MirrorState(directory)
    state.require_pair("kafka://a:1", "lading://b:1")
    for topic in TOPICS:
        for first in range(0, 4_000, 1_000):
            ranges = [Range(partition, first, first + 1_000, first + 70, 5) for partition in range(3)]
            mapped = {partition: [MappedRange(first, first + 1_000, first + 70, True)] for partition in range(3)}
            state.finish(topic, state.begin(topic, ranges), mapped)
        state.begin(topic, [Range(0, 4_000, 4_100, 4_070, 5)])
    return state


def describe(directory: Path) -> dict[str, Any]:
    """Return all that a mirror goes on from."""
    state = MirrorState(directory)
    try:
        facts: dict[str, Any] = {"id": state.id, "facts": state.list_facts(), "topics": state.topics()}
        for topic in TOPICS:
            facts[topic] = state.positions(topic), state.find_begun(topic), state.list_mapped(topic, 1)
        return facts
    finally:
        state.close()


def test_a_flipped_bit_changes_nothing_in_silence(tmp_path: Path, full: bool) -> None:
    fill_state(tmp_path / "whole").close()
    wanted = describe(tmp_path / "whole")
    content = (tmp_path / "whole" / DATABASE).read_bytes()
    places = [place for place in range(len(content)) if content[place]]
    flipped, refused = tmp_path / "flipped", 0
    flipped.mkdir()
    chosen = random.Random(17).sample(places, min(len(places), 1_000 if full else 60))
    for place in chosen:
        data = bytearray(content)
        data[place] ^= 1 << place % 8
        (flipped / DATABASE).write_bytes(data)
        for suffix in ("-wal", "-shm"):
            (flipped / f"{DATABASE}{suffix}").unlink(missing_ok=True)
        try:
            assert describe(flipped) == wanted, place
        except LocalError as error:
            assert "mirror.sqlite" in str(error)
            refused += 1
    print(f"mirror's state: {len(chosen)} flipped bits, {refused} refused, 0 read as others")
    assert refused


def test_a_damaged_row_says_what_to_do(tmp_path: Path) -> None:
    fill_state(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("UPDATE positions SET offset = offset - 256 WHERE topic = 'orders' AND partition = 1")
    with pytest.raises(LocalError, match=r"damaged \(a row of positions is not as it was written\); put a copy of it"):
        MirrorState(tmp_path)


def test_a_damaged_log_does_not_take_the_state_back(tmp_path: Path) -> None:
    """As kill -9 leaves it: what was written last is in SQLite's log alone, which ends where it is damaged."""
    state = fill_state(tmp_path / "open")
    shutil.copytree(tmp_path / "open", tmp_path / "killed")
    state.close()
    require_intact_log(tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed")
    state = fill_state(tmp_path / "again")
    shutil.copytree(tmp_path / "again", tmp_path / "killed")
    state.close()
    log = tmp_path / "killed" / f"{DATABASE}-wal"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 4
    log.write_bytes(data)
    with pytest.raises(LocalError, match=r"damaged \(its log, after \d+ pages\)"):
        require_intact_log(tmp_path / "killed")


def test_a_state_of_an_earlier_version_gets_digests(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        db.executescript(V1)
    for _ in range(2):
        state = MirrorState(tmp_path)
        assert state.id == "0123456789abcdef" and state.list_facts()["version"] == "2"
        assert {part: position.offset for part, position in state.positions("orders").items()} == {0: 40, 1: 41}
        work = state.find_begun("orders")
        assert work is not None and (work.name, work.ranges) == ("7-abcd", (Range(0, 40, 50, 90, 3),))
        assert state.list_mapped("orders", 0) == [MappedRange(0, 40, 50, True)]
        state.close()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("UPDATE offsets SET target = 51")
    with pytest.raises(LocalError, match="a row of offsets is not as it was written"):
        MirrorState(tmp_path)
