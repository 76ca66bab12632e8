"""``[storage]`` of a pipeline: credentials by reference, read by each process, never written and never sent."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.utils.config import Config
from pyspark import cloudpickle

from lading.cli.main import main
from lading.model.errors import LocalError, RemoteError, SettingError
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.run import run
from lading.pipeline.settings import PipelineSettings
from lading.spark.tasks import _make_stage
from lading.tables.commit.table_commit import StagedRange
from lading.tables.executor import Executor, Stage
from lading.tables.local import LocalExecutor
from lading.tables.plan.ranges import OffsetRange
from lading.tables.storage.object_path import ObjectPath, storage_options
from lading.tables.storage.storage import StorageReferences
from tests.tables.cloud_servers import CloudServer
from tests.tables.object_forms import FORMS, point_to, read_parquet
from tests.tables.object_server import KEY, REGION, SECRET, ObjectServer, run_object_server

from .conftest import PARTITIONS, ROWS, Place
from .direct import checked, no_session
from .flights import fate
from .test_objects import read_all, to_bucket

HIDDEN = "correct-horse-battery"
NEXT = "staple-of-tomorrow"
OTHERS = {
    "AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "else", "AWS_REGION": "mars-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
}  # fmt: skip
"""What the environment says of another store, which ``[storage]`` counts more than."""


class NotingExecutor(LocalExecutor):
    """Tasks in a process of their own, and what was sent to it, as Spark and Python pickle it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.tasks: list[bytes] = []

    def write(self, stage: Stage, ranges: Sequence[OffsetRange]) -> list[StagedRange]:
        self.tasks += [pickle.dumps(stage), cloudpickle.dumps(_make_stage(stage))]  # type: ignore[no-untyped-call]
        return super().write(stage, ranges)


@pytest.fixture
def executor() -> Iterator[NotingExecutor]:
    """A worker."""
    with closing(NotingExecutor()) as made:
        yield made


def section(server: ObjectServer, **more: str) -> str:
    """A ``[storage]`` for a server: its address, and what is given."""
    rows = {"endpoint": server.url, "region": REGION, **more}
    return "\n[storage]\n" + "".join(f'{name} = "{value}"\n' for name, value in rows.items())


def every_message() -> dict[tuple[int, int], list[str]]:
    return {(partition, row): [fate(row)] for partition in range(PARTITIONS) for row in range(ROWS)}


def run_once(file: Path, executor: Executor) -> int:
    """What ``lading pipeline run --local`` does; returns how many messages were read."""
    return run(no_session, PipelineSettings.load(file), executor=executor)["read"]


