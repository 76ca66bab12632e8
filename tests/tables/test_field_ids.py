"""Field ids in the Parquet files of Iceberg tables: by them every engine finds the columns, also Daft."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.types import StringType

from lading import Producer, testing
from lading.tables.formats.field_ids import collect_mapped_ids, number_fields, read_ids
from lading.tables.formats.iceberg import IcebergTable
from lading.tables.formats.parquet import ParquetTable
from lading.tables.formats.registry import open_table
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.upkeep.optimize import optimize_table

from .deleting import delete_where
from .direct import DirectExecutor
from .engines import Engines, open_engines
from .logged_forms import NUMBERS, loaded

NESTED = (
    "partition, offset, timestamp, carrier string, delay int, headers, payload, stops array<string> from payload, "
    "leg struct<origin:string,hops:array<struct<at:string,n:int>>> from payload, seats map<string,int> from payload"
)
PLAIN = "partition, offset, timestamp, carrier string, delay int, headers, payload"


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with open_engines() as engines:
        yield engines


@pytest.fixture
def topic(broker: testing.BrokerProcess) -> str:
    return f"numbered{next(NUMBERS)}"


def send(broker: testing.BrokerProcess, topic: str, rows: range) -> None:
    with Producer(broker.url) as producer:
        for row in rows:
            payload = {
                "stops": [f"S{at}" for at in range(row % 3)],
                "leg": {"origin": f"O{row}", "hops": [{"at": f"H{row}", "n": row}]},
                "seats": {"a": row, "b": -row},
            }
            producer.send(topic, json.dumps(payload).encode(), headers={"carrier": "UA", "delay": row})


def run(
    broker: testing.BrokerProcess, topic: str, table: Path, columns: str = NESTED, by: tuple[str, ...] = ()
) -> None:
    settings = IngestSettings(columns=columns, max_rows=10, partition_by=by)
    ingest(DirectExecutor(), broker.url, topic, f"iceberg:{table}", settings)


def data_files(table: Path) -> list[str]:
    return sorted(task.file.file_path.removeprefix("file://") for task in loaded(table).scan().plan_files())


def require_ids_of_the_table(table: Path) -> None:
    """Have pyiceberg read the ids of each file, at every depth, which are those of the table's columns."""
    schema = loaded(table).schema()
    for path in data_files(table):
        held = pyarrow_to_schema(pq.read_schema(path))
        assert {field.name: field.field_id for field in held.fields} == {
            field.name: field.field_id for field in schema.fields if field.name in held.column_names
        }
        for field in held.fields:
            # the text of a nested type has the ids of all that is in it
            assert str(field.field_type) == str(schema.find_type(field.field_id))


@pytest.mark.parametrize("by", [(), ("carrier",)], ids=["whole", "divided"])
def test_files_have_the_ids_of_the_table_and_engines_read_the_same_rows(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, engines: Engines, by: tuple[str, ...]
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(25))
    run(broker, topic, table, PLAIN, by)
    require_ids_of_the_table(table)
    # a run with more columns, which get the next ids
    send(broker, topic, range(25, 40))
    run(broker, topic, table, NESTED, by)
    assert len(data_files(table)) == 5
    require_ids_of_the_table(table)
    assert "schema.name-mapping.default" not in loaded(table).properties
    rows = engines.read("iceberg", table, ["offset", "carrier", "delay"])
    assert sorted(rows) == [[row, "UA", row] for row in range(40)]
    nested: Any = loaded(table).scan().to_arrow().sort_by("offset").select(["stops", "leg", "seats"]).to_pylist()
    assert nested[:25] == [{"stops": None, "leg": None, "seats": None}] * 25
    assert nested[31] == {
        "stops": ["S0"], "leg": {"origin": "O31", "hops": [{"at": "H31", "n": 31}]}, "seats": [("a", 31), ("b", -31)],
    }  # fmt: skip
    delete_where(open_table(table), "delay >= 30", dry_run=False)
    require_ids_of_the_table(table)
    optimize_table(open_table(table))
    require_ids_of_the_table(table)
    assert len(data_files(table)) < 5
    rows = engines.read("iceberg", table, ["offset", "carrier", "delay"])
    assert sorted(rows) == [[row, "UA", row] for row in range(30)]
    stops = engines.read("iceberg", table, ["offset", "stops"])
    assert sorted(stops)[25:] == [[row, [f"S{at}" for at in range(row % 3)]] for row in range(25, 30)]
    print(f"equal rows: {', '.join(sorted(engines.seen))}")


