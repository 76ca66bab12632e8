"""Paths that cannot be used: every command says so in one sentence, no stack is shown, and nothing is started first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lading import testing
from lading.kernels import engine
from tests import forked_command

from .conftest import Run, documents

PIPELINE = """
[source]
from = "{server}"
topic = "paths"
[good]
to = "parquet:{file}/table"
[quarantine]
to = "parquet:./ok"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file where a directory should be."""
    made = tmp_path / "file"
    made.write_text("")
    return made


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "command",
    [
        "ingest paths {file} --columns offset",
        "ingest paths {file}/table --columns offset",
        "ingest paths /proc/table --columns offset",
        "ingest paths ./table --columns offset --state {file}/state",
        "demo --no-spark --limit 10 --dir {file}",
        "demo --no-spark --limit 10 --dir {file}/demo",
        "demo --no-spark --limit 10 --dir /proc/demo",
        "spool nsq://127.0.0.1:1 paths {file}",
        "spool nsq://127.0.0.1:1 paths /proc/spool",
    ],
)
def test_a_directory_that_cannot_be_written_to_is_told(
    lading: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = lading(*command.format(file=file).split(), code=2).stderr
    assert "cannot be written to: " in said and "name a directory that you may write to" in said
    assert "starting Spark" not in said


def test_a_directory_without_rights_is_told() -> None:
    script = (
        "import os, sys\n"
        "from lading.tables.storage.files import check_directory, make_directory\n"
        "from pathlib import Path\n"
        "os.geteuid() or os.setresuid(65534, 65534, 65534)\n"
        "for check in (check_directory, make_directory):\n"
        "    try: check('the table', Path(sys.argv[1]))\n"
        "    except Exception as error: print(error)\n"
    )
    with TemporaryDirectory() as place:
        Path(place).chmod(0o555)
        done = forked_command.run([sys.executable, "-c", script, place], timeout=60)
        Path(place).chmod(0o755)
    wanted = f"the table {place}: cannot be written to: Permission denied; name a directory that you may write to"
    assert done.stdout.splitlines() == [wanted, wanted], done.stderr


def test_pipeline_check_finds_a_table_that_cannot_be_made(
    lading: Run, file: Path, broker: testing.BrokerProcess
) -> None:
    lading("topic", "create", "paths")
    place = file.with_name("flights.toml")
    place.write_text(PIPELINE.format(server=broker.url, file="./file"))
    (problem,) = documents(lading("pipeline", "check", str(place), "--output", "json", code=1))
    assert problem["part"] == "table" and f"{file}/table: cannot be written to: Not a directory" in problem["sentence"]
    assert "cannot be written to" in lading("pipeline", "run", str(place), code=2).stderr


@pytest.fixture
def kernels() -> Iterator[None]:
    """Kernels that are loaded, and a cache that is looked for again: compiling them takes ten seconds."""
    engine.load("lading.dialects.iggy.classic.kernels")
    engine._cache_dir.cache_clear()
    yield
    engine._cache_dir.cache_clear()


@pytest.mark.turns(2, part=0)
def test_doctor_tells_of_a_cache_that_cannot_be_written(lading: Run, file: Path, kernels: None) -> None:
    done = lading("doctor", "--data", str(file.parent), "--output", "json", code=1, XDG_CACHE_HOME=str(file))
    found = {one["what"]: one for one in documents(done)}
    assert not found["cache"]["well"] and "XDG_CACHE_HOME" in found["cache"]["advice"]
    assert "fsync" in found, "what comes after it is checked too"


@pytest.mark.turns(3)
@pytest.mark.parametrize("command", ["topic list", "topic list -o json", "config show"])
def test_output_onto_a_full_disk_is_one_sentence(broker: testing.BrokerProcess, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lading.cli.main", *command.split()],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=os.environ | {"LADING_SERVER": broker.url},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "lading: standard output: No space left on device\n")


@pytest.mark.turns(2, part=1)
def test_options_that_take_a_path_have_a_default_that_works(tmp_path: Path) -> None:
    """`lading doctor` and `lading demo` as a newcomer types them: without a path."""
    code = "from lading.cli import demo, doctor, main\nmain.main(['doctor'])"
    done = forked_command.run([sys.executable, "-c", code], cwd=tmp_path, timeout=90)
    assert "Traceback" not in done.stderr, done.stderr
    assert "Python" in done.stdout + done.stderr
    limited = [sys.executable, "-m", "lading.cli.main", "demo", "--no-spark", "--limit", "200"]
    done = forked_command.run(limited, cwd=tmp_path, timeout=110)
    assert done.returncode == 0, done.stderr
