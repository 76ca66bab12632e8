"""Small documents of tables and pipelines: a flipped bit is damage, never another batch, owner or position."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from lading.model.errors import CorruptLog
from lading.tables.commit.checkpoint import Checkpoint, PlannedBatch
from lading.tables.storage.files import read_document, write_document

KEPT = Path(__file__).parents[1] / "formats" / "tables_v1"
MARKS: dict[str, dict[str, Any]] = {"t": {"0": {"id": "00" * 16, "epoch": 3, "offset": 12_345}}}
DOCUMENTS: list[Any] = [
    {"version": 1, "start": MARKS, "end": MARKS},
    {"number": 17},
    {},
    # of positions by topic, of which one is called as the checksum is
    MARKS | {"checksum": MARKS["t"]},
]


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    for document in DOCUMENTS:
        write_document(tmp_path / "one.json", document)
        assert read_document(tmp_path / "one.json") == document


def test_a_flipped_bit_is_never_another_document(tmp_path: Path, full: bool) -> None:
    """Or the same one, if it is in the name of the checksum: that reads as a document of before."""
    path = tmp_path / "one.json"
    document = DOCUMENTS[0]
    write_document(path, document)
    content = path.read_bytes()
    places = range(8 * len(content))
    for place in places if full else random.Random(1).sample(places, 600):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            found = read_document(path)
        except CorruptLog:
            continue
        assert {name: found[name] for name in document} == document, place


def test_a_checkpoint_with_another_offset_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.begin(PlannedBatch(MARKS, MARKS))
    content = checkpoint.path.read_text()
    checkpoint.path.write_text(content.replace("12345", "12346", 1))
    with pytest.raises(CorruptLog, match=r"its checksum does not match.* rerun with --resume"):
        checkpoint.read()
    for text in ("{", '{"version": 1}'):
        checkpoint.path.write_text(text)
        with pytest.raises(CorruptLog, match="rerun with --resume"):
            checkpoint.read()


@pytest.mark.parametrize("name", ["pipeline.json", "owner.json", "checkpoint/batch.json", "begin.json"])
def test_documents_without_a_checksum_are_read(name: str) -> None:
    path = KEPT / "parquet" / "_lading" / name
    assert read_document(path) == json.loads(path.read_bytes())
