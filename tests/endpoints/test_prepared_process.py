"""A process that imports before it is told which broker to be, as it is in projects that use Lading."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lading import testing
from lading.model.errors import LocalError
from lading.testing.broker_fixture import LadingBroker
from lading.testing.prepared_process import PreparedProcess
from tests import forked_broker

TIMEOUT_S = 60


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The process of the next broker; tests of other files fork theirs."""
    monkeypatch.setattr(testing, "launch", subprocess.Popen)
    testing.prepare()
    yield get_prepared().process
    testing.forget_prepared()


def get_prepared() -> PreparedProcess:
    """Return what was prepared."""
    assert testing._prepared is not None
    return testing._prepared


def test_the_next_broker_is_that_process_in_the_directory_of_the_start(
    prepared: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testing.prepare()
    assert get_prepared().process is prepared
    monkeypatch.chdir(tmp_path)
    with testing.broker("relative", endpoints__admin__token="only-ours") as broker:
        assert broker.process is prepared
        assert (tmp_path / "relative" / "catalog.sqlite").exists()
        assert "durability fsync" in broker.log_file.read_text()
        for shown in ("cmdline", "environ"):
            assert b"only-ours" not in Path(f"/proc/{broker.pid}/{shown}").read_bytes()
    assert prepared.returncode == 0


@pytest.mark.turns(2, part=0)
def test_a_restart_is_prepared_while_the_broker_stops(prepared: subprocess.Popen[bytes]) -> None:
    with LadingBroker() as broker:
        assert broker.process.process is prepared
        topic = broker.create_topic()
        with broker.outage():
            later = get_prepared().process
        assert broker.process.process is later
        assert broker.messages(topic) == []


@pytest.mark.turns(2, part=0)
def test_another_environment_starts_one_afresh(
    prepared: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMPORTS_MAY_LOOK_AT_IT", "1")
    with testing.broker() as broker:
        assert broker.process is not prepared
        assert b"IMPORTS_MAY_LOOK_AT_IT=1" in Path(f"/proc/{broker.pid}/environ").read_bytes()
    assert prepared.returncode is not None


@pytest.fixture
def forked(prepared: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is started although one is prepared is forked, as in tests of other files."""
    monkeypatch.setattr(testing, "launch", forked_broker.launch)


@pytest.mark.turns(2, part=1)
@pytest.mark.usefixtures("forked")
def test_one_that_was_killed_does_no_harm(prepared: subprocess.Popen[bytes]) -> None:
    prepared.kill()
    with testing.broker() as broker:
        assert broker.process is not prepared


@pytest.mark.turns(2, part=0)
@pytest.mark.usefixtures("forked")
def test_what_another_process_prepared_is_left_to_it(prepared: subprocess.Popen[bytes]) -> None:
    get_prepared().owner = os.getppid()
    with testing.broker() as broker:
        assert broker.process is not prepared
    assert prepared.poll() is None
    prepared.kill()
    prepared.communicate()


@pytest.mark.turns(2, part=1)
def test_why_it_does_not_start_is_one_sentence(prepared: subprocess.Popen[bytes]) -> None:
    with (
        pytest.raises(LocalError, match=r"^the broker did not start: unknown setting brokr\.x \(--set\)"),
        testing.broker(settings={"brokr.x": 1}),
    ):
        pass
    assert prepared.returncode == 2


def test_it_ends_where_no_broker_is_wanted(prepared: subprocess.Popen[bytes]) -> None:
    testing.forget_prepared()
    assert prepared.returncode is not None
    testing.forget_prepared()


@pytest.mark.turns(2, part=1)
def test_it_ends_with_the_process_that_prepared_it() -> None:
    script = "from lading import testing; testing.prepare(); print(testing._prepared.process.pid, flush=True); "
    script += "import os; os._exit(0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=TIMEOUT_S)
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(int(done.stdout))
        assert select.select([descriptor], [], [], TIMEOUT_S)[0], "it has not ended"
        os.close(descriptor)


AT_READY = """
import sys
from lading.cli.main import main
from lading.cli.prepared_serve import import_broker

import_broker()
imported = set(sys.modules)

import os
import lading.serve.serve


def announce(line):
    print(sorted(set(sys.modules) - imported), flush=True)
    os._exit(0)


lading.serve.serve._print = announce
main(["serve", "--data", sys.argv[1], "--free-ports", "--output", "json", "--with-parent", "--test-faults"])
"""


@pytest.mark.turns(2, part=1)
def test_nothing_is_left_to_import(tmp_path: Path) -> None:
    wanted, holder = os.pipe()
    with os.fdopen(wanted), os.fdopen(holder, "w"):
        done = subprocess.run(
            [sys.executable, "-c", AT_READY, str(tmp_path / "data")],
            stdin=wanted, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    assert done.stdout == "[]\n", done.stderr
