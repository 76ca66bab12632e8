"""Data belong to the user who runs the broker: modes whatever the umask, and a lock that cannot be deleted."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lading
from lading import testing
from lading.backup.back_up import back_up
from lading.backup.restore import restore
from lading.backup.store import DirectoryStore
from lading.broker.core.access.quotas import Quota
from lading.broker.core.change import complete
from lading.cli.app import build_app
from lading.mirror.state import MirrorState
from lading.model.errors import LocalError
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.run import run
from lading.pipeline.settings import PipelineSettings
from lading.runtime.owned_directory import lock_data_directory
from lading.serve.serve import reset_access
from lading.spool import spool_log
from lading.tables.local import LocalExecutor
from lading.topic_tables.file_facts import FileFacts
from lading.topic_tables.files import FileCache
from lading.topic_tables.keys import load_secret
from lading.topic_tables.snapshots import TableHistory
from lading.verify.state import PartitionState, VerifyState
from tests.broker.room import fill, opened, topic_of
from tests.listeners import ADMIN_ONLY


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=lambda mask: f"umask {mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def wide(directory: Path) -> list[str]:
    """What other users may look into."""
    found = [directory, *directory.rglob("*")]
    return [str(path) for path in found if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)]


@pytest.mark.usefixtures("umask")
def test_nothing_that_a_broker_writes_is_for_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    running = testing.start(data, ADMIN_ONLY, tmp_path / "stderr.log")
    try:
        with lading.Producer(running.url) as producer:
            producer.send("t", b"secret")
        assert wide(data) == []
    finally:
        running.stop()
        assert running.process.stdout is not None
        running.process.stdout.close()
    assert wide(data) == []


@pytest.mark.usefixtures("umask")
def test_nothing_that_the_log_writes_is_for_others(tmp_path: Path) -> None:
    broker = opened(tmp_path / "data")
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 2)
    broker.states.set(partition, [(0, 1)], 20, now_us=0)
    broker.stop()
    spool_log.Spool(tmp_path / "spool", "q").close()
    assert wide(tmp_path / "data") == [] and wide(tmp_path / "spool") == []


@pytest.mark.usefixtures("umask")
def test_nothing_that_a_backup_or_a_restore_writes_is_for_others(tmp_path: Path) -> None:
    broker = opened(tmp_path / "data")
    fill(broker, topic_of(broker).partition(0), 2)
    complete(broker.access.set_quotas({"*": Quota(1e6)}))
    broker.stop()
    store = DirectoryStore(tmp_path / "shelf" / "backups")
    back_up(tmp_path / "data", store)
    restore(store, tmp_path / "new" / "restored")
    assert wide(tmp_path / "data") == wide(tmp_path / "shelf") == wide(tmp_path / "new") == []
    reset_access(tmp_path / "data", None, "access.json.until-now")
    assert wide(tmp_path / "data") == []


@pytest.mark.usefixtures("umask")
def test_no_certificate_and_no_mirror_is_for_others(tmp_path: Path) -> None:
    assert CliRunner().invoke(build_app(), ["cert", str(tmp_path / "keys" / "certs")]).exit_code == 0
    MirrorState(tmp_path / "mirrors" / "one").close()
    assert wide(tmp_path / "keys") == wide(tmp_path / "mirrors") == []


@pytest.mark.usefixtures("umask")
def test_no_state_of_a_verification_and_no_table_of_a_topic_is_for_others(tmp_path: Path) -> None:
    state = tmp_path / "verified" / "state.json"
    state.parent.mkdir()
    state.parent.chmod(0o700)
    # what another user puts into a shared directory under the name of the draft is not written through
    victim = tmp_path / "victim"
    victim.touch()
    for suffix in (".new", ".tmp"):
        state.with_name(state.name + suffix).symlink_to(victim)
    VerifyState(state, {"a": "x", "b": "y"}).save({0: PartitionState(1, 1, 1, 1)})
    state.with_name(state.name + ".tmp").unlink()
    assert victim.stat().st_size == 0

    load_secret(state.parent / "secret")
    TableHistory.open(state.parent / "tables" / "of" / "one", "u", 1).use_view("carrier string", ())
    cache = FileCache(state.parent / "files" / "of", 1)
    cache.get("t/one.parquet", lambda file: FileFacts(file.write(b"x"))).result()
    cache.close()
    assert wide(state.parent) == []


def test_a_verification_keeps_the_rights_of_nobody_else(tmp_path: Path) -> None:
    """A state that was made wide is the owner's again with the next save, as every private file that is replaced."""
    state = tmp_path / "state.json"
    VerifyState(state, {}).save({})
    state.chmod(0o644)
    VerifyState(state, {}).save({})
    assert stat.S_IMODE(state.stat().st_mode) == 0o600


def test_nothing_of_a_pipeline_but_its_tables_is_for_others(tmp_path: Path, umask: int) -> None:
    """The umask says who may read a table, as with every program that writes one; quarantine and state are private."""
    if umask == 0o777:
        pytest.skip("a table that its owner may not write cannot be one")
    broker = opened(tmp_path / "data")
    fill(broker, topic_of(broker).partition(0), 2)
    broker.stop()
    file = tmp_path / "flights.toml"
    file.write_text(
        f"[source]\nfrom = '{tmp_path / 'data'}'\ntopic = 's.t'\n[quality]\nmax_failure_ratio = 1.0\n"
        "[headers]\ncarrier = { type = 'string', values = ['UA'] }\n[good]\nto = 'delta:good'\n"
    )
    settings = PipelineSettings.load(file)
    with contextlib.closing(LocalExecutor(1)) as executor:
        run(lambda: pytest.fail("needs no Spark"), settings, executor=executor)
    ledger = Quarantine(settings).ledger
    with ledger.lock():
        ledger.park([("t", 0, 1, 1)])
    quarantine, own = tmp_path / "good_quarantine", tmp_path / "good" / "_lading"
    assert stat.S_IMODE(quarantine.stat().st_mode) == stat.S_IMODE(own.stat().st_mode) == 0o700
    assert wide(own) == wide(quarantine / "_lading") == []
    assert stat.S_IMODE((tmp_path / "good").stat().st_mode) == 0o777 & ~umask


def test_a_deleted_lock_file_lets_nobody_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with lock_data_directory(data):
        (data / "lock").unlink()
        with pytest.raises(LocalError, match="is in use by the broker"), lock_data_directory(data):
            pass
    with lock_data_directory(data):
        pass


def test_a_deleted_lock_file_lets_nobody_into_a_spool(tmp_path: Path) -> None:
    with spool_log.lock_spool(tmp_path / "spool"):
        (tmp_path / "spool" / spool_log.LOCK_FILE).unlink()
        with pytest.raises(spool_log.SpoolLocked), spool_log.lock_spool(tmp_path / "spool"):
            pass


def test_a_directory_that_others_may_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    with lock_data_directory(tmp_path / "data"):
        pass
    assert "other users may read it (mode 0755)" in caplog.text and "chmod go-rwx" in caplog.text
