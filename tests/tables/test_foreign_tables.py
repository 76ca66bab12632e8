"""Tables that other writers made: appended to by the names of columns, exactly once, and never changed otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType

from lading import testing
from lading.model.errors import LocalError
from lading.tables.formats import delta, iceberg
from lading.tables.formats.registry import open_table
from lading.tables.ingest import IngestReport, IngestSettings, ingest
from lading.tables.upkeep.optimize import optimize_table
from lading.tables.upkeep.vacuum import vacuum_table

from .direct import DirectExecutor
from .logged_forms import NUMBERS, Crash, crash, owner, send


def field(name: str, word: str, nullable: bool = True, metadata: dict[str, Any] | None = None) -> Field:
    return Field(name, PrimitiveType(word), nullable=nullable, metadata=metadata)


COLUMNS = "carrier string, delay int, timestamp"
OTHERS = 3
"""Rows that the table has before."""


@dataclass(frozen=True)
class Foreign:
    """A form of tables as others make them, with a column that Lading does not write and a wider one."""

    name: str
    make: Callable[[Path, Sequence[str]], None]
    target: Callable[[Path], str]
    delays: Callable[[Path], list[int]]
    evolve: Callable[[Path], None]
    crash_points: tuple[tuple[type, str], ...]


def first_rows() -> pa.Table:
    times = pa.array([1_760_000_000_000_000 + at for at in range(OTHERS)], pa.timestamp("us", "UTC"))
    return pa.table({
        "region": ["north"] * OTHERS, "delay": pa.array(range(-OTHERS, 0), pa.int64()), "timestamp": times,
        "carrier": ["DL"] * OTHERS,
    })  # fmt: skip


def make_delta(table: Path, levels: Sequence[str]) -> None:
    write_deltalake(table, first_rows(), partition_by=list(levels) or None)


def read_delta(table: Path) -> list[int]:
    rows = DeltaTable(table).to_pyarrow_table()
    assert rows.schema.field("delay").type == pa.int64()
    assert set(rows["region"].to_pylist()) <= {"north", None}
    by_polars = polars.read_delta(str(table))["delay"].to_list()
    by_duckdb: Any = duckdb.sql("select delay from rows")
    delays: list[Any] = rows["delay"].to_pylist()
    assert sorted(by_polars) == sorted(delays) == sorted(delay for (delay,) in by_duckdb.fetchall())
    return sorted(by_polars)


def widen_delta(table: Path) -> None:
    DeltaTable(table).alter.add_columns([field("note", "string")])


def others_catalog(table: Path) -> Catalog:
    return SqlCatalog("theirs", uri=f"sqlite:///{table.parent}/theirs.db")


def make_iceberg(table: Path, levels: Sequence[str]) -> None:
    catalog = others_catalog(table)
    catalog.create_namespace("lake")
    schema = IcebergSchema(
        NestedField(1, "region", StringType()), NestedField(2, "delay", LongType()),
        NestedField(3, "timestamp", TimestamptzType()), NestedField(4, "carrier", StringType()),
    )  # fmt: skip
    at = {field.name: field.field_id for field in schema.fields}
    fields = [PartitionField(at[name], 1000 + n, IdentityTransform(), name) for n, name in enumerate(levels)]
    spec = PartitionSpec(*fields) if fields else UNPARTITIONED_PARTITION_SPEC
    made = catalog.create_table(("lake", "flights"), schema, f"file://{table}", spec)
    made.append(first_rows())


def read_iceberg(table: Path) -> list[int]:
    held = others_catalog(table).load_table("lake.flights")
    rows = held.scan().to_arrow()
    assert set(rows["region"].to_pylist()) <= {"north", None}
    assert rows.schema.field("delay").type == pa.int64()
    assert None not in rows["carrier"].to_pylist()
    by_polars = polars.scan_iceberg(held, reader_override="native").collect()["delay"].to_list()
    delays: list[Any] = rows["delay"].to_pylist()
    assert sorted(by_polars) == sorted(delays)
    return sorted(by_polars)


def widen_iceberg(table: Path) -> None:
    held = others_catalog(table).load_table("lake.flights")
    with held.update_schema() as schema:
        schema.add_column("note", StringType())
    with held.update_spec() as spec:
        spec.add_field("timestamp", DayTransform(), "day")


FORMS = (
    Foreign(
        "delta", make_delta, lambda table: f"delta:{table}", read_delta, widen_delta,
        ((delta.DeltaTable, "_commit_log"), (delta.DeltaTable, "_sync_log")),
    ),
    Foreign(
        "iceberg", make_iceberg, lambda table: f"iceberg:theirs/lake.flights:{table}", read_iceberg, widen_iceberg,
        ((iceberg.IcebergTable, "_commit_log"), (SqlCatalog, "commit_table")),
    ),
)  # fmt: skip
each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


@pytest.fixture
def topic(broker: testing.BrokerProcess) -> str:
    name = f"foreign{next(NUMBERS)}"
    send(broker, name, range(10))
    return name


@pytest.fixture(autouse=True)
def named_catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The catalog of others as pyiceberg's settings name it."""
    load = load_catalog
    known = {"theirs": {"type": "sql", "uri": f"sqlite:///{tmp_path}/theirs.db"}}
    monkeypatch.setattr(
        "pyiceberg.catalog.load_catalog", lambda name, **more: load(name, **{**known.get(name, {}), **more})
    )


