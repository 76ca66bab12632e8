"""``lading mirror run``: its file, mirrors that fail next to mirrors that do not, health, metrics, and its end."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lading import testing
from lading.mirror.mirrors_file import NamedMirror, load_mirrors
from lading.mirror.plan import PlannedTopic, plan_mirror
from lading.mirror.run import MirrorProgress, run_mirror
from lading.mirror.service import MirrorService, MirrorWorker
from lading.mirror.settings import MirrorSettings
from lading.model.address import Address
from lading.model.errors import DataLoss, LocalError, SettingError, Unreachable
from lading.runtime.status_server import serve_status
from lading.transports.open import open_transport

from .conftest import MESSAGES, PARTITIONS, contents, fill

NOBODY = "lading://127.0.0.1:1"


def write(directory: Path, text: str) -> Path:
    file = directory / "mirrors.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "mirror is missing; for example [mirror.to-kafka]"),
        ("[mirror]\n", "mirror cannot be {}: too short; name 1 or more"),
        ("[mirror.a]\nsource = 'x'\n", "mirror.a.target is missing; it takes a URL such as lading://127.0.0.1:7070"),
        ("[mirror.a]\nsorce = 'x'\n", "unknown key mirror.a.sorce; did you mean source?"),
        ("[serivce]\n", "unknown key serivce; did you mean service?"),
        ("[service]\nadress = ''\n", "unknown key service.adress; did you mean address?"),
        ("[mirror.a]\nsource = lading\n", 'text needs quotes: source = "…"'),
        (
            "[mirror.a]\nsource = 'x'\ntarget = 'y'\ncarrier = 'maybe'\n",
            "mirror.a.carrier cannot be 'maybe': not one of",
        ),
        ("[mirror.a]\nsource = 'x'\ntarget = 'y'\ntopics = 'z'\n", "mirror.a.topics cannot be 'z': "),
        ("[mirror.' a']\nsource = 'x'\ntarget = 'y'\n", "mirror. a: a name begins with a letter or digit"),
        ("[mirror.a]\nsource = 'x'\ntarget = 'y'\n", "mirror.a.target cannot be 'y': it is not a URL"),
        ("[mirror.a]\nsource = 'kafka://a:1'\ntarget = 'kafka://a:1'\n", "source and target are the same"),
        (
            "[mirror.a]\nsource = 'kafka://a:1'\ntarget = 'kafka://b:1'\n"
            "[mirror.b]\nsource = 'kafka://b:1'\ntarget = 'kafka://a:1'\ntwo_way = true\n",
            "mirror.a and mirror.b copy the same systems in opposite directions",
        ),
        (
            "[mirror.a]\nsource = 'kafka://a:1'\ntarget = 'kafka://b:1'\nstate = 's'\n"
            "[mirror.b]\nsource = 'kafka://a:1'\ntarget = 'kafka://c:1'\nstate = 's'\n",
            "mirror.a and mirror.b have the same state",
        ),
        (
            "[mirror.a]\nsource = 'kafka://a:1'\ntarget = 'kafka://b:1'\n"
            "source_transport = {password_env = 'NO_SUCH'}\n",
            "mirror.a.source_transport.password_env: the variable 'NO_SUCH' is not set",
        ),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, text: str, says: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(SettingError) as raised:
        load_mirrors(file)
    assert str(file) in str(raised.value)
    assert says in str(raised.value)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="No such file or directory; check its path"):
        load_mirrors(tmp_path / "none.toml")


def test_what_a_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s")
    loaded = load_mirrors(
        write(
            tmp_path,
            "[service]\naddress = '127.0.0.1:0'\nstate = 'states'\n"
            "[mirror.a]\nsource = 'data'\ntarget = 'kafka://b:1'\ntopics = ['x*']\nrename = {x = 'y'}\n"
            "target_transport = {username = 'me', password_env = 'SECRET'}\n"
            "[mirror.b]\nsource = 'kafka://b:1?username=u'\ntarget = 'kafka://c:1'\n"
            "source_transport = {password = 'p'}\n",
        )
    )
    first, second = loaded.mirrors
    assert loaded.address == Address("127.0.0.1", 0)
    assert first.settings.source == str(tmp_path / "data")
    assert first.settings.state_directory == tmp_path / "states" / "a"
    assert first.settings.follow and first.settings.is_chosen("xa") and first.settings.target_topic("x") == "y"
    assert first.target_options == {"username": "me", "password": "s"}
    assert second.settings.source_mark == "kafka://b:1"
    (warning,) = loaded.warnings
    assert "mirror.b.source_transport.password is in the file in clear text" in warning


def test_the_file_of_the_page_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "mirror.md").read_text()
    _, _, rest = page.partition("```toml\n")
    loaded = load_mirrors(write(tmp_path, rest.partition("```")[0]))
    assert [one.name for one in loaded.mirrors] == ["departures", "from-nsq"]


class Stop(threading.Event):
    """An event that is set after some waits, and keeps their lengths."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self.count = waits

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        if len(self.waits) == self.count:
            self.set()
        return self.is_set()


