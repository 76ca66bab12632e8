"""Staged files: columns come as they are or as dictionaries, and the file holds the same; no Spark needed."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading.model.errors import LocalError
from lading.spark.scan import conform_batches
from lading.tables.commit.staging import TableFiles, Target
from lading.tables.formats.data_files import GROUP_ROWS, WRITE_BYTES, HashingFile
from lading.tables.formats.directory import hash_of
from lading.tables.scan.scan import ScannedBatch

_FIELDS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string(), nullable=False), pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False), pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("carrier", pa.string()), pa.field("trace", pa.binary()), pa.field("payload", pa.binary()),
]  # fmt: skip
SCHEMA = pa.schema(_FIELDS)


def portion(first: int, rows: int, chance: random.Random, *, encoded: tuple[str, ...]) -> dict[str, pa.Array[Any]]:
    columns: dict[str, Any] = {
        "topic": pa.array(["flights"] * rows),
        "partition": pa.array([3] * rows, pa.int32()),
        "offset": pa.array(range(first, first + rows)),
        "timestamp": pa.array([1_700_000_000_000_000 + chance.randrange(10**6) for _ in range(rows)], pa.int64()),
        "carrier": pa.array([chance.choice(["UA", "LH", "", None, f"C{first}"]) for _ in range(rows)]),
        "trace": pa.array([chance.choice([b"\x00", b"\xff" * 16, None, b"%d" % first]) for _ in range(rows)]),
        "payload": pa.array([chance.randbytes(9) for _ in range(rows)], pa.binary()),
        "unasked": pa.nulls(rows),
    }
    columns["timestamp"] = columns["timestamp"].view(pa.timestamp("us", tz="UTC"))
    return {name: array.dictionary_encode() if name in encoded else array for name, array in columns.items()}


def files(tmp_path: Path, file_bytes: int = 1 << 30) -> TableFiles:
    repeating = ("carrier", "trace")
    return TableFiles(Target(tmp_path / "table", tmp_path / "state", SCHEMA, repeating, file_bytes), 7, "stem")


@pytest.mark.turns(3)
@pytest.mark.parametrize("first", [(), ("carrier", "trace", "topic"), ("trace",)], ids=["plain", "dictionary", "mixed"])
@pytest.mark.parametrize("file_bytes", [1 << 30, 100_000])
def test_a_table_of_dictionaries_and_plain_columns(tmp_path: Path, first: tuple[str, ...], file_bytes: int) -> None:
    """The form of a column may change from portion to portion: with the first row group, or behind it."""
    chance = random.Random(len(first))
    writer = files(tmp_path, file_bytes)
    given = []
    for at in range(6):
        later = chance.choice([(), ("carrier", "topic"), ("carrier", "trace", "topic")])
        columns = portion(at * 30_000, 30_000, chance, encoded=first if at < 5 else later)
        given.append(columns)
        writer.add(columns)
    expected = pa.concat_tables(
        [
            pa.table({name: plain(columns[name]) for name in SCHEMA.names}, schema=SCHEMA)
            for columns in given
        ]
    )  # fmt: skip
    done = [file for _, file in writer.finish()]
    paths = [tmp_path / "table" / "_lading" / "staged" / file.staged for file in done]
    assert [hash_of(path) for path in paths] == [file.hash for file in done]
    assert [path.stat().st_size for path in paths] == [file.size_bytes for file in done]
    read = pa.concat_tables([pq.ParquetFile(path).read() for path in paths])
    assert read.cast(SCHEMA).equals(expected)
    assert len(done) == (1 if file_bytes == 1 << 30 else 2)
    told = pq.ParquetFile(paths[0]).metadata
    assert told.row_group(0).num_rows == -(-GROUP_ROWS // 30_000) * 30_000
    encodings = {told.row_group(0).column(at).path_in_schema: told.row_group(0).column(at).encodings for at in range(7)}
    assert all("RLE_DICTIONARY" in encodings[name] for name in ("topic", "partition", "carrier", "trace"))
    assert all("DELTA_BINARY_PACKED" in encodings[name] for name in ("offset", "timestamp"))
    # differences of one: nothing, where eight bytes each were
    assert told.row_group(0).column(2).total_compressed_size < 5_000


def plain(array: Any) -> Any:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def test_a_dictionary_may_not_lack_what_a_column_must_have(tmp_path: Path) -> None:
    columns = portion(0, 3, random.Random(1), encoded=())
    columns["topic"] = pa.array(["flights", None, "flights"]).dictionary_encode()
    with pytest.raises(LocalError, match="column 'topic' is declared NOT NULL"):
        files(tmp_path).add(columns)


def test_a_query_says_which_message_lacks_a_value_that_must_be() -> None:
    batch = pa.record_batch({"tenant": pa.array(["a", None, None])})
    schema = pa.schema([pa.field("tenant", pa.string(), nullable=False)])
    scanned = ScannedBatch(batch, lambda row: f"topic 't', partition 1, offset {10 + row}")
    with pytest.raises(LocalError, match=r"^topic 't', partition 1, offset 11: column 'tenant' is declared NOT NULL"):
        list(conform_batches(iter([scanned]), schema))


def test_a_column_called_like_a_field_is_of_its_own_type(tmp_path: Path) -> None:
    """What SQL made, or a header: texts have no differences."""
    fields: list[pa.Field[Any]] = [pa.field("offset", pa.string()), pa.field("timestamp", pa.int64())]
    schema = pa.schema(fields)
    writer = TableFiles(Target(tmp_path / "table", tmp_path / "state", schema, ("timestamp",)), 0, "stem")
    writer.add({"offset": pa.array(["a", "b"]), "timestamp": pa.array([5, 5])})
    ((_, file),) = writer.finish()
    assert pq.ParquetFile(tmp_path / "table" / "_lading" / "staged" / file.staged).read().to_pylist() == [
        {"offset": "a", "timestamp": 5}, {"offset": "b", "timestamp": 5},
    ]  # fmt: skip


def test_a_file_knows_size_and_hash_of_what_it_was_given(tmp_path: Path) -> None:
    chance = random.Random(3)
    path = tmp_path / "file"
    sink = HashingFile(path.open("xb", buffering=0))
    whole = io.BytesIO()
    for size in (1, 500, WRITE_BYTES, 7, WRITE_BYTES - 8, 3 * WRITE_BYTES + 1, 2):
        piece = chance.randbytes(size)
        assert sink.write(piece) == size
        whole.write(piece)
        assert sink.tell() == sink.size_bytes == whole.tell()
    sink.sync()
    sink.close()
    assert path.read_bytes() == whole.getvalue()
    assert hash_of(path) == sink.hash
