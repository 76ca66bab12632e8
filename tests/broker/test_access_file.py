"""``access.json`` damaged, missing or exchanged: no broker that had users starts without them, or with other ones."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lading.backup.back_up import back_up
from lading.backup.restore import restore
from lading.backup.store import DirectoryStore
from lading.broker.core.access import credentials as credentials_module
from lading.broker.core.access.quotas import Quota
from lading.broker.core.change import complete
from lading.endpoints.base.broker_settings import report_access_file
from lading.log.access_file import AccessFile
from lading.model.errors import CorruptLog, LocalError, SettingError
from lading.serve.serve import change_access, open_access, reset_access
from lading.settings.loading import load
from tests.broker.room import NOW, opened, topic_of

PASSWORD = "a password that nobody guesses"
ACCESS, MARK, CATALOG = "access.json", "rights.serial", "catalog.sqlite"
OLD = Path(__file__).parents[1] / "formats"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials_module, "SCRYPT_LOG2_N", 4)
    monkeypatch.setattr(credentials_module, "SCRAM_ITERATIONS", 4096)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that had users, one of whom was deleted; it is stopped. ``old`` is the file before."""
    broker = opened(tmp_path / "data")
    topic_of(broker)
    complete(broker.access.add_user("root", PASSWORD, now_us=NOW, is_administrator=True))
    complete(broker.access.add_user("mallory", PASSWORD, now_us=NOW, is_administrator=True))
    shutil.copy(tmp_path / "data" / ACCESS, tmp_path / "old")
    complete(broker.access.delete_user("mallory"))
    broker.stop()
    return tmp_path / "data"


def delete(data: Path) -> None:
    (data / ACCESS).unlink()


def delete_with_the_catalog(data: Path) -> None:
    """Even so one file says that there were users."""
    delete(data)
    for path in data.glob("catalog.sqlite*"):
        path.unlink()


def delete_with_the_mark(data: Path) -> None:
    """Even so the catalog knows that there were users."""
    delete(data)
    (data / MARK).unlink()


def delete_with_a_damaged_mark(data: Path) -> None:
    delete(data)
    (data / CATALOG).unlink()
    (data / MARK).write_bytes(b"\0" * 20)


def empty(data: Path) -> None:
    (data / ACCESS).write_bytes(b"")


