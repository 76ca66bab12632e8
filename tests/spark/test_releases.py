"""Pipelines, ingests and the data source under the releases of Spark that platforms have, unmodified from the registry.

A release is put before the installed one on the path of a run of its own, in which existing suites run as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from . import releases
from .conftest import ROOT

RUN_TIMEOUT_S = 1_800
TABLES = ("tests/pipeline/test_spark.py", "tests/spark/test_tables.py")
SOURCE = ("tests/spark/test_every_release.py", "tests/spark/test_writing.py", "tests/pipeline/test_sql.py")
# its second half reads the topic by the data source
NEEDS_SOURCE = "tests/spark/test_tables.py::test_a_topic_becomes_a_table_and_goes_on"
RELEASES = {
    "3.5.7": [*TABLES, "--deselect", NEEDS_SOURCE],
    "4.0.1": [*TABLES, *SOURCE],
    "4.1.1": [*TABLES, *SOURCE, "tests/spark/test_functions.py"],
}
"""What runs under each. The newest release is the installed one."""

pytestmark = [pytest.mark.spark, pytest.mark.timeout(releases.INSTALL_TIMEOUT_S + RUN_TIMEOUT_S)]


@pytest.mark.parametrize("release", RELEASES)
def test_the_suites_hold_under_a_release(release: str, full: bool) -> None:
    if not full:
        pytest.skip("several hundred megabytes and minutes for each release: make test-full")
    try:
        packages = releases.install(release)
    except releases.Unavailable as missing:
        pytest.skip(str(missing))
    path = os.pathsep.join([str(packages), str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--timeout=300", *RELEASES[release]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": path, "LADING_TEST_FULL": ""},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    print(f"Spark {release}: {re.findall(r'=+ (.*) =+', done.stdout)[-1]}")
