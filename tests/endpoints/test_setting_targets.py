"""Every setting that can name a topic, a user, a path or an address, and what holds its target.

The tables are by hand, and a setting that is in none of them fails here: first those of topics, which clients change;
then those of the broker, which its operator changes; then those of programs that reach a server as a user, with the
rights of that user and no others.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import httpx
import pyarrow as pa
import pytest
from pydantic import BaseModel

from lading import read_arrow
from lading.broker.core import settings as topic_settings
from lading.broker.core.access.rights import Right
from lading.cli.main import main
from lading.endpoints.kafka.configs import CONFIGS
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings
from lading.model.errors import LadingError
from lading.pipeline.dead_letter_redrive import ForeignDeadLetters
from lading.pipeline.sections import Document
from lading.settings.settings import Settings
from lading.spool import filler
from lading.tables.plan.options import SinkOptions, SourceOptions
from lading.testing import BrokerProcess
from lading.transports.open import open_transport
from tests.crashes import spark_driver
from tests.crashes.test_command_lines import make_batches
from tests.endpoints.identity import broker_with_users, rule
from tests.endpoints.kafka_frames import KafkaFrames
from tests.endpoints.test_http_users import client
from tests.endpoints.test_nothing_leaks import log_in
from tests.pipeline.direct import Driver

HERE: Final = Path(__file__).parent
Started = tuple[BrokerProcess, dict[str, str]]


class Held(NamedTuple):
    """What a setting names, and the tests that check it when it is set, and when it is used."""

    names: str
    when_set: str
    when_used: str


NOTHING: Final = Held("nothing", "", "")
WORDS: Final = Held("words", "", "")
"""Free text that names nothing outside of itself."""

# -- settings of topics: clients change them

TOPIC_SETTINGS: Final[Mapping[str, Held]] = {
    **dict.fromkeys(
        ("retention_age_us", "retention_bytes", "retention_mark_us", "hide_states", "kafka_states", "message_bytes_max",
         "append_time", "timestamp_before_max_us", "timestamp_after_max_us", "cleanup_policy", "header_form", "carrier",
         "segment_bytes", "segment_age_us", "tombstone_retention_us", "compaction_lag_us_min", "compaction_lag_us_max",
         "dirty_share_min",
         "attempts_max", "poison_given_up"), NOTHING,
    ),
    "inert_configs": Held(
        "texts of clients that nothing looks at", "test_setting_targets.py::test_other_protocols_name_no_target",
        "test_setting_targets.py::test_other_protocols_name_no_target",
    ),
    "dead_letter_topic": Held(
        "a topic", "test_dead_letter_rights.py::test_who_sets_it_has_to_be_allowed_to_write_to_it_and_to_create_it",
        "test_dead_letter_rights.py::test_it_is_asked_again_when_it_is_used",
    ),
    "dead_letter_setter": Held(
        "a user", "test_dead_letter_rights.py::test_the_setter_is_no_setting_of_clients",
        "test_dead_letter_rights.py::test_it_is_asked_again_when_it_is_used",
    ),
    # the subject is the topic's own name
    "validate_schemas": NOTHING,
    "subject_strategy": NOTHING,
    "columns": WORDS,
}  # fmt: skip

# -- settings of the broker: its operator changes them

_TLS_FILE: Final = Held(
    "a file", "test_tls.py::test_the_file_at_fault_is_named",
    "test_tls_renewal.py::test_a_look_renews_what_has_changed_and_tells_each_fault_once",
)  # fmt: skip
_ISSUER: Final = "test_token_issuer.py::test_settings_that_cannot_be_used"
BROKER_SETTINGS: Final[Mapping[str, Held]] = {
    "data": Held(
        "a directory", "test_serve.py::test_a_data_directory_that_is_a_file",
        "test_serve.py::test_a_second_broker_is_told_who_has_the_directory",
    ),
    "store": Held(
        "a cluster", "../kafka_log/test_refusals.py::test_settings_that_contradict_the_store_are_refused",
        "../kafka_log/test_ends.py::test_a_cluster_that_does_not_respond_is_a_problem",
    ),
    "endpoints.*.address": Held(
        "an address", "test_settings.py::test_a_bind_beyond_loopback_needs_credentials_or_consent",
        "test_serve.py::test_a_taken_port_is_named_with_its_setting",
    ),
    "endpoints.*.advertised": Held(
        "an address for clients", "test_settings.py::test_addresses",
        "test_settings.py::test_a_listener_of_kafka_advertises_its_own_address",
    ),
    **dict.fromkeys((f"endpoints.*.tls.{name}" for name in ("certificate", "key", "client_ca")), _TLS_FILE),
    "endpoints.*.token": Held("words", "test_settings.py::test_a_wrong_secret_is_not_repeated", ""),
    "endpoints.*.token_file": Held(
        "a file", "test_settings.py::test_a_token_file_without_a_token_is_refused",
        "test_settings.py::test_a_token_may_lie_in_a_file",
    ),
    "endpoints.*.client_metrics": WORDS,
    "endpoints.*.listeners": Held("listeners", "test_settings.py::test_a_wrong_listener_is_named", ""),
    "http.hosts": WORDS,
    "http.origins": WORDS,
    "oauth.issuer": Held("words", _ISSUER, ""),
    "oauth.audience": Held("words", _ISSUER, ""),
    "oauth.user_claim": Held("a user", _ISSUER, "test_token_issuer.py::test_a_token_is_its_subjects_until_it_ends"),
    "oauth.jwks_file": Held("a file", _ISSUER, "test_token_issuer.py::test_keys_come_and_go"),
    "oauth.jwks_url": Held(
        "an address", _ISSUER, "test_token_issuer.py::test_keys_come_over_http_and_follow_no_redirect",
    ),
}  # fmt: skip

# -- settings of programs: what they name at a server takes the rights of the user who runs them

READ_TOPIC, WRITTEN_TOPIC, CHANNEL = "a topic that is read", "a topic that is written", "a channel"
SERVER, OWN_FILE, COLUMN = "a server", "a file of one's own", "a column or condition"
TRANSACTION: Final = "a transaction"
PATTERN: Final = "topics that match, of those that its user may see"
REGISTRY: Final = "a registry of schemas"
PROGRAM_SETTINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("mirror.source", "mirror.target"), SERVER),
    **dict.fromkeys(("mirror.topics", "mirror.exclude"), READ_TOPIC),
    "mirror.renames": WRITTEN_TOPIC,
    **dict.fromkeys(("mirror.source_name", "mirror.target_name"), "words"),
    "mirror.channel": CHANNEL,
    "mirror.state": OWN_FILE,
    "source.from_": SERVER,
    **dict.fromkeys(("source.topic", "source.topics"), READ_TOPIC),
    **dict.fromkeys(("source.topic_pattern", "pipeline.source.topic_pattern"), PATTERN),
    **dict.fromkeys(("source.starting", "source.ending"), "offsets"),
    **dict.fromkeys(("source.columns", "source.encodings", "source.where"), COLUMN),
    "source.spool": OWN_FILE,
    "source.channel": CHANNEL,
    **dict.fromkeys(("source.transport", "sink.transport"), SERVER),
    "sink.to": SERVER,
    "sink.topic": WRITTEN_TOPIC,
    "sink.headers": COLUMN,
    "sink.transactional_id": TRANSACTION,
    "sink.dedupe_header": COLUMN,
    "sink.payload_places": COLUMN,
    # a registry is asked with the credentials that are named beside it
    **dict.fromkeys(("source.payload", "sink.payload"), REGISTRY),
    **{
        f"pipeline.{section}.registry{rest}": REGISTRY
        for section in ("payload", "key")
        for rest in ("", "_user", "_password_env", "_password_file", "_token_env", "_token_file")
    },
    **{
        f"pipeline.{section}.{name}": OWN_FILE
        for section in ("payload", "key")
        for name in (
            "schema_", "schema_imports", "registry_ca_file", "registry_certificate_file", "registry_key_file",
            "registry_cache",
        )
    },
    **dict.fromkeys(("pipeline.payload.message", "pipeline.key.message"), "words"),
    "pipeline.include": "the name of a contract that Lading has",
    "pipeline.pipeline.id": "words",
    "pipeline.pipeline.state": OWN_FILE,
    "pipeline.source.from_": SERVER,
    **dict.fromkeys(("pipeline.source.topic", "pipeline.source.topics"), READ_TOPIC),
    **dict.fromkeys(("pipeline.source.starting", "pipeline.source.ending"), "offsets"),
    "pipeline.source.server": SERVER,
    "pipeline.source.transport": SERVER,
    "pipeline.source.spool": OWN_FILE,
    "pipeline.source.channel": CHANNEL,
    "pipeline.headers": COLUMN,
    **dict.fromkeys(("pipeline.expect.name", "pipeline.route.name"), "words"),
    **dict.fromkeys(("pipeline.expect.condition", "pipeline.route.where", "pipeline.step.sql"), COLUMN),
    **dict.fromkeys(("pipeline.good.to", "pipeline.route.to", "pipeline.quarantine.to"), WRITTEN_TOPIC),
    "pipeline.quarantine.topic": WRITTEN_TOPIC,
    "pipeline.quarantine.server": SERVER,
    **{f"pipeline.{one}.{key}": COLUMN for one in ("good", "route") for key in ("columns", "partition_by")},
    "pipeline.route.set_state": "a state of messages that are read",
    "pipeline.storage": "an object store",
    "pipeline.metrics.address": "an address of one's own",
}  # fmt: skip
CHECKED: Final = frozenset({READ_TOPIC, WRITTEN_TOPIC, CHANNEL, TRANSACTION})
"""What is named at a server: each such setting has a row in ``RUNS``."""


def can_name(hint: Any) -> bool:
    """Return whether a setting of this type can name something: it is or holds a text, a path or an address."""
    origin = get_origin(hint)
    if origin is Literal:
        return False
    if origin is not None or isinstance(hint, types.UnionType) or origin is Union:
        return any(can_name(inner) for inner in get_args(hint) if inner is not type(None))
    return isinstance(hint, type) and not issubclass(hint, int | float | bool | types.NoneType)


def list_model_settings(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the settings of a model that can name something."""
    for name, field in model.model_fields.items():
        hint: Any = field.annotation
        inner = [one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, BaseModel)]
        if name == "listeners":
            yield f"{prefix}.{name}"
        elif inner:
            for one in inner:
                yield from list_model_settings(one, f"{prefix}.{name}".lstrip("."))
        elif can_name(hint):
            yield f"{prefix}.{name}".lstrip(".")


