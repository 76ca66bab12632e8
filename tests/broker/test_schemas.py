"""Tables of the schema registry in the catalog: what a start checks, what is lost, ids that are never used twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lading.broker.core.change import complete
from lading.broker.schemas.errors import RegistryError
from lading.broker.schemas.registry import RegisteredSchema, SchemaRegistry
from lading.broker.schemas.requests import SchemaRequest
from lading.log.catalog import Catalog
from lading.log.catalog_copy import copy_catalog
from lading.log.schema_table import SchemaTable
from lading.schemas.parsed import Reference


@contextmanager
def opened(path: Path) -> Iterator[SchemaRegistry]:
    catalog = Catalog(path)
    try:
        assert catalog.notes == []
        yield SchemaRegistry(SchemaTable(catalog))
    finally:
        catalog.close()


def register(registry: SchemaRegistry, subject: str, text: str) -> RegisteredSchema:
    return complete(registry.register(subject, SchemaRequest("AVRO", text), normalize=False))


def test_a_catalog_of_an_older_lading_gets_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    Catalog(path).close()
    with sqlite3.connect(path) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'registry%'")]
        assert names == []
    for number in range(2):
        with opened(path) as registry:
            assert register(registry, "s", '"int"').row.id == 1, number


def test_a_backup_has_the_schemas(tmp_path: Path) -> None:
    with opened(tmp_path / "catalog.sqlite") as registry:
        known = register(registry, "s", '"int"')
        (tmp_path / "copy.sqlite").write_bytes(copy_catalog(tmp_path / "catalog.sqlite").data)
    with opened(tmp_path / "copy.sqlite") as restored:
        assert restored.version("s", 1) == known


def test_ids_are_never_used_twice(tmp_path: Path) -> None:
    for number in range(1, 4):
        with opened(tmp_path / "catalog.sqlite") as registry:
            assert register(registry, "s", '"int"').row.id == number
            registry.delete_subject("s", permanent=False)
            registry.delete_subject("s", permanent=True)
            with pytest.raises(RegistryError, match=f"Schema {number} not found"):
                registry.schema(number)


def test_a_record_of_a_schema_that_is_too_long_to_be_named_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The docs say 65,536 characters, with the schemas it refers to: as long are read while clients wait."""
    long_text = '{"type":"enum","name":"Long","symbols":["A"],"doc":"%s"}' % ("x" * 65_000)
    with opened(tmp_path / "catalog.sqlite") as registry:
        alone = register(registry, "alone", '{"type":"record","name":"One","doc":"%s","fields":[]}' % ("y" * 65_536))
        register(registry, "long", long_text)
        request = SchemaRequest(
            "AVRO", '{"type":"record","name":"Two","fields":[{"name":"a","type":"Long","doc":"%s"}]}' % ("z" * 1_000),
            references=(Reference("Long", "long", 1),),
        )  # fmt: skip
        referring = complete(registry.register("Two", request, normalize=False))
        for schema in (alone, referring):
            for _ in range(2):
                problem = registry.find_frame_problem(b"\0" + schema.row.id.to_bytes(4, "big"), "t", "RECORD")
                assert problem is not None and "more than 65536 characters" in problem


def test_lookups_cost_the_same_among_many_schemas(tmp_path: Path) -> None:
    steps = []
    with opened(tmp_path / "catalog.sqlite") as registry:
        for count in (10, 1000):
            for number in range(count):
                register(registry, f"s{number}", f'{{"type":"int","n":{number}}}')
            db = registry._table._catalog._db
            counted = [0]

            def count_step(counted: list[int] = counted) -> None:
                counted[0] += 1

            # SQLite calls back at every instruction of its machine
            db.set_progress_handler(count_step, 1)
            known = registry.version("s5", 1)
            registry.schema(known.row.id)
            registry.uses(known.row.id)
            register(registry, "s5", '{"type":"int","n":5}')
            db.set_progress_handler(None, 1)
            steps.append(counted[0])
    assert steps[1] < 1.2 * steps[0], steps


@pytest.mark.parametrize("page", [3, 10, 20, 30])
def test_a_damaged_page_is_found_at_the_start_also_among_schemas(tmp_path: Path, page: int) -> None:
    path = tmp_path / "catalog.sqlite"
    with opened(path) as registry:
        for number in range(300):
            register(registry, f"s{number}", f'{{"type":"int","n":{number}}}')
    data = bytearray(path.read_bytes())
    assert len(data) > 31 * 4096
    data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)
    catalog = Catalog(path)
    try:
        assert catalog.notes
        assert list(tmp_path.glob("catalog.sqlite.damaged-1"))
        # it begins as an empty one
        assert register(SchemaRegistry(SchemaTable(catalog)), "s", '"int"').row.id == 1
    finally:
        catalog.close()
