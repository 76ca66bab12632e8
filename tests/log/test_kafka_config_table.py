"""The table of Kafka's dynamic configs in a catalog that an older Lading wrote."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from lading.log.catalog import Catalog
from lading.log.catalog_schema import CatalogRecordKind
from lading.log.kafka_config_table import KafkaConfigTable
from lading.model.errors import Reason, Refusal


def test_a_full_disk_stops_no_start_with_an_older_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: CatalogRecordKind) -> None:
        raise Refusal(Reason.DISK_FULL, "the disk is full")

    with closing(Catalog(tmp_path / "catalog.sqlite")) as catalog:
        # a new catalog is as one of an older Lading is: each module creates its table at its first use
        with monkeypatch.context() as full:
            full.setattr(catalog, "write", refuse)
            table = KafkaConfigTable(catalog)
            assert (table.find(4, "1"), table.list_names(4), table.count()) == ({}, [], 0)
            table.replace(4, "1", {})
            with pytest.raises(Refusal, match="full"):
                table.replace(4, "1", {"background.threads": "2"})
        table.replace(4, "1", {"background.threads": "2"})
        assert (table.find(4, "1"), table.list_names(4), table.count()) == ({"background.threads": "2"}, ["1"], 1)
        assert KafkaConfigTable(catalog).count() == 1
