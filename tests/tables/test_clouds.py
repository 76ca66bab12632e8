"""Tables on Google Cloud Storage and Azure, read back by readers nobody here wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.model.errors import LadingError, LocalError, RemoteError, SettingError, Unreachable
from lading.tables.formats import delta, directory, iceberg
from lading.tables.storage import object_path
from lading.tables.storage.object_path import ObjectPath

from .cloud_servers import CloudServer
from .logged_forms import Crash, crash, send
from .object_forms import FORMS, point_to
from .test_object_faults import RETRIES
from .test_objects import delays, forms, query, run, topic

__all__ = ["topic"]

COMMITS: dict[str, tuple[Any, str]] = {
    "parquet": (directory.DirectoryTable, "commit"),
    "delta": (delta.DeltaTable, "_commit_log"),
    "iceberg": (iceberg.IcebergTable, "_commit_log"),
}


@pytest.fixture(params=["gs", "abfss"])
def cloud(request: pytest.FixtureRequest) -> CloudServer:
    """The server of a scheme."""
    server: CloudServer = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
def lake(cloud: CloudServer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket of its own, and the environment that finds it."""
    point_to(cloud, tmp_path, monkeypatch)
    return cloud.create_bucket(topic)


@forms
def test_a_topic_becomes_a_table_goes_on_and_is_queried(
    broker: testing.BrokerProcess, topic: str, lake: str, tmp_path: Path, form: str
) -> None:
    table = f"{lake}/tables/{topic}"
    target, more = FORMS[form][0] + table, {"partition_by": ["carrier", "partition"]}
    send(broker, topic, range(25))
    assert run(broker, topic, target, tmp_path / "state", **more) == 25
    send(broker, topic, range(25, 30))
    assert [run(broker, topic, target, tmp_path / "state", **more) for _ in range(2)] == [5, 0]
    assert delays(form, table) == list(range(30))
    assert not list((ObjectPath.parse(table) / "_lading" / "staged").glob("*"))
    counted = query("select carrier, count(*) as n from t group by 1", target)
    assert counted == [{"carrier": "UA", "n": 30}]


@forms
def test_a_run_that_ended_in_its_commit_is_completed_and_a_second_one_refused(
    broker: testing.BrokerProcess, topic: str, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    table = f"{lake}/{topic}"
    target = FORMS[form][0] + table
    send(broker, topic, range(20))
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(*COMMITS[form], crash)
        run(broker, topic, target, tmp_path / "state")
    run(broker, topic, target, tmp_path / "state")
    assert delays(form, table) == list(range(20))
    with pytest.raises(LadingError, match="another"):
        run(broker, topic, target, tmp_path / "other")
    assert delays(form, table) == list(range(20))


def test_an_object_is_created_once_and_repeated_moves_are_no_error(lake: str) -> None:
    """Put-if-absent is ``x-goog-if-generation-match: 0`` and 412, and ``If-None-Match: *`` and 409."""
    place = ObjectPath.parse(f"{lake}/a/b")
    place.create_bytes(b"mine")
    place.create_bytes(b"mine")
    with pytest.raises(FileExistsError):
        place.create_bytes(b"another's")
    assert place.read_bytes() == b"mine"
    place.replace(place.parent / "c")
    assert [path.name for path in place.parent.iterdir()] == ["c"]
    # neither store takes the deletion of what is not there for granted, as S3 does
    place.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        place.unlink()


def test_a_large_file_arrives_in_parts(lake: str) -> None:
    place = ObjectPath.parse(f"{lake}/large")
    with place.create_file() as file:
        for _ in range(20):
            file.write(b"x" * (1 << 20))
        assert not place.exists()
        file.complete()
    assert place.stat().st_size == 20 << 20
    (place.parent / "later").write_bytes(b"1")
    assert list(place.parent.walk("large")) == [("later", 1)] and list(place.parent.walk("lat")) == [("later", 1)]
    assert list(place.parent.walk("m")) == [] and list(place.parent.walk()) == [("large", 20 << 20), ("later", 1)]


def test_what_is_missing_is_one_sentence(
    broker: testing.BrokerProcess, topic: str, cloud: CloudServer, lake: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(object_path, "RETRIES", RETRIES)
    send(broker, topic, range(1))
    state, target = tmp_path / "state", f"delta:{lake}/a"
    nowhere = lake.replace(topic, "nowhere")
    with pytest.raises(LocalError, match=f"the (bucket|container) {nowhere} does not exist; create it, or name anoth"):
        run(broker, topic, f"delta:{nowhere}/a", state)
    secret, address, *_ = cloud.environment
    with monkeypatch.context() as patch:
        patch.setenv(secret, cloud.wrong_secret)
        with pytest.raises(RemoteError, match=r"refuses these credentials.*; they come from the environment") as error:
            run(broker, topic, target, state)
        assert cloud.wrong_secret not in str(error.value)
    with monkeypatch.context() as patch:
        patch.setenv(secret, "not { what it should be")
        with pytest.raises(SettingError, match=r"address or credentials cannot be read: .*come from the env") as error_:
            run(broker, topic, target, state)
        assert "what it should be" not in str(error_.value)
    with monkeypatch.context() as patch:
        patch.delenv(secret)
        patch.delenv("AZURE_STORAGE_USE_EMULATOR", raising=False)
        with pytest.raises(LocalError, match=r"no credentials: set (GOOGLE|AZURE)_"):
            run(broker, topic, target, state)
    with monkeypatch.context() as patch:
        patch.setenv(address, "http://127.0.0.1:1")
        with pytest.raises(Unreachable, match=r"the store does not answer: .*; start it, or run this again"):
            run(broker, topic, target, state)
    assert run(broker, topic, target, state) == 1


AZURE = "not an address of an Azure container; write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"


@pytest.mark.parametrize(
    "url", ["abfss://lake/flights", "abfss://lake@account/flights", "abfss://lake@account.example.com/flights"]
)
def test_an_address_that_is_none_of_azure_is_told_as_that(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Before: "the store does not answer …; start it, or run this again"."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    send(broker, topic, range(1))
    with pytest.raises(SettingError, match=f"{url}.*: {AZURE}"):
        run(broker, topic, f"delta:{url}", tmp_path)
