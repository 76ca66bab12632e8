"""Exactly once into a store whose requests fail: refused, cut, answered to nobody, or gone for the rest of a run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.model.errors import LadingError
from lading.tables import object_path
from lading.tables.formats import delta
from lading.tables.ingest import ingest

from .direct import DirectExecutor
from .logged_forms import COLUMNS, NUMBERS, send
from .object_faults import FAULTS, FaultyStore, run_faulty_store
from .object_forms import FORMS, point_to
from .object_server import ObjectServer

ROWS = 4
"""Messages that are sent before each point."""
POINTS, POINTS_SAMPLE = 336, 6
"""For each form; three forms make 1,008."""
RETRIES = {
    "max_retries": 2, "retry_timeout": timedelta(seconds=5),
    "backoff": {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 2},
}  # fmt: skip
OPTIONS = {"allow_http": "true", "max_retries": "2", "retry_timeout": "5s", "backoff_config.init_backoff": "1ms"}


@pytest.fixture
def store(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    with run_faulty_store(object_server.url) as (url, store):
        point_to(object_server, tmp_path, monkeypatch, url)
        monkeypatch.setattr(object_path, "RETRIES", RETRIES)
        monkeypatch.setattr(delta, "storage_options", lambda root: OPTIONS)
        yield store


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.timeout(900)
def test_every_message_is_there_once(
    broker: testing.BrokerProcess,
    object_server: ObjectServer,
    store: FaultyStore,
    tmp_path: Path,
    form: str,
    full: bool,
) -> None:
    if not full and form != "delta":
        pytest.skip("every form runs with LADING_TEST_FULL=1")
    topic = f"faults{next(NUMBERS)}"
    table = f"{object_server.create_bucket(topic)}/{topic}"
    given: dict[str, Any] = {"columns": COLUMNS, "state_dir": tmp_path / "state"}
    chosen, points, failed = random.Random(f"17 {form}"), POINTS if full else POINTS_SAMPLE, Counter[str]()

    def run() -> None:
        ingest(DirectExecutor(), broker.url, topic, FORMS[form][0] + table, **given)

    send(broker, topic, range(ROWS))
    store.arm(1 << 30, "cut")
    run()
    reached = requests = store.requests
    sent, counted = ROWS, 0
    while counted < points:
        send(broker, topic, range(sent, sent + ROWS))
        sent += ROWS
        fault = FAULTS[counted % len(FAULTS)]
        store.arm(chosen.randrange(requests), fault)
        try:
            run()
        except LadingError:
            failed[fault] += 1
        requests = max(reached // 2, store.requests if fault in FAULTS[:4] else requests)
        counted += store.heal()
    run()
    delays = Counter(FORMS[form][1](table)["delay"].to_list())
    lost, doubled = sent - len(delays), sum(count - 1 for count in delays.values())
    ended = ", ".join(f"{fault} {failed[fault]}" for fault in FAULTS)
    print(f"{form}: {counted} points, runs that they ended: {ended}; {sent:,} messages, lost {lost}, doubled {doubled}")
    assert (lost, doubled) == (0, 0)
