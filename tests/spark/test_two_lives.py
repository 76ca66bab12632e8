"""A driver that ended after its tasks had sent: the next one loses nothing of the batch, and doubles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading import testing
from lading.client.bulk import read_arrow
from lading.transports.open import open_transport
from tests.spark.two_lives import ROWS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]


def test_a_driver_that_ends_before_its_commit_loses_nothing(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    transport = open_transport(broker.url)
    transport.create_topic("lives", 2)
    transport.close()
    (tmp_path / "source").mkdir()
    payloads = [b"%d" % number for number in range(ROWS)]
    pq.write_table(pa.table({"payload": pa.array(payloads, pa.binary())}), tmp_path / "source" / "rows.parquet")
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.two_lives", broker.url, "lives", str(tmp_path)],
        capture_output=True, text=True, timeout=550, check=False, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "raise ended finished"
    found: Any = read_arrow(broker.url, "lives", "payload").column(0).to_pylist()
    assert sorted(found) == sorted(payloads)
