"""A target of a pipeline without the form of its table names the line that works."""

from __future__ import annotations

import re

import pytest

from lading.pipeline.targets import parse_target

FORMLESS = {
    "s3a://lake/good": "a table begins with its form; write parquet:s3://lake/good",
    "s3://lake/good": "a table begins with its form; write parquet:s3://lake/good",
    "gcs://lake/good": "a table begins with its form; write parquet:gs://lake/good",
    "dbfs:/mnt/good": "a table begins with its form; write parquet:/dbfs/mnt/good",
    "hdfs://host/good": "hdfs:// is neither. Let Spark's own sink write there",
    "kafak://host/good": "did you mean kafka://?",
    "dleta:./good": "for example parquet:./good",
}


@pytest.mark.parametrize("target", FORMLESS)
def test_a_place_without_a_form_is_refused_with_the_form_that_works(target: str) -> None:
    with pytest.raises(ValueError, match=re.escape(FORMLESS[target])):
        parse_target(target)