def share_endpoint(key: str) -> str:
    """Return a setting as it is written for all endpoints."""
    return ".".join(["endpoints", "*", *key.split(".")[2:]]) if key.startswith("endpoints.") else key


def list_fields(kind: Any, prefix: str) -> Iterator[str]:
    hints = get_type_hints(kind)
    yield from (f"{prefix}.{one.name}" for one in fields(kind) if can_name(hints[one.name]))


# -- nothing is left out


def test_every_setting_of_a_topic_is_in_the_table() -> None:
    assert {one.name for one in fields(topic_settings.TopicSettings)} == set(TOPIC_SETTINGS)


def test_every_setting_of_the_broker_that_can_name_something_is_in_the_table() -> None:
    assert {share_endpoint(key) for key in list_model_settings(Settings)} == set(BROKER_SETTINGS)


def test_every_setting_of_a_program_that_can_name_something_is_in_the_table() -> None:
    found = {
        *list_fields(MirrorSettings, "mirror"), *list_fields(SourceOptions, "source"),
        *list_fields(SinkOptions, "sink"), *(f"pipeline.{key}" for key in list_model_settings(Document)),
    }  # fmt: skip
    assert found == set(PROGRAM_SETTINGS)
    named = {key for key, what in PROGRAM_SETTINGS.items() if what in CHECKED}
    assert named == {key for keys in RUNS for key in keys}


