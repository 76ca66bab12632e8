"""The command line as a person uses it, against a real broker."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lading import Consumer, testing
from lading.cli.app import build_app
from lading.cli.connection import absent_columns
from lading.settings.settings import EndpointSettings
from lading.testing.broker_fixture import LadingBroker

from .conftest import Run, documents


@pytest.mark.turns(3, part=0)
def test_send_and_poll_keep_every_header(process: Run) -> None:
    process("topic", "create", "flights", "--partitions", "1")
    process(
        "message", "send", "flights", "body", "-H", "carrier=UA", "-H", "delay:uint16=12", "-H", "via", "-H", "via="
    )
    (message,) = documents(process("message", "poll", "flights", "--output", "json"))
    assert message["headers"] == [
        {"key": "carrier", "kind": "string", "value": "UA"},
        {"key": "delay", "kind": "uint16", "value": 12},
        {"key": "via", "kind": "raw", "value": None},
        {"key": "via", "kind": "string", "value": ""},
    ]
    assert (message["topic"], message["partition"], message["offset"], message["payload"]) == ("flights", 0, 0, "body")


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("00112233-4455-6677-8899-aabbccddeeff", "00112233445566778899aabbccddeeff"),
        ("00112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff"),
        ("258", "0201" + 28 * "0"),
    ],
)
def test_a_message_is_sent_with_an_id(lading: Run, text: str, id_: str) -> None:
    lading("message", "send", "identified", "x", "--id", text)
    found = documents(lading("message", "poll", "identified", "--offset", "-1", "-o", "json"))
    assert [message["id"] for message in found] == [id_]


def test_an_id_that_is_none_is_refused(lading: Run) -> None:
    assert "--id no: write a UUID" in lading("message", "send", "identified", "x", "--id", "no", code=2).stderr


def test_lines_filter_and_offsets(lading: Run) -> None:
    lading("topic", "create", "numbers")
    lading("message", "send", "numbers", "--lines", "-H", "n:int32=1", stdin="one\ntwo\n")
    lading("message", "send", "numbers", "--lines", "-H", "n:int32=2", stdin="three\n")
    found = documents(lading("message", "poll", "numbers", "--where", "n = 2", "-o", "json"))
    assert [message["payload"] for message in found] == ["three"]
    last = documents(lading("message", "poll", "numbers", "--offset", "-2", "-o", "json"))
    assert [message["payload"] for message in last] == ["two", "three"]


@pytest.mark.turns(3, part=2)
def test_a_pipe_is_the_payload_if_none_is_typed(process: Run) -> None:
    assert (
        "sent 1 message to piped (new topic, 1 partition)" in process("message", "send", "piped", stdin="hi\n").stderr
    )
    assert "new topic" not in process("message", "send", "piped", stdin="two\nlines").stderr
    process("message", "send", "piped", stdin="")
    process("message", "send", "piped", "-", stdin="as it is\n")
    process("message", "send", "piped", "typed", stdin="not read")
    found = documents(process("message", "poll", "piped", "-o", "json"))
    assert [message["payload"] for message in found] == ["hi", "two\nlines", None, "as it is\n", "typed"]


def test_a_filter_that_names_no_header_is_told_so(lading: Run, broker: testing.BrokerProcess) -> None:
    lading("topic", "create", "named")
    lading("message", "send", "named", "x", "-H", "delay:int32=1", "-H", "carrier=UA")
    hint = "none of the messages of named has a header 'delai' (did you mean 'delay'?)"
    for server in (broker.url, f"kafka://{broker.endpoints['kafka']}", f"iggy://{broker.endpoints['iggy_tcp']}"):
        said = lading("message", "poll", "named", "--where", "delai > 0 AND carrier = 'UA'", "--from", server).stderr
        assert (hint in said, "header 'carrier'" in said) == (True, False), server
    assert hint in lading("headers", "named", "--where", "delai > 0").stderr
    # as `lading ingest` asks, which may read several topics
    (sentence,) = absent_columns(broker.url, ["named"], "delai int")
    assert sentence.startswith(hint)
    assert hint in lading("state", "set", "named", "--state", "poisoned", "--where", "delai > 0").stderr
    # a text without its quotes is a name: also where other messages are found
    quotes = "has a header 'UA'; for the text write it in single quotes: 'UA'"
    for where in ("carrier = UA", "carrier <> UA OR delay = 1", "delay = 1 OR carrier BETWEEN 'AA' AND UA"):
        assert quotes in lading("message", "poll", "named", "--where", where).stderr, where
        assert quotes in lading("headers", "named", "--where", where).stderr, where
    # a header that there is needs no hint, whatever its values
    assert "none of" not in lading("message", "poll", "named", "--where", "delay > 5").stderr
    wrong = lading("state", "set", "named", "--state", "poison", "--offset", "0", code=2).stderr
    assert "did you mean 'poisoned'" in " ".join(wrong.split())


def test_a_pipeline_tells_of_headers_that_no_message_has(
    lading: Run, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    lading("topic", "create", "judged")
    lading("message", "send", "judged", "x", "-H", "delay:int32=1", "-H", "carrier=UA")
    file = tmp_path / "judged.toml"
    file.write_text(
        f'[source]\nfrom = "{broker.url}"\ntopic = "judged"\n[good]\nto = "parquet:./good"\n'
        '[headers]\ncarrier = "string"\ndelai = "int"\ntail = "string required"\n'
    )
    said = lading("pipeline", "check", str(file)).stderr
    assert "none of the messages looked at has a header 'delai' (did you mean 'delay'?)" in said
    assert "'tail'" not in said, "a required header is told by the quarantine"
    file.write_text(file.read_text().replace("delai", "value"))
    said = lading("pipeline", "check", str(file)).stderr
    assert "none of the messages looked at has a header 'value' (did you mean the field 'payload'?)" in said


def test_a_queue_is_read_by_its_channel(lading: Run, broker: testing.BrokerProcess) -> None:
    queue = f"nsq://{broker.endpoints['nsqlookupd_http']}"
    lading("message", "send", "queued", "--lines", "-H", "n:int32=1", "-s", queue, stdin="one\ntwo\nthree\n")
    read = ("message", "poll", "queued", "--from", queue, "--group", "ops", "-o", "json")
    assert [message["payload"] for message in documents(lading(*read, "-n", "1"))] == ["one"]
    assert [message["payload"] for message in documents(lading(*read, "-n", "2"))] == ["two", "three"]
    said = lading("message", "poll", "queued", "--from", queue, code=2).stderr
    assert "--group name" in said and "lading spool" in said
    assert "/stats" in lading("topic", "list", "--from", queue).stderr


def test_the_header_table(lading: Run) -> None:
    lading("topic", "create", "table")
    lading("message", "send", "table", "x", "-H", "a=1", "-H", "b:uint8=7")
    lading("message", "send", "table", "x", "-H", "a=2", "-H", "a=3")
    rows = {row["key"]: row for row in documents(lading("headers", "table", "-o", "json"))}
    assert (rows["a"]["share"], rows["b"]["share"]) == (100.0, 50.0)
    assert rows["b"]["kinds"] == "uint8"
    assert rows["a"]["duplicates"] == 1
    assert "carrier" not in rows


def test_a_profile(lading: Run, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    lading("topic", "create", "profiled")
    nothing = lading("profile", broker.url, "profiled", code=2).stderr
    assert nothing.count("\n") == 1 and "nothing to profile" in nothing
    lading("message", "send", "profiled", "--lines", "-H", "n=12", "-H", "at=2024-05-01T12:00:00Z", stdin="a\nb\n")
    page = tmp_path / "page.html"
    said = lading("profile", broker.url, "profiled", "--html", str(page))
    assert 'n = "bigint required"' in said.stdout and "2 messages of 'profiled'" in said.stderr
    assert page.read_text().startswith("<!doctype html>")
    document = json.loads(lading("profile", broker.url, "profiled", "-o", "json").stdout)
    assert [(row["key"], row["bytes"], row["looks"]) for row in document["headers"]] == [
        ("at", 44, {"timestamp": 1.0}), ("n", 6, {"integer": 1.0}),
    ]  # fmt: skip
    assert "[headers]" in document["contract"]
    queue = f"nsq://{broker.endpoints['nsqlookupd_http']}"
    document = json.loads(lading("profile", queue, "profiled", "--group", "look", "-n", "2", "-o", "json").stdout)
    assert document["messages"] == 2
    refused = lading("profile", broker.url, "profiled", "--html", str(tmp_path / "no" / "page.html"), code=2).stderr
    assert "cannot be written" in refused


def test_dead_letters_of_others(lading: Run, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    lading("topic", "create", "orders")
    lading("topic", "create", "failed")
    told = ("-H", "__dlq.errors.topic=orders", "-H", "__dlq.errors.partition=0", "-H", "__dlq.errors.offset=3")
    lading("message", "send", "failed", "body", *told, "-H", "__dlq.errors.message=too often")
    (row,) = documents(lading("dead-letters", "list", broker.url, "failed", "-o", "json"))
    assert (row["convention"], row["origin_offset"], row["reason"]) == ("share group", 3, "too often")
    command = ("dead-letters", "redrive", broker.url, "failed", "--state", str(tmp_path / "state"))
    assert "1 would be sent to their origin" in lading(*command, "--dry-run").stderr
    assert json.loads(lading(*command, "-o", "json").stdout)["sent"] == 1
    assert "0 sent to their origin, 1 had been sent already" in lading(*command).stderr
    (message,) = documents(lading("message", "poll", "orders", "-o", "json"))
    assert (message["payload"], [one["key"] for one in message["headers"]]) == ("body", ["lading-replays"])


def test_streams_and_topics(lading: Run) -> None:
    lading("stream", "create", "airlines", "--id", "7")
    lading("topic", "create", "airlines.arrivals", "-p", "3")
    streams = documents(lading("stream", "list", "-o", "json"))
    assert [stream["id"] for stream in streams if stream["name"] == "airlines"] == [7]
    shown = json.loads(lading("topic", "show", "airlines.arrivals", "-o", "json").stdout)
    assert (shown["stream"], shown["topic"], len(shown["partitions"])) == ("airlines", "arrivals", 3)
    refused = lading("topic", "delete", "airlines.arrivals", code=2)
    assert "--yes" in refused.stderr
    lading("topic", "delete", "airlines.arrivals", "--yes")
    lading("stream", "delete", "airlines", "--yes")
    assert "airlines" not in lading("topic", "list").stdout


def test_a_topic_that_others_cannot_name_says_why(lading: Run) -> None:
    long = "a" * 65
    for name, unseen in (("seen", []), ("a b", ["Kafka", "NSQ"]), (long, ["NSQ"]), ("x#ephemeral", ["Kafka"])):
        created = lading("topic", "create", name).stderr
        assert [protocol for protocol in ("Kafka", "NSQ") if f"not accessible to {protocol}" in created] == unseen
        assert list(json.loads(lading("topic", "show", name, "-o", "json").stdout)["hidden"]) == unseen
        said = lading("topic", "show", name).stderr
        for protocol in ("Kafka", "NSQ"):
            assert (f"not accessible to {protocol} clients: a name there has 1 to" in said) is (protocol in unseen)


def test_a_topic_made_by_its_first_message_says_so_too(lading: Run) -> None:
    said = lading("message", "send", "c d", "hi").stderr
    assert "(new topic, 1 partition)" in said
    assert "not accessible to Kafka clients" in said
    assert "not accessible" not in lading("message", "send", "c d", "hi").stderr


def test_a_size_that_a_server_does_not_report_is_a_dash(lading: Run, broker: testing.BrokerProcess) -> None:
    lading("message", "send", "sized", "hi")
    kafka = f"kafka://{broker.endpoints['kafka']}"
    (row,) = (row for row in lading("topic", "list", "--from", kafka).stdout.splitlines() if " sized " in row)
    assert row.split()[-1] == "-"
    (document,) = (
        row for row in documents(lading("topic", "list", "-f", kafka, "-o", "json")) if row["name"] == "sized"
    )
    assert document["size_bytes"] is None


def test_the_source_of_a_topic_is_an_option_too(lading: Run, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    lading("message", "send", "placed", "hi", "-H", "carrier=UA")
    first = lading("profile", broker.url, "placed", "-o", "json").stdout
    for option in ((), ("--from", broker.url)):
        assert lading("profile", "placed", *option, "-o", "json").stdout == first
        assert "no dead letters in placed" in lading("dead-letters", "list", "placed", *option).stderr
        assert "0 would be sent" in lading("dead-letters", "redrive", "placed", *option, "--dry-run").stderr
    spool, queue = tmp_path / "spool", f"nsq://{broker.endpoints['nsqd_tcp']}"
    assert "1 message consumed" in lading("spool", "placed", str(spool), "--from", queue, "--once").stderr


def test_groups_of_all_protocols_with_their_lag(lading: Run, broker: testing.BrokerProcess) -> None:
    lading("topic", "create", "grouped")
    lading("message", "send", "grouped", "--lines", stdin="a\nb\nc\n")
    with Consumer(broker.url, "grouped", group="ops") as consumer:
        assert len(consumer.poll(10, 5.0)) == 3
        consumer.commit()
        lading("message", "send", "grouped", "--lines", stdin="d\ne\n")
        rows = documents(lading("group", "list", "--output", "json"))
        # channels of the tests before are in the list too
        (row,) = [row for row in rows if row["protocol"] != "nsq"]
        assert (row["protocol"], row["group"], row["members"], row["lag"]) == ("native", "ops", 1, 2)
        shown = lading("group", "show", "ops")
        assert "native group: Stable, generation 1, lag 2\nmember " in shown.stderr
    assert "kafka group 'nobody' does not exist" in lading("group", "show", "nobody", code=2).stderr


def test_a_data_directory_can_be_read_without_a_broker(lading: Run, tmp_path: Path) -> None:
    with testing.broker(data_dir=tmp_path / "data") as running:
        lading("message", "send", "kept", "x", "-H", "a=1", LADING_SERVER=running.url)
    (message,) = documents(lading("message", "poll", "kept", "--from", str(tmp_path / "data"), "-o", "json"))
    assert message["headers"] == [{"key": "a", "kind": "string", "value": "1"}]


# arguments -> what the one sentence on stderr must say
WRONG = [
    (("message", "poll", "flihgts"), "flihgts"),
    (("message", "poll", "flights", "--where", "delay >"), "delay >"),
    (("message", "send", "flights", "x", "-H", "delay:unit16=3"), "did you mean 'uint16'"),
    (("message", "poll", "flights", "--offset", "somewhere"), "earliest, latest"),
    (("message", "poll", "flights", "--from", "kafak://127.0.0.1:9092"), "kafak"),
    (("topic", "list", "--from", "./no-such-directory"), "no-such-directory"),
    (("serve", "--data", "x", "--set", "endpoints.iggy_tpc.address=127.0.0.1:0"), "iggy_tcp"),
    (("serve", "--data", "x", "--set", "durability=perhaps"), "durability"),
    (("serve", "--data", "x", "--config", "missing.toml"), "missing.toml"),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("arguments", "says"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_what_cannot_be_is_one_sentence_and_code_2(lading: Run, arguments: tuple[str, ...], says: str) -> None:
    lading("topic", "list")
    done = lading(*arguments, code=2)
    assert says in done.stderr
    assert done.stdout == ""


@pytest.mark.turns(3, part=1)
def test_an_unreachable_server_says_what_to_start(process: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    done = process("topic", "list", code=2, LADING_SERVER=f"lading://127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in done.stderr
    assert "lading serve" in done.stderr


def test_single_messages_without_a_key_reach_every_partition(lading: Run) -> None:
    """Each command began with partition 0, so that `--partitions 2` of First steps was never seen to do anything."""
    lading("topic", "create", "spread", "--partitions", "2")
    seen: set[int] = set()
    for _ in range(40):
        lading("message", "send", "spread", "x")
        rows = lading("message", "poll", "spread", "-o", "json").stdout.splitlines()
        seen = {json.loads(row)["partition"] for row in rows}
        if len(seen) == 2:
            break
    assert seen == {0, 1}


def test_a_send_that_fails_says_how_much_was_sent(lading: Run) -> None:
    with LadingBroker(faults=True) as away:
        lading("message", "send", "lines", "--lines", "--server", away.url, stdin="a\nb\n")
        with away.full_disk():
            failed = lading("message", "send", "lines", "--lines", "--server", away.url, stdin="a\nb\nc\n", code=2)
    assert "sent 0 of 3 messages that were read" in failed.stderr and "the disk is full" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.turns(3, part=1)
def test_a_taken_port_names_the_setting(lading: Run, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    address = broker.endpoints["iggy_tcp"]
    own = f"--set=endpoints.iggy_tcp.address={address}"
    done = lading("serve", "--data", str(tmp_path), "--free-ports", own, code=2)
    assert "endpoints.iggy_tcp.address" in done.stderr
    both = (own, f"--set=endpoints.kafka.address={broker.endpoints['kafka']}")
    done = lading("serve", "--data", str(tmp_path), "--free-ports", *both, code=2)
    assert "2 addresses are in use" in done.stderr and "--only kafka" in done.stderr
    for key in ("endpoints.iggy_tcp.address", "endpoints.kafka.address"):
        assert key in done.stderr


ONLY = (
    (("kafka",), {"admin", "kafka"}),
    (("kafka, nsqd_tcp",), {"admin", "kafka", "nsqd_tcp"}),
    (("nsqd", "iggy_tcp"), {"admin", "nsqd_tcp", "nsqd_http", "iggy_tcp"}),
)


@pytest.mark.parametrize(("words", "names"), ONLY)
def test_only_what_is_named_is_listened_for(words: tuple[str, ...], names: set[str], tmp_path: Path) -> None:
    only = [part for word in words for part in ("--only", word)]
    running = testing.start(
        tmp_path / "data",
        {"endpoints.admin.address": testing.FREE_PORT},
        tmp_path / "log",
        options=["--free-ports", *only],
    )
    try:
        assert set(running.endpoints) == names
    finally:
        running.stop()


def test_a_word_that_begins_no_endpoint_is_refused(lading: Run, tmp_path: Path) -> None:
    refused = lading("serve", "--data", str(tmp_path / "data"), "--only", "kafak", code=2)
    assert "'kafak' begins no endpoint" in refused.stderr and "nsqd_tcp" in refused.stderr


@pytest.mark.turns(3, part=1)
def test_a_data_directory_has_one_owner(lading: Run, broker: testing.BrokerProcess) -> None:
    sets = [f"--set=endpoints.{name}.address=127.0.0.1:0" for name in EndpointSettings.model_fields]
    done = lading("serve", "--data", str(broker.data_dir), *sets, code=2)
    assert str(broker.pid) in done.stderr


def test_config_show_says_where_each_value_came_from(lading: Run, tmp_path: Path) -> None:
    (tmp_path / "lading.toml").write_text('durability = "os"\n[endpoints.admin]\naddress = "127.0.0.1:7171"\n')
    done = lading(
        "config", "show", "--origin", "-c", str(tmp_path / "lading.toml"), "--set", "durability=fsync", "-o", "json",
        LADING__ENDPOINTS__IGGY_HTTP__ENABLED="false",
    )  # fmt: skip
    rows = json.loads(done.stdout)
    assert rows["durability"]["value"] == "fsync" and "--set" in rows["durability"]["origin"]
    assert rows["endpoints.admin.address"]["value"] == "127.0.0.1:7171"
    assert "lading.toml" in rows["endpoints.admin.address"]["origin"]
    assert rows["endpoints.iggy_http.enabled"]["value"] is False
    assert "LADING__ENDPOINTS__IGGY_HTTP__ENABLED" in rows["endpoints.iggy_http.enabled"]["origin"]
    assert rows["workers"]["origin"] == "default"


@pytest.mark.parametrize(
    "command",
    [
        ("serve",), ("demo",), ("doctor",), ("headers",), ("ingest",), ("config", "show"), ("stream", "list"),
        ("stream", "create"), ("stream", "delete"), ("topic", "list"), ("topic", "show"), ("topic", "create"),
        ("topic", "delete"), ("message", "send"), ("message", "poll"), ("message", "tail"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_help_has_an_example(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(build_app(), [*command, "--help"])
    assert shown.exit_code == 0
    assert f"lading {' '.join(command)}" in " ".join(shown.stdout.split())
