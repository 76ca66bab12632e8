"""``[storage]`` on a standalone cluster: executors with an environment of their own read it for themselves."""

from __future__ import annotations

import os
import re
import sys
import time

import pytest

from lading.kernels import engine
from lading.pipeline.package import ENTRY
from tests.spark import standalone
from tests.tables.object_server import KEY, SECRET, ObjectServer

from .conftest import PARTITIONS, ROWS, Place
from .test_objects import read_all, to_bucket
from .test_storage import every_message, holders, section

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
WAIT_S = 240


def run_to_end(driver: standalone.Machine) -> tuple[int, str]:
    """Return the exit code of a driver, and what it printed."""
    before = driver.log.stat().st_size if driver.log.exists() else 0
    driver.start()
    assert driver.child is not None
    code = driver.child.wait(WAIT_S)
    return code, driver.log.read_bytes()[before:].decode(errors="replace")


def test_executors_follow_references_and_nothing_of_spark_has_the_secret(
    place: Place, object_server: ObjectServer, bucket: str, full: bool
) -> None:
    if not full:
        pytest.skip("a cluster takes a minute; LADING_TEST_FULL=1 starts it")
    begun = time.monotonic()
    (place.base / "secrets").mkdir()
    secret = place.base / "secrets" / "lake"
    secret.write_text(SECRET)
    storage = section(object_server, access_key_id_env="LAKE_KEY", secret_access_key_file=str(secret))
    file = place.write(lambda text: to_bucket(text, "delta", bucket) + storage)
    entry = place.base / "run_pipeline.py"
    entry.write_text(ENTRY)
    (place.base / "events").mkdir()
    shared = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "XDG_CACHE_HOME": str(engine.cache_dir().parents[1]),
    }
    conf = {
        "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (place.base / "events").as_uri(), "spark.task.maxFailures": "1",
        "spark.eventLog.compress": "false", "spark.broadcast.compress": "false",
        "spark.executor.memory": "512m", "spark.driver.memory": "512m",
        **{f"spark.executorEnv.{name}": value for name, value in shared.items()},
    }  # fmt: skip
    with standalone.running(place.base / "cluster", workers=1) as cluster:
        driver = cluster.driver(
            place.base / "driver",
            [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")] + [str(entry), str(file)],
            {**shared, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": sys.executable, "LAKE_KEY": KEY},
        )
        code, told = run_to_end(driver)
        found = re.search(
            r"\[storage\]\.access_key_id_env: the variable 'LAKE_KEY' is not set in the environment; set it\. "
            r"That was process (\d+) on \S+, which opens s3://",
            told,
        )
        assert code == 2 and found, told[-3000:]
        assert driver.child is not None and int(found[1]) != driver.child.pid
        assert "Traceback" not in told, told[-3000:]
        (worker,) = cluster.workers
        worker.kill()
        worker.told["LAKE_KEY"] = KEY
        worker.start("Successfully registered with master")
        code, told = run_to_end(driver)
        assert code == 0, told[-3000:]
    assert read_all("delta", bucket) == every_message()
    logs = [path for path in (place.base / "events").rglob("*") if path.is_file() and path.stat().st_size]
    assert len(logs) >= 2 and holders("LAKE_KEY", place.base / "events")
    # event logs, logs, what Spark keeps on disk, the state
    assert holders(SECRET, place.base) == [secret]
    assert not holders(SECRET, object_server.buckets / bucket.partition("://")[2])
    files = sum(path.is_file() for path in place.base.rglob("*"))
    print(
        f"\n{PARTITIONS * ROWS:,} messages by an executor of its own, each once; the secret is in 1 of {files} files; "
        f"{time.monotonic() - begun:.0f} s"
    )