def cut_in_half(data: Path) -> None:
    content = (data / ACCESS).read_bytes()
    (data / ACCESS).write_bytes(content[: len(content) // 2])


def put_an_older_one_back(data: Path) -> None:
    shutil.copy(data.parent / "old", data / ACCESS)


def put_one_without_checksum_there(data: Path) -> None:
    """Of a Lading before checksums: taken once, and not when a later file was there."""
    shutil.copy(OLD / "access_v3" / ACCESS, data / ACCESS)


def take_the_checksum_away(data: Path) -> None:
    document = json.loads((data / ACCESS).read_bytes())
    del document["checksum"]
    (data / ACCESS).write_text(json.dumps(document))


def make_a_directory(data: Path) -> None:
    delete(data)
    (data / ACCESS).mkdir()


DAMAGES: list[Callable[[Path], None]] = [
    delete, delete_with_the_catalog, delete_with_the_mark, delete_with_a_damaged_mark, empty, cut_in_half,
    put_an_older_one_back, put_one_without_checksum_there, take_the_checksum_away, make_a_directory,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_a_broker_that_had_users_starts_only_with_them(data: Path, damage: Callable[[Path], None]) -> None:
    damage(data)
    for _ in range(2):
        with pytest.raises(CorruptLog, match=rf"access\.json is .*lading user reset --data {data}"):
            opened(data)
    with pytest.raises(CorruptLog, match="lading user reset"):
        change_access(data, lambda access: access.add_user("eve", PASSWORD, now_us=NOW, is_administrator=True))
    # an address beyond the loopback is for the broker to refuse, which names the file; without a trace beside the
    # catalog it is refused before that
    sets = [f"data={data}", "endpoints.kafka.address=0.0.0.0:9092"]
    if damage is not delete_with_the_mark:
        assert load(None, sets, {}).settings.data == data
    # told so by name, it starts without users
    assert reset_access(data, None, "access.json.until-now") == 0
    broker = opened(data)
    assert not broker.access.is_enabled
    assert len(list(broker.topology.topics())) == 1
    broker.stop()
    with pytest.raises(SettingError, match="can be reached from other machines"):
        load(None, sets, {})
    # and the file of before the reset is one that was put back
    complete_users(data)
    if (data / "access.json.until-now").is_file():
        (data / "access.json.until-now").replace(data / ACCESS)
        with pytest.raises(CorruptLog):
            opened(data)


def complete_users(data: Path) -> None:
    change_access(data, lambda access: access.add_user("root", PASSWORD, now_us=NOW, is_administrator=True))
    broker = opened(data)
    assert set(broker.access.table.users) == {"root"}
    broker.stop()


def test_a_flipped_bit_is_never_another_user_or_rule(data: Path, full: bool) -> None:
    content = (data / ACCESS).read_bytes()
    places = range(8 * len(content))
    for place in places if full else random.Random(1).sample(places, 500):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        (data / ACCESS).write_bytes(damaged)
        with pytest.raises(CorruptLog):
            AccessFile(data).load()
    (data / ACCESS).write_bytes(content)
    with open_access(data) as access:
        assert set(access.table.users) == {"root"}


def test_a_copy_of_a_backup_counts_if_it_is_named(data: Path) -> None:
    delete(data)
    with pytest.raises(LocalError, match="does not exist"):
        reset_access(data, data / "nothing", "aside")
    (data.parent / "damaged").write_bytes((data.parent / "old").read_bytes()[:-9])
    with pytest.raises(CorruptLog, match="damaged"):
        reset_access(data, data.parent / "damaged", "aside")
    assert reset_access(data, data.parent / "old", "aside") == 2
    broker = opened(data)
    assert set(broker.access.table.users) == {"root", "mallory"}
    broker.stop()
    with pytest.raises(LocalError, match="does not exist"):
        reset_access(data.parent / "nowhere", None, "aside")
    assert not (data.parent / "nowhere").exists()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_without_checksum_is_taken_once_and_gets_one(tmp_path: Path, version: int) -> None:
    shutil.copytree(OLD / f"access_v{version}", tmp_path / "data")
    broker = opened(tmp_path / "data")
    table = broker.access.table
    broker.stop()
    document = json.loads((tmp_path / "data" / ACCESS).read_bytes())
    assert (document["version"], document["serial"], len(document["checksum"])) == (4, 1, 8)
    broker = opened(tmp_path / "data")
    assert broker.access.table == table
    broker.stop()
    shutil.copy(OLD / f"access_v{version}" / ACCESS, tmp_path / "data" / ACCESS)
    with pytest.raises(CorruptLog, match="is an older copy"):
        opened(tmp_path / "data")


def test_a_user_may_be_called_checksum(tmp_path: Path) -> None:
    """Its name alone does not make an old file one that has a checksum."""
    document = json.loads((OLD / "access_v1" / ACCESS).read_bytes())
    document["users"][1]["name"] = document["tokens"][0]["owner"] = "checksum"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ACCESS).write_text(json.dumps(document))
    broker = opened(tmp_path / "data")
    assert "checksum" in broker.access.table.users
    broker.stop()


def test_a_kill_between_the_places_is_no_loss(data: Path) -> None:
    """The file is written first: a newer one than the mark and the catalog know is the last one."""
    mark, catalog = (data / MARK).read_bytes(), (data / CATALOG).read_bytes()
    change_access(data, lambda access: access.add_user("ann", PASSWORD, now_us=NOW))
    (data / MARK).write_bytes(mark)
    (data / CATALOG).write_bytes(catalog)
    broker = opened(data)
    assert set(broker.access.table.users) == {"root", "ann"}
    broker.stop()
    # both know it from then on
    for other in (MARK, CATALOG):
        kept = (data / other).read_bytes()
        (data / other).unlink()
        content = (data / ACCESS).read_bytes()
        delete(data)
        with pytest.raises(CorruptLog, match="is missing"), open_access(data):
            pass
        (data / ACCESS).write_bytes(content)
        (data / other).write_bytes(kept)


def test_a_restored_directory_has_its_users(data: Path) -> None:
    store = DirectoryStore(data.parent / "backups")
    assert back_up(data, store).notes == []
    restore(store, data.parent / "restored")
    broker = opened(data.parent / "restored")
    assert set(broker.access.table.users) == {"root"}
    broker.stop()
    delete(data.parent / "restored")
    with pytest.raises(CorruptLog, match="is missing"):
        opened(data.parent / "restored")


@pytest.mark.parametrize("damage", [delete, cut_in_half], ids=lambda one: one.__name__)
def test_a_backup_without_users_says_so(data: Path, damage: Callable[[Path], None]) -> None:
    damage(data)
    (note,) = back_up(data, DirectoryStore(data.parent / "backups")).notes
    assert "access.json is" in note and "keep the backups that were made before it" in note


def test_a_running_broker_keeps_its_users_and_says_what_is_wrong(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = opened(data)
    report_access_file(broker.access)
    assert caplog.records == []
    for damage, problem in (
        (cut_in_half, "is damaged"), (put_an_older_one_back, "is an older copy"), (delete, "is missing"),
    ):  # fmt: skip
        caplog.clear()
        damage(data)
        report_access_file(broker.access)
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert f"access.json {problem}" in record.message and "keeps the users and rights" in record.message
        assert set(broker.access.table.users) == {"root"}
    # the next change writes all of it again
    complete(broker.access.add_user("ann", PASSWORD, now_us=NOW))
    caplog.clear()
    report_access_file(broker.access)
    assert caplog.records == []
    broker.stop()
    broker = opened(data)
    assert set(broker.access.table.users) == {"root", "ann"}
    broker.stop()


def test_quotas_alone_are_no_users(tmp_path: Path) -> None:
    """A file is made for them, too; until now it let an address beyond the loopback count as closed to strangers."""
    broker = opened(tmp_path)
    complete(broker.access.set_quotas({"*": Quota(1e6)}))
    broker.stop()
    with pytest.raises(SettingError, match="can be reached from other machines"):
        load(None, [f"data={tmp_path}", "endpoints.kafka.address=0.0.0.0:9092"], {})