def run(
    form: Foreign, broker: testing.BrokerProcess, topic: str, table: Path, columns: str = COLUMNS, *levels: str
) -> IngestReport:
    settings = IngestSettings(columns=columns, max_rows=10, partition_by=levels)
    return ingest(DirectExecutor(), broker.url, topic, form.target(table), settings)


@each_form
@pytest.mark.parametrize("levels", [(), ("carrier",)], ids=["plain", "partitioned"])
def test_rows_are_added_by_name_in_the_types_and_partitions_of_the_table(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: Foreign, levels: tuple[str, ...]
) -> None:
    table = tmp_path / "table"
    form.make(table, levels)
    assert run(form, broker, topic, table).rows == 10
    assert form.delays(table) == list(range(-OTHERS, 10))
    form.evolve(table)
    send(broker, topic, range(10, 25))
    assert run(form, broker, topic, table).rows == 15
    assert run(form, broker, topic, table).rows == 0
    assert form.delays(table) == list(range(-OTHERS, 25))
    report = optimize_table(open_table(table))
    assert report.removed_files > report.added_files or levels or form.name == "iceberg"
    vacuum_table(open_table(table), 0, is_forced=True, dry_run=False)
    assert form.delays(table) == list(range(-OTHERS, 25))
    with pytest.raises(LocalError, match=r"is (partitioned by|without partitions).*, and now it would be .* delay"):
        run(form, broker, topic, table, COLUMNS, "delay")


@pytest.mark.parametrize(
    ("form", "home", "name"),
    [pytest.param(form, *point, id=f"{form.name}-{point[1]}") for form in FORMS for point in form.crash_points],
)
def test_a_run_that_ends_anywhere_doubles_and_loses_nothing(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Foreign,
    home: type, name: str,
) -> None:  # fmt: skip
    table = tmp_path / "table"
    form.make(table, ())
    run(form, broker, topic, table)
    send(broker, topic, range(10, 20))
    with monkeypatch.context() as patch:
        patch.setattr(home, name, crash)
        with pytest.raises(Crash):
            run(form, broker, topic, table)
    run(form, broker, topic, table)
    assert form.delays(table) == list(range(-OTHERS, 20))


@each_form
@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("carrier string, delay int, timestamp, offset", "made, has no column 'offset'; add the column to it"),
        ("carrier string, delays int", r"has no column 'delays' \(did you mean 'delay'\?\)"),
        ("carrier bigint, delay int", r"has the column 'carrier' as .*, and now it would be .*; a table keeps"),
        ("carrier string, delay double", r"has the column 'delay' as .*, and now it would be .*; a table keeps"),
    ],
)
def test_columns_that_the_table_cannot_take_are_named_and_leave_no_trace(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: Foreign, columns: str, sentence: str
) -> None:
    table = tmp_path / "table"
    form.make(table, ())
    before = sorted(str(path) for path in table.rglob("*"))
    with pytest.raises(LocalError, match=sentence):
        run(form, broker, topic, table, columns)
    assert sorted(str(path) for path in table.rglob("*")) == before
    assert form.delays(table) == list(range(-OTHERS, 0))