def run_worker(run: Callable[..., Any], stop: Stop, clock: Callable[[], float]) -> MirrorWorker:
    settings = MirrorSettings("kafka://a:1", "kafka://b:1", follow=True)
    worker = MirrorWorker(NamedMirror("m", settings, {}, {}), stop, clock=clock, date=lambda: 1e9, run=run)
    worker.thread.start()
    worker.thread.join(10)
    assert worker.phase == "stopped"
    return worker


def test_a_mirror_that_fails_is_tried_again_with_longer_pauses() -> None:
    errors = [Unreachable("away"), DataLoss("gone"), RuntimeError("a fault of ours"), *[LocalError("no")] * 5]
    stop = Stop(len(errors))

    def run(settings: MirrorSettings, **options: Any) -> None:
        raise errors[len(stop.waits)]

    worker = run_worker(run, stop, lambda: 0.0)
    assert stop.waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert worker.errors_count == len(errors) and worker.last_error == "no"


def test_pauses_begin_again_after_a_long_run() -> None:
    now = [0.0]
    stop = Stop(4)

    def run(settings: MirrorSettings, **options: Any) -> None:
        options["on_progress"](MirrorProgress(10, 5, 1, 2))
        now[0] += 60 if len(stop.waits) == 2 else 1
        raise LocalError("no")

    worker = run_worker(run, stop, lambda: now[0])
    assert stop.waits == [1, 2, 1, 2]
    # what was sent before an error counts on
    assert (worker.messages, worker.refused, worker.lag_messages, worker.topics_count) == (40, 4, 5, 2)


def test_the_rate_is_that_of_the_last_minute() -> None:
    now = [0.0]
    stop = Stop(1)
    rates = []
    found: list[MirrorWorker] = []

    def run(settings: MirrorSettings, **options: Any) -> None:
        for second in range(121):
            now[0] = float(second)
            options["on_progress"](MirrorProgress(10 * min(second, 60), 0))
            rates.append(found[0].messages_per_s)
        raise LocalError("no")

    settings = MirrorSettings("kafka://a:1", "kafka://b:1", follow=True)
    found.append(MirrorWorker(NamedMirror("m", settings, {}, {}), stop, clock=lambda: now[0], run=run))  # type: ignore[arg-type]
    found[0].thread.start()
    found[0].thread.join(10)
    assert (rates[30], rates[60], rates[90], rates[120]) == (10, 10, 5, 0)


