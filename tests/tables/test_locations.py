"""Where a table lies: schemes of other systems are translated or refused, and never name a directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lading.model.errors import SettingError
from lading.tables.formats.registry import FORMATS, split_target
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.plan.options import refuse_batch_options
from lading.tables.storage.files import table_location
from lading.tables.storage.object_path import ObjectPath

from .direct import DirectExecutor

REFUSED = {
    "dbfs:/mnt/good": "write /dbfs/mnt/good",
    "dbfs://mnt/good": "write /dbfs/mnt/good",
    "s3a://lake/good": "write s3://lake/good",
    "s3n://lake/good": "write s3://lake/good",
    "gcs://lake/good": "write gs://lake/good",
    "abfs://c@account.dfs.core.windows.net/good": "write abfss://c@account.dfs.core.windows.net/good",
    "hdfs:/good": "hdfs: is neither. Let Spark's own sink",
    "hdfs://host/good": "hdfs:// is neither. Let Spark's own sink",
    "maprfs:///good": "maprfs:// is neither",
    "file:good": "a file URL has an absolute path; write good",
    "file://host/good": "name a directory",
    "C:/good": "c: is neither. For a directory of this name write ./C:/good",
    "dleta:./good": "dleta: is neither. For a directory of this name write ./dleta:./good",
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("place", REFUSED)
def test_schemes_of_others_are_refused_with_the_form_that_works(form: str, place: str) -> None:
    if form == "iceberg" and place.startswith("dleta"):
        pytest.skip("a name before the colon is a catalog's")
    with pytest.raises(SettingError, match=re.escape(REFUSED[place])):
        table_location("table", split_target(f"{form}:{place}")[1])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("place", ["file:/mnt/a%20b", "file:///mnt/a%20b", "file://localhost/mnt/a%20b", "/mnt/a b"])
def test_file_urls_are_directories(form: str, place: str) -> None:
    assert table_location("table", split_target(f"{form}:{place}")[1]) == Path("/mnt/a b")


def test_colons_are_legal_elsewhere() -> None:
    assert table_location("table", "./day:1") == Path("day:1").absolute()
    assert table_location("table", "/a/b:c") == Path("/a/b:c")
    assert table_location("table", "s3://lake/a:b") == ObjectPath("s3://lake", "a:b")
    assert split_target("iceberg:prod/lake.flights:./f") == ("iceberg:prod/lake.flights", "./f")


@pytest.mark.parametrize("form", FORMATS)
def test_columns_that_differ_in_case_alone_are_refused_by_every_form(form: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="columns 'tenant' and 'Tenant': they differ only in case"):
        ingest(
            DirectExecutor(),
            "lading://127.0.0.1:1",
            "orders",
            f"{form}:{tmp_path / 't'}",
            IngestSettings(columns="tenant string, Tenant string"),
        )
    assert not (tmp_path / "t").exists()


def test_a_stream_does_not_ignore_where_it_is_to_end() -> None:
    refuse_batch_options({"from": "./data", "startingoffsets": "latest"})
    with pytest.raises(SettingError, match=r"'endingoffsets': not supported by readStream; .* with spark.read"):
        refuse_batch_options({"from": "./data", "endingoffsets": '{"0": 10}'})