def holders(secret: str, place: Path) -> list[Path]:
    """The files below a directory that have a text in them."""
    return [path for path in place.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.mark.turns(3)
@pytest.mark.parametrize("form", FORMS)
def test_references_are_enough_in_every_process_and_in_none_of_the_files(
    place: Place, object_server: ObjectServer, bucket: str, executor: NotingExecutor, form: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Before, a file could not say it, and credentials of another store in the environment were used."""
    secrets = place.base / "secrets"
    secrets.mkdir()
    (secrets / "secret").write_text(f"{SECRET}\n")
    storage = section(
        object_server, access_key_id="${LAKE_KEY}", secret_access_key_file="secrets/secret"
    )  # fmt: skip
    file = place.write(lambda text: to_bucket(text, form, bucket) + storage)
    with monkeypatch.context() as patch, caplog.at_level(logging.DEBUG):
        for name, value in {**OTHERS, "LAKE_KEY": KEY}.items():
            patch.setenv(name, value)
        assert run_once(file, executor) == PARTITIONS * ROWS
        rows = list(Quarantine(PipelineSettings.load(file)).rows())
    assert read_all(form, bucket) == every_message()
    assert len(rows) == sum(kind[0] not in ("late", "flights") for kind in every_message().values())
    assert executor.tasks
    for task in executor.tasks:
        assert b"LAKE_KEY" in task and SECRET.encode() not in task
    assert holders(SECRET, place.base) == [secrets / "secret"]
    assert not holders(SECRET, object_server.buckets / bucket.partition("://")[2])
    assert SECRET not in caplog.text and holders("LAKE_KEY", place.base) == [file]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scheme", ["gs", "abfss"])
def test_references_are_enough_for_other_stores(
    place: Place, executor: NotingExecutor, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
    scheme: str, form: str,
) -> None:  # fmt: skip
    server: CloudServer = request.getfixturevalue(f"{scheme}_server")
    bucket = server.create_bucket(f"storage-{form}")
    (place.base / "secret").write_text(server.secret)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{place.base}/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    for name, value in server.environment.items():
        # Azurite is told to deltalake by the environment alone
        if form == "delta" and name in ("AZURITE_BLOB_STORAGE_URL", "AZURE_STORAGE_USE_EMULATOR"):
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name, raising=False)
    storage = f'\n[storage]\nendpoint = "{server.url}"\n{server.secret_name}_file = "secret"\n'
    file = place.write(lambda text: to_bucket(text, form, bucket) + storage)
    assert run_once(file, executor) == PARTITIONS * ROWS
    assert executor.tasks and not any(server.secret.encode() in task for task in executor.tasks)
    assert holders(server.secret, place.base) == [place.base / "secret"]
    (place.base / "secret").write_text(server.wrong_secret)
    place.transport.send(place.topic, 0, _row())
    with pytest.raises(RemoteError, match=r"refuses these credentials.*; they come from \[storage\] of "):
        run_once(file, executor)
    with monkeypatch.context() as patch:
        point_to(server, place.base, patch)
        assert read_all(form, bucket) == every_message()


@pytest.mark.turns(2)
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_secret_that_is_rotated_counts_at_once(
    place: Place, executor: NotingExecutor, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same driver and the same worker go on; before, the store was kept as it was opened first."""
    secret = place.base / "secret"
    secret.write_text(HIDDEN)
    with ExitStack() as first:
        server = first.enter_context(run_object_server(tmp_path / "store", key=KEY, secret=HIDDEN))
        bucket = server.create_bucket("rotated")
        storage = section(server, access_key_id="${LAKE_KEY}", secret_access_key_file=str(secret))
        monkeypatch.setenv("LAKE_KEY", KEY)
        file = place.write(lambda text: to_bucket(text, form, bucket) + storage)
        assert run_once(file, executor) == PARTITIONS * ROWS
    port = urlsplit(server.url).port or 0
    with run_object_server(tmp_path / "store", port, KEY, NEXT):
        place.transport.send(place.topic, 0, _row())
        with pytest.raises(RemoteError, match=r"refuses these credentials.*; they come from \[storage\] of ") as error:
            run_once(file, executor)
        assert HIDDEN not in str(error.value)
        secret.write_text(NEXT)
        assert run_once(file, executor) == 1
        with monkeypatch.context() as patch:
            point_to(server, place.base, patch)
            patch.setenv("AWS_SECRET_ACCESS_KEY", NEXT)
            assert len(FORMS[form][1](f"{bucket}/flights")) == 1 + sum(
                kind == ["flights"] for kind in every_message().values()
            )
    assert holders(NEXT, place.base) == [secret]


def _row() -> Any:
    from .flights import messages

    return messages(0, 1)


def test_the_cache_of_stores_does_not_show_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lading.tables.storage import storage

    monkeypatch.setenv("LAKE_SECRET", HIDDEN)
    path = ObjectPath.parse("s3://lake/flights")
    references = _parse(tmp_path, access_key_id_env="LAKE_SECRET", secret_access_key_env="LAKE_SECRET")
    references.bind([path])
    try:
        first = storage.find_access(f"{path}/a.parquet")
        assert HIDDEN not in repr(first) + repr(references) + repr(path) and first == storage.find_access(str(path))
        assert first.options["aws_secret_access_key"] == HIDDEN
        monkeypatch.setenv("LAKE_SECRET", NEXT)
        assert first != storage.find_access(str(path))
        assert storage.find_access("s3://lake/flights2").options == {}
    finally:
        _parse(tmp_path).bind([path])
    assert storage.find_access(str(path)).options == {}


@pytest.mark.parametrize(
    ("ours", "environment", "allowed"),
    [
        ("http://127.0.0.1:9000", None, True), ("https://127.0.0.1:9000", None, False),
        ("https://127.0.0.1:9000", "http://127.0.0.1:9", False), ("http://127.0.0.1:9000", "https://a", True),
        (None, "http://127.0.0.1:9", True), (None, None, False),
    ],
)  # fmt: skip
def test_plain_http_is_allowed_where_the_address_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str | None, environment: str | None, allowed: bool
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if environment is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", environment)
    path = ObjectPath.parse("s3://lake/flights")
    _parse(tmp_path, **({} if ours is None else {"endpoint": ours})).bind([path])
    try:
        assert ("allow_http" in storage_options(path)) is allowed
        assert storage_options(path).get("aws_endpoint") == ours
    finally:
        _parse(tmp_path).bind([path])


def _parse(base: Path, **options: str) -> StorageReferences:
    return StorageReferences.parse(options, base, "flights.toml")


PAIR = {"access_key_id_env": "A", "secret_access_key_env": "B"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"access_key_id_env": "A", "secret_access_key": HIDDEN},
            r"flights\.toml: \[storage\]\.secret_access_key is in the file in clear text, .*; write secret_access_key "
            r'= "\$\{VARIABLE\}", secret_access_key_env or secret_access_key_file instead',
        ),
        ({"account_key": f"{HIDDEN}$" + "{A}"}, r"\[storage\]\.account_key is in the file in clear text"),
        ({"access_key_id": HIDDEN}, r"\[storage\]\.access_key_id is in the file in clear text"),
        ({"service_account_key": '{"private_key": "' + HIDDEN}, "service_account_key is in the file in clear text"),
        ({"secret_acces_key": HIDDEN}, r"unknown key storage\.secret_acces_key; did you mean secret_access_key_env\?"),
        ({"secret_access_key_command": "x"}, r"unknown key storage\.secret_access_key_command; did you mean secret_ac"),
        ({"bucket": "lake"}, r"unknown key storage\.bucket; there are endpoint, region, "),
        ({**PAIR, "secret_access_key_file": "x"}, "secret_access_key_env and secret_access_key_file are both given"),
        ({"access_key_id_env": "A"}, "has access_key_id_env without its secret_access_key; add secret_access_key_e"),
        ({"endpoint": f"https://me:{HIDDEN}@h"}, r"\[storage\]\.endpoint is not http://HOST:PORT or https://HOST; .*l"),
        ({"endpoint": "http://[::1"}, r"\[storage\]\.endpoint is not http://HOST:PORT"),
        ({"endpoint": "minio:9000"}, r"\[storage\]\.endpoint is not http://HOST:PORT"),
    ],
)  # fmt: skip
def test_a_section_that_is_wrong_is_told_without_what_it_says(
    place: Place, capsys: pytest.CaptureFixture[str], options: dict[str, str], told: str
) -> None:
    with pytest.raises(SettingError, match=told) as error:
        _parse(place.base, **options)
    assert HIDDEN not in str(error.value)
    rows = "".join(f"{name} = '{value}'\n" for name, value in options.items())
    file = place.write(lambda text: f"{text}\n[storage]\n{rows}")
    with pytest.raises(SystemExit):
        main(["pipeline", "check", str(file)])
    shown = capsys.readouterr()
    assert HIDDEN not in shown.out + shown.err and "storage" in shown.err