def test_the_tests_that_hold_a_target_exist() -> None:
    for key, held in (*TOPIC_SETTINGS.items(), *BROKER_SETTINGS.items()):
        if held.names in ("nothing", "words", "listeners"):
            continue
        for name in (held.when_set, held.when_used):
            file, _, test = name.partition("::")
            tree = ast.parse((HERE / file).read_text())
            names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert test in names, f"{key}: {name}"


# -- what clients of other protocols set


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    rules = [rule("ann", Right.ALL, "mine*"), rule("bob", Right.ALL, "mine*")]
    with broker_with_users(tmp_path_factory.mktemp("targets") / "data", rules) as found:
        root = client(found[0], bearer=found[1]["root"])
        for topic in ("mine", "secret"):
            assert root.post(f"/topics/default/{topic}", json={}).status_code == 201
        transport = open_transport(found[0].url, token=found[1]["root"])
        for topic in ("mine", "secret"):
            for batch in make_batches([b"a message"], []):
                transport.send(topic, 0, batch)
        transport.close()
        yield found


def state_of(root: httpx.Client) -> Any:
    """Return all topics with their settings and next offsets, and the groups."""
    topics = [row for row in root.get("/topics").json() if not row["topic"].startswith("mine")]
    return topics, root.get("/groups").json()