@each_form
def test_a_partition_that_rows_do_not_have_is_named(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: Foreign
) -> None:
    table = tmp_path / "table"
    form.make(table, ("region",))
    with pytest.raises(LocalError, match=r"is partitioned by region, .*the table has no column 'region'.*; write"):
        run(form, broker, topic, table)
    assert not (table / "_lading").exists()


def delta_with(column: Field, configuration: dict[str, str] | None = None) -> Callable[[Path], None]:
    def make(table: Path) -> None:
        fields = [field("carrier", "string"), field("delay", "long"), field("timestamp", "timestamp"), column]
        made = DeltaTable.create(table, Schema(fields))
        log = table / "_delta_log" / f"{0:020d}.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "metaData" in line:
                line["metaData"]["configuration"].update(configuration or {})
        log.write_text("\n".join(json.dumps(line) for line in lines))
        assert made.version() == 0

    return make


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (delta_with(field("y", "integer", metadata={"delta.generationExpression": "YEAR(timestamp)"})),
         "the column 'y' is generated by an expression"),
        (delta_with(field("n", "long", metadata={"delta.identity.start": 1, "delta.identity.step": 1})),
         "the column 'n' is an identity column"),
        (delta_with(field("d", "string", metadata={"CURRENT_DEFAULT": "'x'"})), "the column 'd' has a default"),
        (delta_with(field("must", "string", nullable=False)), "has the column 'must', which may not be null"),
        (delta_with(field("z", "string"), {"delta.constraints.late": "delay > 3"}), "has the constraint 'late'"),
        (delta_with(field("z", "string"), {"delta.columnMapping.mode": "name"}), "maps its columns to other names"),
    ],
    ids=["generated", "identity", "default", "not-null", "constraint", "mapping"],
)  # fmt: skip
def test_columns_that_a_writer_computes_are_refused_by_name(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, make: Callable[[Path], None], sentence: str
) -> None:
    """An adopted table at version 0 keeps its log: a run that is refused deletes nothing of it."""
    table = tmp_path / "table"
    make(table)
    log = (table / "_delta_log" / f"{0:020d}.json").read_text()
    with pytest.raises(LocalError, match=sentence):
        run(FORMS[0], broker, topic, table)
    assert (table / "_delta_log" / f"{0:020d}.json").read_text() == log
    assert not (table / "_lading").exists()


def test_wider_numbers_are_followed_exactly(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    fields = [field("carrier", "string"), field("delay", "decimal(12,2)"), field("ratio", "double")]
    DeltaTable.create(table, Schema(fields))
    run(FORMS[0], broker, topic, table, 'carrier string, delay int, ratio float from "delay"')
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().sort_by("delay").to_pylist()
    assert rows[7] == {"carrier": "UA", "delay": Decimal("7.00"), "ratio": 7.0}
    assert open_table(table).is_adopted and owner(table).startswith(topic)


def test_an_own_table_follows_a_column_that_others_widen(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    settings = IngestSettings(columns="carrier string, delay int", max_rows=10)
    ingest(DirectExecutor(), broker.url, topic, f"iceberg:{table}", settings)
    catalog = load_catalog("lading", type="sql", uri=f"sqlite:///{table}/_lading/catalog.db")
    held = catalog.load_table(("lading", "table"))
    with held.update_schema() as schema:
        schema.update_column("delay", LongType())
        schema.add_column("note", DoubleType())
    send(broker, topic, range(10, 15))
    assert ingest(DirectExecutor(), broker.url, topic, f"iceberg:{table}", settings).rows == 5
    rows = catalog.load_table(("lading", "table")).scan().to_arrow()
    assert rows.schema.field("delay").type == pa.int64()
    delays: list[Any] = rows["delay"].to_pylist()
    assert sorted(delays) == list(range(15))


def test_a_table_whose_catalog_is_not_named_is_refused(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    make_iceberg(table, ())
    settings = IngestSettings(columns=COLUMNS)
    with pytest.raises(LocalError, match=r"only its catalog says .*: iceberg:CATALOG/NAMESPACE\.TABLE:"):
        ingest(DirectExecutor(), broker.url, topic, f"iceberg:{table}", settings)
    with pytest.raises(LocalError, match=r"has lake\.flights already, at .*table and not at .*other; to append to it"):
        run(FORMS[1], broker, topic, tmp_path / "other")
