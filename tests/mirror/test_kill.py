"""A mirror that is killed at random moments: nothing is lost, and nothing is there twice where the docs say so."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lading import read_arrow, testing
from lading.mirror.run import MirrorReport
from lading.transports.fitting import fill_missing_columns
from lading.transports.open import open_transport
from tests import forked_command
from tests.mirror.conftest import fill
from tests.mirror.end_driver import EXITED, RAISED, STEPS, WAYS

CHUNKS, CHUNK_MESSAGES = 60, 4
TIMEOUT_S = 110
FULL_TIMEOUT_S = 1500


@pytest.mark.timeout(1600)
@pytest.mark.turns(2, part=0)
def test_mirrors_that_are_killed(
    broker: testing.BrokerProcess, urls: dict[str, str], full: bool, tmp_path: Path
) -> None:
    chunks, kills = (1500, 250) if full else (CHUNKS, 4)
    with_topic(broker.url, "killed", chunks)
    names = {target: f"survived_{target}" for target in ("lading", "kafka", "iggy", "nsq")}
    for target, name in names.items():
        open_transport(urls[target]).create_topic(name, 1)
    pairs = [f"{urls[target]}={name}" for target, name in names.items()]
    command = [sys.executable, "-m", "tests.mirror.kill_driver", str(kills), broker.url, "killed", str(tmp_path)]
    limit_s = FULL_TIMEOUT_S if full else TIMEOUT_S
    done = forked_command.run([*command, *pairs], timeout=limit_s)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    sent = read_arrow(broker.url, "killed", "payload").column(0).to_pylist()
    for target, name in names.items():
        arrived = read_arrow(broker.url, name, "payload").column(0).to_pylist()
        lost = len(Counter(sent) - Counter(arrived))
        doubled = sum((Counter(arrived) - Counter(sent)).values())
        killed, moved = figures[name]["killed"], len(set(figures[name]["positions"]))
        print(f"to {target}: killed {killed} times at {moved} places, sent {len(sent)}, lost {lost}, doubled {doubled}")
        assert killed > 1 and moved > 1
        assert lost == 0
        if target == "nsq":
            # at most the work in hand
            assert doubled <= killed * CHUNK_MESSAGES
        else:
            assert arrived == sent


@pytest.mark.turns(2, part=1)
def test_mirrors_that_end_at_their_commit(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    """What the first life sent was not committed, or was and it does not know: the second one sends the same."""
    with_topic(broker.url, "ended", CHUNKS)
    names = [f"{step}_{way}" for step in STEPS for way in WAYS]
    command = [sys.executable, "-m", "tests.mirror.end_driver", broker.url, "ended", str(tmp_path)]
    pairs = [f"{broker.url}={name}" for name in names]
    done = forked_command.run([*command, *pairs], timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    sent = read_arrow(broker.url, "ended", "payload").column(0).to_pylist()
    for name in names:
        assert figures[name]["ended"] == {"raise": RAISED, "exit": EXITED, "kill": -9}[name.partition("_")[2]]
        assert read_arrow(broker.url, name, "payload").column(0).to_pylist() == sent, name


def test_a_state_that_was_put_back_loses_nothing(
    broker: testing.BrokerProcess, mirror: Callable[..., MirrorReport], tmp_path: Path
) -> None:
    """Its works have numbers that the target knows already, of works with other messages."""
    state, kept = tmp_path / "state", tmp_path / "kept"
    fill(broker.url, "restored", 10, partitions=1)
    mirror(broker.url, broker.url, "restored", "restored_copy", state=state)
    shutil.copytree(state, kept)
    fill(broker.url, "restored", 10, 10, partitions=1)
    mirror(broker.url, broker.url, "restored", "restored_copy", state=state)
    shutil.rmtree(state)
    kept.rename(state)
    fill(broker.url, "restored", 10, 20, partitions=1)
    mirror(broker.url, broker.url, "restored", "restored_copy", state=state)
    keys = Counter(read_arrow(broker.url, "restored_copy", "key").column(0).to_pylist())
    # what the state does not know that it sent comes again
    assert keys == {b"k%d" % number: 2 if 10 <= number < 20 else 1 for number in range(30)}


def with_topic(url: str, topic: str, chunks: int) -> None:
    transport = open_transport(url)
    transport.create_topic(topic, 1)
    for chunk in range(chunks):
        payloads = [b"%d" % (chunk * CHUNK_MESSAGES + at) for at in range(CHUNK_MESSAGES)]
        times = pa.array([chunk] * CHUNK_MESSAGES, pa.timestamp("us", "UTC"))
        batch = pa.record_batch({"payload": pa.array(payloads, pa.binary()), "timestamp": times})
        transport.send(topic, 0, fill_missing_columns(batch))
    transport.close()
