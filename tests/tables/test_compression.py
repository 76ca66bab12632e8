"""Every form of table writes its files with the codec that is set."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pyarrow.parquet as pq
import pytest

from lading import testing
from lading.pipeline.sections import Compression
from lading.tables.formats.registry import FORMATS
from lading.tables.ingest import IngestSettings, ingest

from .direct import DirectExecutor
from .logged_forms import NUMBERS, send

AS_PARQUET_NAMES_IT = {"none": "UNCOMPRESSED"}
"""Where Parquet's own word is another one (parquet-format, Compression.md)."""


@pytest.mark.turns(3)
@pytest.mark.parametrize("codec", get_args(Compression))
@pytest.mark.parametrize("form", FORMATS)
def test_files_have_the_codec_that_is_set(broker: testing.BrokerProcess, tmp_path: Path, form: str, codec: str) -> None:
    topic, table = f"codec{next(NUMBERS)}", tmp_path / "table"
    send(broker, topic, range(20))
    ingest(
        DirectExecutor(),
        broker.url,
        topic,
        f"{form}:{table}",
        IngestSettings(columns="offset, carrier string", compression=codec),
    )
    files = [path for path in table.rglob("*.parquet") if not path.is_relative_to(table / "_delta_log")]
    assert files
    for file in files:
        metadata = pq.ParquetFile(file).metadata
        codecs = {metadata.row_group(0).column(number).compression for number in range(metadata.num_columns)}
        assert codecs == {AS_PARQUET_NAMES_IT.get(codec, codec.upper())}