def test_other_protocols_name_no_target(started: Started) -> None:
    """Kafka's configs reach no setting that names something; any other name is refused, or kept without effect."""
    assert all(TOPIC_SETTINGS[config.setting] == NOTHING for config in CONFIGS.values())
    running, tokens = started
    root = client(running, bearer=tokens["root"])
    kafka = log_in(KafkaFrames(running.endpoints["kafka"]), "ann")
    for name in ("dead_letter_topic", "dead_letter_setter", "dead.letter.topic", "errors.deadletterqueue.topic.name"):
        row = {"name": name, "config_operation": 0, "value": "secret"}
        resource = {"resource_type": 2, "resource_name": "mine", "configs": [row]}
        kafka.ask("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
        created = {"name": f"mine-{name}", "num_partitions": 1, "replication_factor": 1, "assignments": [],
                   "configs": [{"name": name, "value": "secret"}]}  # fmt: skip
        kafka.ask("CreateTopics", 5, topics=[created], timeout_ms=1000, validate_only=False)
    kafka.close()
    for row in root.get("/topics").json():
        assert not row["settings"].keys() & {"dead_letter_topic", "dead_letter_setter"}, row


# -- what programs name


class Place(NamedTuple):
    """Where a program runs as a user without rights on the topic ``secret``."""

    running: BrokerProcess
    directory: Path
    token: str

    @property
    def url(self) -> str:
        return self.running.url


def mirror(place: Place, **changes: Any) -> None:
    settings = {"source": place.url, "target": place.url, "state": place.directory / "state", **changes}
    run_mirror(MirrorSettings(**settings))


def read(place: Place) -> None:
    options = SourceOptions.parse({"from": place.url, "topic": "secret"})
    transport = open_transport(options.from_)
    try:
        transport.fetch(options.topic, 0, 0)
    finally:
        transport.close()


def read_queue(place: Place, topic: str, channel: str) -> None:
    queue = f"nsq://{place.running.endpoints['nsqd_tcp']}"
    filler.fill_spool(
        queue, topic, channel, place.directory / "spool", is_stopped=lambda: False, caught_up=lambda _: None,
        timeout_s=5,
    )  # fmt: skip


def write(place: Place, face: str = "lading", **options: str) -> None:
    frame = pa.record_batch(
        {
            "payload": pa.array([b"x"], pa.binary()), "key": pa.array([b"k"], pa.binary()),
            "row": pa.array([1], pa.int32()), "partition": pa.array([0], pa.int32()),
        }
    )  # fmt: skip
    url = place.url if face == "lading" else f"kafka://{place.running.endpoints['kafka']}"
    spark_driver.run_job([frame], {"to": url, "headers": "row", **options})


def run_pipeline(place: Place, **sections: str) -> None:
    parts = {
        "source": f'from = "{place.url}"\ntopic = "mine"', "good": 'to = "parquet:./good"',
        "quarantine": 'to = "parquet:./bad"', "quality": "max_failure_ratio = 1.0",
    } | sections  # fmt: skip
    text = '[pipeline]\nid = "p"\nstate = "./state"\n' + parts.pop("route", "")
    text += "".join(f"[{name}]\n{body}\n" for name, body in parts.items())
    file = place.directory / "p.toml"
    file.write_text(text.replace("URL", place.url))
    Driver(file).run()


REFUSED: Final = (
    "user 'ann' may not describe topic 'secret'|E_UNAUTHORIZED AUTH failed for SUB on \"secret\"|"
    "(GROUP|TRANSACTIONAL_ID)_AUTHORIZATION_FAILED"
)
ALL_BAD: Final = 'nobody-has-this = "string required"'
RUNS: Final[Mapping[tuple[str, ...], Callable[[Place], object]]] = {
    ("mirror.topics", "mirror.exclude"): lambda place: mirror(
        place, topics=["secret"], renames={"secret": "mine-copy"}
    ),
    ("mirror.renames",): lambda place: mirror(place, topics=["mine"], renames={"mine": "secret"}),
    ("mirror.channel",): lambda place: mirror(
        place, source=f"nsq://{place.running.endpoints['nsqd_tcp']}", topics=["secret"],
        renames={"secret": "mine-copy"}, channel="c", quiet_ms=200,
    ),
    ("source.topic",): read,
    ("source.topics",): lambda place: read_arrow(place.url, topics=["mine", "secret"], columns="offset"),
    ("source.channel",): lambda place: read_queue(place, "secret", "c"),
    ("sink.topic",): lambda place: write(place, topic="secret"),
    ("sink.transactional_id",): lambda place: write(
        place, "kafka", topic="mine", transactionalId="secret", **{"transport.username": "ann",
                                                                  "transport.password": "ann's password"},
    ),
    ("pipeline.source.topic",): lambda place: run_pipeline(place, source='from = "URL"\ntopic = "secret"'),
    ("pipeline.source.topics",): lambda place: run_pipeline(place, source='from = "URL"\ntopics = ["mine", "secret"]'),
    ("pipeline.source.channel",): lambda place: read_queue(place, "secret", "p"),
    ("pipeline.good.to",): lambda place: run_pipeline(place, good='to = "URL/secret"'),
    ("pipeline.route.to",): lambda place: run_pipeline(
        place, route="[[route]]\nwhere = \"payload IS NOT NULL\"\nto = \"URL/secret\"\n"
    ),
    ("pipeline.quarantine.to",): lambda place: run_pipeline(place, headers=ALL_BAD, quarantine='to = "URL/secret"'),
    ("pipeline.quarantine.topic",): lambda place: run_pipeline(place, headers=ALL_BAD, quarantine='topic = "secret"'),
}  # fmt: skip
"""One run for each setting that names something at a server, as a user who has no right on it."""


@pytest.mark.parametrize("keys", RUNS, ids=lambda keys: keys[0])
def test_a_program_has_the_rights_of_its_user(
    started: Started,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[str, ...],
) -> None:
    running, tokens = started
    root = client(running, bearer=tokens["root"])
    before = state_of(root)
    for name in ("LADING_TOKEN", "LADING_AUTH_SECRET"):
        monkeypatch.setenv(name, tokens["ann"])
    with pytest.raises(LadingError, match=REFUSED):
        RUNS[keys](Place(running, tmp_path, tokens["ann"]))
    assert state_of(root) == before


@pytest.mark.parametrize("is_pipeline", [False, True])
def test_a_pattern_matches_no_topic_that_its_user_may_not_see(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_pipeline: bool
) -> None:
    running, tokens = started
    monkeypatch.setenv("LADING_TOKEN", tokens["ann"])
    place = Place(running, tmp_path, tokens["ann"])
    with pytest.raises(LadingError, match="matches no topic at") as told:
        if is_pipeline:
            run_pipeline(place, source='from = "URL"\ntopic_pattern = "secre."')
        else:
            read_arrow(place.url, topic_pattern="secre.", columns="offset")
    assert "secret" not in str(told.value)


def test_a_redrive_has_the_rights_of_its_user(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--to`` and ``--server`` are no settings of a file."""
    running, tokens = started
    root = client(running, bearer=tokens["root"])
    transport = open_transport(running.url, token=tokens["root"])
    facts = [{"key": f"__connect.errors.{name}", "kind": 1, "value": value}
             for name, value in (("topic", b"secret"), ("partition", b"0"), ("offset", b"0"))]  # fmt: skip
    transport.create_topic("mine-letters", 1)
    for batch in make_batches([b"x"], facts):
        transport.send("mine-letters", 0, batch)
    transport.close()
    before = state_of(root)
    monkeypatch.setenv("LADING_TOKEN", tokens["ann"])
    for to in ("secret", None):
        with pytest.raises(LadingError, match=REFUSED):
            ForeignDeadLetters(running.url, "mine-letters", tmp_path / str(to)).redrive(None, to=to, server=running.url)
    with pytest.raises(SystemExit) as ended:
        main(["topic", "set", "mine", "dead_letter_topic=secret", "--server", running.url])
    assert ended.value.code
    assert state_of(root) == before
