"""Messages as JSON and as ``--format`` prints them: what is written goes back in exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lading import Consumer, Producer, testing
from lading.cli.message_format import compile_format, indent_json
from lading.client.message_json import parse_lines, to_json
from lading.model.errors import LocalError
from lading.model.headers import Header, Headers
from lading.model.kinds import Kind
from lading.model.message import Message

from .conftest import Run, documents

HEADERS = [
    Header("carrier", Kind.STRING, b"UA"),
    Header("carrier", Kind.STRING, b""),
    Header("carrier", Kind.RAW, None),
    Header("", Kind.STRING, "Zürich\n\x1b[2J\u202e".encode()),
    Header("bytes", Kind.RAW, bytes(range(256))),
    Header("text", Kind.RAW, b"0x00ff"),
    Header("looks like bytes", Kind.STRING, b'{"base64": "AP8="}'),
    Header("ok", Kind.BOOL, b"\x01"),
    Header("broken bool", Kind.BOOL, b"\x02"),
    Header("short", Kind.UINT32, b"\x01"),
    Header("broken text", Kind.STRING, b"\xff"),
    *(Header(kind.word, kind, b"\x80" * size) for kind, size in (
        (Kind.INT8, 1), (Kind.INT16, 2), (Kind.INT32, 4), (Kind.INT64, 8), (Kind.INT128, 16),
        (Kind.UINT8, 1), (Kind.UINT16, 2), (Kind.UINT32, 4), (Kind.UINT64, 8), (Kind.UINT128, 16),
        (Kind.FLOAT32, 4), (Kind.FLOAT64, 8),
    )),
    Header("third", Kind.FLOAT32, bytes.fromhex("abaaaa3e")),
    Header("minus zero", Kind.FLOAT64, bytes.fromhex("0000000000000080")),
    Header("infinite", Kind.FLOAT64, bytes.fromhex("000000000000f0ff")),
    Header("quiet", Kind.FLOAT64, bytes.fromhex("000000000000f87f")),
    # a NaN that carries bits: "nan" would lose them
    Header("signalling", Kind.FLOAT64, bytes.fromhex("010000000000f07f")),
    Header("later kind", 77, b"abc"),
    Header("later kind", 77, None),
]  # fmt: skip


@pytest.mark.parametrize("key", [None, b"", b"k", b"\xff\x00"])
@pytest.mark.parametrize("payload", [None, b"", b"text\r\n", b"\x00\xff"])
def test_json_gives_back_every_byte(key: bytes | None, payload: bytes | None) -> None:
    written = json.dumps(to_json(Message(payload, Headers.of(list(HEADERS)), key=key))).encode()
    (read,) = parse_lines([b"\n", written])
    assert (read.key, read.payload, list(read.headers)) == (key, payload, HEADERS)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "line 1: not JSON, at column 2"),
        (b"\xff", "line 1: the text is not UTF-8"),
        (b"[]", "a message is an object"),
        (b'{"paylod": "x"}', "did you mean 'payload'"),
        (b'{"payload": 1}', "payload: write a text, null, or bytes"),
        (b'{"payload": {"base64": "*"}}', "payload: write a text, null, or bytes"),
        (b'{"payload": "\\ud800"}', "payload: write a text"),
        (b'{"headers": {"a": 1}}', "headers is a list"),
        (b'{"headers": [{"kind": "string"}]}', "write an object with a key"),
        (b'{"headers": [{"key": "\\ud800"}]}', "line 1: the text is not UTF-8"),
        (b'{"headers": [{"key": "a", "kind": "unit16", "value": 1}]}', "did you mean 'uint16'"),
        (
            b'{"headers": [{"key": "a", "kind": "uint8", "value": 256}]}',
            "header 'a': 256 does not fit a header of kind uint8",
        ),
        (b'{"headers": [{"key": "a", "kind": "uint8", "value": 1.5}]}', "header 'a': 1.5 is not a value of kind uint8"),
        (b'{"headers": [{"key": "a", "kind": "bool", "value": 2}]}', "header 'a': 2 is not a value of kind bool"),
    ],
)
def test_a_line_that_cannot_be_sent_says_why(line: bytes, says: str) -> None:
    with pytest.raises(LocalError) as caught:
        list(parse_lines([line]))
    assert says in str(caught.value)


def test_what_poll_wrote_is_sent_again_exactly(lading: Run, broker: testing.BrokerProcess) -> None:
    sent = [header for header in HEADERS if header.key and header.kind in Kind._value2member_map_]
    # what no server would keep is left to the test above
    sent = [header for header in sent if not header.key.startswith(("broken", "short"))]
    with Producer(broker.url) as producer:
        producer.send("first", b"\x00\xff", key=b"\xfe", headers=Headers.of(list(sent)))
        producer.send("first", None, headers=[("a", None), ("a", "")])
        producer.send("first", b"")
    written = lading("message", "poll", "first", "-o", "json").stdout
    assert "sent 3 messages to second" in lading("message", "send", "second", "--json", stdin=written).stderr
    with Consumer(broker.url, "second", timeout_s=0) as consumer:
        first, second, third = consumer
    assert (first.key, first.payload, list(first.headers)) == (b"\xfe", b"\x00\xff", sent)
    assert (second.payload, second.headers.items()) == (None, [("a", None), ("a", "")])
    assert (third.key, third.payload, len(third.headers)) == (None, b"", 0)


def test_format_and_headers_only(lading: Run) -> None:
    lading("message", "send", "formed", "body", "-H", "carrier=UA", "-H", "delay:uint16=12", "-H", "via", "-k", "k1")
    assert lading("message", "poll", "formed", "--format", "%o %k %h{carrier}").stdout == "0 k1 UA\n"
    everything = lading("message", "poll", "formed", "--format", r"%t\t%p|%s|%S|%a|%h|%h{none}|100%%\n").stdout
    assert everything == "formed\t0|body|4|available|carrier=UA,delay=12,via=||100%\n\n"
    (shown,) = documents(lading("message", "poll", "formed", "--headers-only", "-o", "json"))
    assert "payload" not in shown and len(shown["headers"]) == 3
    assert "body" not in lading("message", "poll", "formed", "--headers-only").stdout
    assert "%x" in lading("message", "poll", "formed", "--format", "%x", code=2).stderr
    assert "leave" in lading("message", "poll", "formed", "--format", "%s", "--headers-only", code=2).stderr


def test_format_shows_bytes_that_are_no_text_as_hex() -> None:
    assert compile_format("%k|%s")(Message(b"\xff", Headers(), key=None)) == "|0xff"


ORDER = rb"""{"id": "A-1","order" :{"amount":12.50, "unit price":1e3,"none": {} ,
 "tags":["a,b",{"k":[]}],"big":9007199254740993}, "text": "line\n\"x\" {", "null":null}"""


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("%p %p{id} %p{order.amount}", "3 A-1 12.50"),
        ('%p{order."unit price"}|%p{order.tags}', '1e3|["a,b",{"k":[]}]'),
        ("%p{order.big}%p{null}%p{none.at.all}%p{text}", '9007199254740993line\\n"x" {'),
    ],
)  # fmt: skip
def test_members_of_the_payload_in_a_format(form: str, text: str) -> None:
    assert compile_format(form)(Message(ORDER, partition=3)) == text
    for payload in (None, b"", b"\xff", b"[1]"):
        assert compile_format("%p{id}")(Message(payload)) == ""
    with pytest.raises(LocalError, match=r"%p\{a b\} is no path; write"):
        compile_format("%p{a b}")


def test_a_json_payload_is_indented_and_nothing_in_it_is_changed() -> None:
    lines, count = indent_json(ORDER, 1_000) or ([], 0)
    text = "\n".join(lines)
    assert len(lines) == count
    assert text.split("\n")[:8] == [
        "{", '  "id": "A-1",', '  "order": {', '    "amount": 12.50,', '    "unit price": 1e3,', '    "none": {},',
        '    "tags": [', '      "a,b",',
    ]  # fmt: skip
    assert text.endswith("\n}")
    # literals, also those that Python would round
    assert json.loads(text, parse_float=str, parse_int=str) == json.loads(ORDER, parse_float=str, parse_int=str)
    assert [indent_json(payload, 9) for payload in (b"", b"[1]", b'{"a": NaN}', b'{"a": 1} x', b"\xff")] == [None] * 5


def test_only_lines_that_are_shown_are_made() -> None:
    payload = b'{"a":' + b"[" * 900 + b",".join([b"0"] * 20_000) + b"]" * 900 + b"}"
    lines, count = indent_json(payload, 40) or ([], 0)
    assert (len(lines), count, lines[1], lines[39]) == (40, 2 + 900 + 20_000 + 899 + 1, '  "a": [', "  " * 39 + "[")


def test_poll_shows_selects_and_formats_members(lading: Run) -> None:
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            for number in range(3):
                order = {"id": f"A-{number}", "order": {"amount": number * 75}, "note": "x" * 60}
                producer.send("orders", json.dumps(order).encode(), headers={"tenant": "acme"})
        words = ("message", "poll", "orders", "--from", broker.url, "--where", "payload.order.amount > 100")
        assert lading(*words, "--format", "%o %p{id} %h{tenant}").stdout == "2 A-2 acme\n"
        shown = lading(*words).stdout
        assert '    "order": {\n      "amount": 150\n    },\n' in shown


def test_a_condition_on_payloads_that_are_not_json_says_so(lading: Run) -> None:
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            producer.send("with_ids", b"\0\0\0\0\x07\x02")
            producer.send("with_texts", b"text")
        words = ("--from", broker.url, "--where", "payload.amount > 100")
        sentence = "none of the first 1 payload of {} is a JSON object; add --registry URL, {}"
        asked = lading("message", "poll", "with_ids", *words).stderr
        assert sentence.format("with_ids", "as they seem to have ids of schemas") in " ".join(asked.split())
        asked = lading("message", "poll", "with_texts", *words).stderr
        assert sentence.format("with_texts", "or --payload-schema FILE") in " ".join(asked.split())


def test_poll_shows_payloads_as_their_schemas_say(lading: Run, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}')
    with testing.broker(tmp_path / "data") as broker:
        url = f"http://{broker.endpoints['schema_registry']}"
        lading("message", "send", "decoded", '{"id": 7}', "--schema", str(file), "--registry", url, "-s", broker.url)
        with Producer(broker.url) as producer:
            producer.send("decoded", b"\0\0\0\x03\xe7\x0e")
            producer.send("decoded", b"\0\0\0\0\x01")
            producer.send("decoded", b"plain")
        words = ("message", "poll", "decoded", "--from", broker.url)
        shown = lading(*words, "--registry", url).stdout
        for part in (
            '  AVRO by schema id 1\n  {"id":7}\n', "  schema id 999: the schema does not exist", "\n  plain\n",
            "  schema id 1: the payload is empty (byte 5)",
        ):  # fmt: skip
            assert part in shown
        assert "AVRO" not in lading(*words).stdout
        # nothing listens on this port: messages are shown, with one note for all of them
        away = lading(*words, "--registry", "http://127.0.0.1:9")
        assert away.stdout.count("decoded 0:") == 4 and "\n  plain\n" in away.stdout
        note = "payloads are shown as they are: registry http://127.0.0.1:9: cannot be reached: Connection refused"
        assert " ".join(away.stderr.split()).count(note) == 1
        # a condition cannot be decided without it
        away = lading(*words, "--registry", "http://127.0.0.1:9", "--where", "payload.id = 7", code=2)
        assert "registry http://127.0.0.1:9: cannot be reached" in " ".join(away.stderr.split())
        # what is sent again from it has the bytes
        assert "AVRO" not in lading(*words, "--registry", url, "-o", "json").stdout