def test_files_without_ids_stay_readable_beside_those_that_have_them(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As releases before this one wrote them: a mapping of names is set for them, and upkeep gives them ids."""
    table = tmp_path / "table"
    send(broker, topic, range(20))
    with monkeypatch.context() as earlier:
        earlier.setattr(IcebergTable, "open_file", ParquetTable.open_file)
        run(broker, topic, table)
    mapping = json.loads(loaded(table).properties["schema.name-mapping.default"])
    assert {name for field in mapping for name in field["names"]} == {
        field.name for field in loaded(table).schema().fields
    }
    assert all(
        b"PARQUET:field_id" not in (pq.read_schema(path).field("delay").metadata or {}) for path in data_files(table)
    )
    send(broker, topic, range(20, 30))
    run(broker, topic, table)
    require_delays(table, range(30))
    optimize_table(open_table(table))
    require_ids_of_the_table(table)
    require_delays(table, range(30))


def require_delays(table: Path, rows: range, name: str = "delay") -> None:
    delays: list[Any] = loaded(table).scan(selected_fields=(name,)).to_arrow()[name].to_pylist()
    assert sorted(delays, key=str) == sorted(rows, key=str)
    assert sorted(polars.scan_iceberg(loaded(table)).select(name).collect()[name].to_list()) == list(rows)


def test_a_column_that_others_rename_keeps_its_values_through_upkeep(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(20))
    run(broker, topic, table)
    with loaded(table).update_schema() as update:
        update.rename_column("delay", "late")
    require_delays(table, range(20), "late")
    optimize_table(open_table(table))
    assert len(data_files(table)) == 1
    require_delays(table, range(20), "late")
    delete_where(open_table(table), "late >= 10", dry_run=False)
    require_delays(table, range(10), "late")


def test_a_column_that_others_rename_while_a_batch_is_written_gets_its_values(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Iceberg has it for every writer: the batch was written for the columns of its beginning, by their ids."""
    table = tmp_path / "table"
    send(broker, topic, range(5))
    run(broker, topic, table)
    send(broker, topic, range(5, 9))
    commit_log = IcebergTable._commit_log

    def rename_first(self: IcebergTable, *arguments: Any) -> None:
        with loaded(table).update_schema() as update:
            update.rename_column("delay", "late")
        with loaded(table).update_schema() as update:
            update.add_column("delay", StringType())
        monkeypatch.undo()
        commit_log(self, self._load(), *arguments[1:])

    monkeypatch.setattr(IcebergTable, "_commit_log", rename_first)
    run(broker, topic, table)
    require_delays(table, range(9), "late")
    assert set(loaded(table).scan().to_arrow()["delay"].to_pylist()) == {None}


def test_types_that_hold_others_are_numbered_at_every_depth() -> None:
    schema = pa.schema({
        "m": pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.int32()), ("y", pa.large_list(pa.string()))]))),
        "d": pa.dictionary(pa.int32(), pa.string()),
    })  # fmt: skip
    ids = {"m": [1, {"key": 2, "value": [3, {"element": [4, {"x": 5, "y": [6, {"element": 7}]}]}]}], "d": 8}
    numbered = number_fields(schema, ids)
    assert numbered is not None and numbered.equals(schema) and read_ids(numbered) == ids
    # all or none: a reader looks for no column by name in a file that has ids
    assert number_fields(schema, {"m": ids["m"]}) is None
    assert number_fields(schema, {**ids, "m": [1, {"key": 2}]}) is None
    mapping: list[dict[str, Any]] = [
        {"names": ["a", "b"], "field-id": 3, "fields": [{"names": ["element"], "field-id": 4}]},
        {"names": ["c"]},
    ]
    assert collect_mapped_ids(mapping) == {"a": [3, {"element": 4}], "b": [3, {"element": 4}]}