def get(address: Address, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as response:
        content: bytes = response.read()
    return content


def test_a_failing_mirror_stops_no_other(broker: testing.BrokerProcess, urls: dict[str, str], tmp_path: Path) -> None:
    fill(broker.url, "served")
    mirrors = [
        NamedMirror(name, MirrorSettings(source, urls["kafka"], ["served"], renames={"served": name}, follow=True,
                                         state=tmp_path / name), {}, {})
        for name, source in (("well", broker.url), ("lost", NOBODY))
    ]  # fmt: skip
    service = MirrorService(mirrors)
    with serve_status(Address("127.0.0.1", 0), "a Lading mirror service", service.pages) as address:
        service.start()
        well, lost = service.workers
        until = time.monotonic() + 30
        while (well.messages < MESSAGES or not well.is_idle or not lost.errors_count) and time.monotonic() < until:
            time.sleep(0.02)
        health = json.loads(get(address, "/health"))
        families = text_string_to_metric_families(get(address, "/metrics").decode())
        values = {(one.name, one.labels.get("mirror")): one.value for family in families for one in family.samples}
        said = get(address, "/").decode()
        with pytest.raises(urllib.error.HTTPError) as missing:
            get(address, "/nothing")
        began = time.monotonic()
        unfinished = service.stop()
        took_s = time.monotonic() - began
    assert contents(broker.url, "well") == contents(broker.url, "served")
    assert health["status"] == "degraded" and list(health["problems"]) == ["lost"]
    assert "no broker is reachable at 127.0.0.1:1" in health["problems"]["lost"]
    row = health["mirrors"]["well"]
    assert (row["state"], row["messages"], row["lag_messages"], row["last_error"]) == ("running", MESSAGES, 0, None)
    assert health["mirrors"]["lost"]["state"] == "away"
    assert values["lading_mirror_messages_total", "well"] == MESSAGES
    assert values["lading_mirror_lag_messages", "well"] == 0
    assert (values["lading_mirror_running", "well"], values["lading_mirror_running", "lost"]) == (1, 0)
    assert values["lading_mirror_errors_total", "lost"] >= 1
    assert said.startswith("a Lading mirror service, Lading ") and "/metrics" in said
    assert missing.value.code == 404 and b"a Lading mirror service" in missing.value.read()
    assert unfinished == [] and took_s < 1
    # the state is whole, and another run continues
    done = run_mirror(MirrorSettings(broker.url, urls["kafka"], ["served"], renames={"served": "well"},
                                     state=tmp_path / "well"))  # fmt: skip
    assert done.messages == 0


def test_lag_grows_while_nothing_is_sent(broker: testing.BrokerProcess, urls: dict[str, str], tmp_path: Path) -> None:
    fill(broker.url, "lagging")
    seen: list[MirrorProgress] = []
    settings = MirrorSettings(broker.url, urls["kafka"], ["lagging"], renames={"lagging": "lag"}, follow=True,
                              state=tmp_path / "state")  # fmt: skip
    run_mirror(settings, is_stopped=lambda: len(seen) >= 2, on_look=seen.append, on_progress=seen.append)
    assert (seen[0].messages, seen[0].left, seen[0].topics) == (0, MESSAGES, 1)


def test_a_plan_changes_nothing(broker: testing.BrokerProcess, urls: dict[str, str], tmp_path: Path) -> None:
    settings = MirrorSettings(broker.url, urls["kafka"], ["flights"], renames={"flights": "planned"}, follow=True,
                              state=tmp_path / "state")  # fmt: skip
    assert plan_mirror(settings) == [PlannedTopic("flights", "planned", PARTITIONS, True, MESSAGES)]
    transport = open_transport(broker.url)
    assert "planned" not in {meta.name for meta in transport.topics()}
    transport.close()
    assert not (tmp_path / "state").exists()
    run_mirror(MirrorSettings(broker.url, urls["kafka"], ["flights"], renames={"flights": "planned"},
                              state=tmp_path / "state"))  # fmt: skip
    assert plan_mirror(settings) == [PlannedTopic("flights", "planned", PARTITIONS, False, 0)]
    with pytest.raises(LocalError, match="same topic of the same broker"):
        plan_mirror(MirrorSettings(broker.url, urls["kafka"], ["flights"], state=tmp_path / "other"))