def test_a_value_that_is_no_text_is_not_shown(place: Place) -> None:
    file = place.write(lambda text: f'{text}\n[storage]\nsecret_access_key = ["{HIDDEN}"]\n')
    with pytest.raises(SettingError, match=r"storage\.secret_access_key cannot be what it is: not text") as error:
        PipelineSettings.load(file)
    assert HIDDEN not in str(error.value)


PROCESS = r"That was process \d+ on \S+, which opens s3://lake: the driver and every executor read \[storage\]"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (PAIR, r"flights\.toml: \[storage\]\.access_key_id_env: the variable 'A' is not set in the environment; set "),
        ({"region": "${ZONE}"}, r"\[storage\]\.region: the variable 'ZONE' is"),
        (
            {"access_key_id_env": "LAKE_KEY", "secret_access_key_file": "nowhere/secret"},
            r"\[storage\]\.secret_access_key_file '/.*nowhere/secret': No such file or directory; write the secret_acc",
        ),
        ({"access_key_id_env": "LAKE_KEY", "secret_access_key_file": "empty"}, "secret_access_key_file '/.*': empty"),
        (
            {"access_key_id_env": "LAKE_KEY", "secret_access_key_env": "LAKE_KEY"},
            r"the variable 'AWS_SESSION_TOKEN' of the environment belongs to others; unset it, or write session_toke",
        ),
    ],
)  # fmt: skip
def test_a_reference_that_leads_nowhere_names_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], told: str
) -> None:
    (tmp_path / "empty").touch()
    for name in ("A", "B", "ZONE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAKE_KEY", KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", HIDDEN)
    with pytest.raises(SettingError, match=told) as error:
        _parse(tmp_path, **options).resolve("s3", "s3://lake")
    assert HIDDEN not in str(error.value)
    with pytest.raises(SettingError, match=PROCESS):
        _parse(tmp_path, **options).resolve("s3", "s3://lake")


def test_check_names_what_the_driver_cannot_follow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A", raising=False)
    storage = '\n[storage]\naccess_key_id_env = "A"\nsecret_access_key_env = "B"\n'
    found = checked(place.write(lambda text: to_bucket(text, "delta", "s3://lake") + storage))
    assert {one.part for one in found} == {"table"}
    assert all("[storage].access_key_id_env: the variable 'A' is not set" in one.sentence for one in found)


def test_options_of_other_stores_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are those of the libraries: the documentation of ``object_store``, which both libraries have inside."""
    monkeypatch.delenv("A", raising=False)
    monkeypatch.setenv("LAKE_KEY", HIDDEN)
    made = _parse(tmp_path, **PAIR, account_name="lake", account_key_env="LAKE_KEY", service_account_key_env="LAKE_KEY")
    assert made.resolve("abfss", "abfss://c@lake") == {
        "azure_storage_account_name": "lake", "azure_storage_account_key": HIDDEN,
    }  # fmt: skip
    assert made.resolve("gs", "gs://lake") == {"google_service_account_key": HIDDEN}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "x.json")
    with pytest.raises(SettingError, match="'GOOGLE_SERVICE_ACCOUNT' of the environment belongs to others; unset it"):
        made.resolve("gs", "gs://lake")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "x")
    with pytest.raises(SettingError, match=r"'AZURE_CLIENT_SECRET' .*; unset it, or write client_secret_env or client"):
        made.resolve("abfss", "abfss://c@lake")


def test_a_batch_is_finished_in_a_table_that_the_file_does_not_name_any_more(
    place: Place, object_server: ObjectServer, bucket: str, executor: NotingExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lading.tables.commit import table_commit

    storage = section(object_server, access_key_id_env="LAKE_KEY", secret_access_key_env="LAKE_SECRET")
    whole: Callable[[str], str] = lambda text: to_bucket(text, "parquet", bucket) + storage  # noqa: E731
    file = place.write(whole)

    def crash(*arguments: object, **more: object) -> None:
        raise LocalError("the driver ends here")

    with monkeypatch.context() as patch:
        for name in OTHERS:
            patch.delenv(name, raising=False)
        patch.setenv("LAKE_KEY", KEY)
        patch.setenv("LAKE_SECRET", SECRET)
        with monkeypatch.context() as failing, pytest.raises(LocalError, match="the driver ends here"):
            failing.setattr(table_commit, "rename_staged_files", crash)
            run_once(file, executor)
        place.write(lambda text: whole(text).replace(f'to = "parquet:{bucket}/late"', 'to = "quarantine"'))
        run_once(file, executor)
    assert read_all_late(bucket)


def read_all_late(bucket: str) -> int:
    return len(read_parquet(f"{bucket}/late"))
