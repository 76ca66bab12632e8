"""Secrets of ``source.transport``: references in the file, followed by each process, never written and never sent."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lading import Headers, Producer, i16, testing
from lading.model.errors import SettingError
from lading.pipeline.settings import PipelineSettings
from lading.tables.plan.ranges import OffsetRange
from tests.tables.object_forms import read_parquet

from .test_storage import NotingExecutor, holders, run_once

TOKEN = "tonnage-of-feathers"
MESSAGES = 40
TOML = """
[pipeline]
id = "sorted"
[source]
from = "{url}"
topic = "flights"
transport = {{ {transport} }}
[headers]
delay = "int"
[[route]]
where = "delay >= 30"
to = "{url}/late"
[good]
to = "parquet:./tables/flights"
"""
WAYS = {
    "variable": 'token = "${FLIGHTS_TOKEN}"',
    "env": 'token_env = "FLIGHTS_TOKEN"',
    "file": 'token_file = "{place}/secret/FLIGHTS_TOKEN"',
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[testing.BrokerProcess]:
    """A broker that asks for a token."""
    with testing.broker(endpoints__admin__token=TOKEN) as running:
        with Producer(running.url, token=TOKEN) as producer:
            for number in range(MESSAGES):
                producer.send("flights", b"%d" % number, headers=Headers([("delay", i16(number))]))
        yield running


@pytest.fixture
def executor() -> Iterator[NotingExecutor]:
    """A worker."""
    with closing(NotingExecutor()) as made:
        yield made


@pytest.mark.turns(3)
@pytest.mark.parametrize("way", WAYS)
def test_references_travel_and_secrets_do_not(
    guarded: testing.BrokerProcess, executor: NotingExecutor, tmp_path: Path, way: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Before, the driver replaced ``${VARIABLE}`` and ``…_env``, and every task had the secret."""
    (tmp_path / "secret").mkdir()
    secret = tmp_path / "secret" / "FLIGHTS_TOKEN"
    secret.write_text(TOKEN)
    file = tmp_path / f"{way}.toml"
    text = TOML.format(url=guarded.url, transport=WAYS[way].replace("{place}", str(tmp_path)))
    file.write_text(text.replace("/late", f"/late_{way}"))
    with monkeypatch.context() as patch, caplog.at_level(logging.DEBUG):
        patch.setenv("FLIGHTS_TOKEN", TOKEN)
        assert run_once(file, executor) == MESSAGES
    assert read_parquet(str(tmp_path / "tables" / "flights")).height == 30
    assert executor.tasks and all(b"FLIGHTS_TOKEN" in task and TOKEN.encode() not in task for task in executor.tasks)
    assert holders(TOKEN, tmp_path) == [secret] and TOKEN not in caplog.text


def test_a_worker_that_lacks_the_variable_names_itself(
    guarded: testing.BrokerProcess, executor: NotingExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sorted.toml"
    file.write_text(TOML.format(url=guarded.url, transport=WAYS["env"]).replace("/late", "/late_lacking"))
    with pytest.raises(SettingError, match=r"transport\.token_env: the variable 'FLIGHTS_TOKEN' is not set"):
        run_once(file, executor)
    with monkeypatch.context() as patch:
        patch.setenv("FLIGHTS_TOKEN", TOKEN)
        assert run_once(file, executor) == MESSAGES
    stage = pickle.loads(executor.tasks[0])
    with pytest.raises(SettingError) as refused:
        stage(OffsetRange("flights", 0, None, 0, 0, MESSAGES), "again")
    assert str(refused.value) == (
        f"{PipelineSettings.load(file).name}: source.transport.token_env: the variable 'FLIGHTS_TOKEN' is not set in "
        f"the environment; set it. That was process {os.getpid()} on {os.uname().nodename}, which reads {guarded.url}: "
        "the driver and every executor read source.transport for themselves"
    )
