"""Objects and arrays in an ext: what is passed over at once has the same end as what is read byte by byte."""

from __future__ import annotations

import json
import sys
from random import Random

import pytest

from lading.dialects.nsq import json_text
from lading.dialects.nsq.ext import headers_of
from lading.dialects.nsq.json_text import JsonMember, NotJson, is_json, members
from lading.dialects.nsq.layout import JSON_EXT

SEEDS = (
    b'{"a":1,"b":[1,2,{"c":"x\\u00e9\\n"}],"c":{"d":null,"e":[true,false]},"f":-1.5e3}',
    b'[[[[1]]],{"a":{}},[],"x"]',
    b'{"o":' + b'{"a":' * 61 + b"1" + b"}" * 62,
    b'{"o":' + b"[" * 62 + b"]" * 62 + b"}",
    b'{"o":' + b"[" * 61 + b'"]["' + b"]" * 61 + b"}",
    b'{"a":[NaN,Infinity]}',
    b'{"a":[01,1.,.5,+1,--]}',
    b'{"a":["\xff\xfe",{"\x80":1}],"b":["\x01\x02\\"]",{"b":"}"}]}',
    b'{"a":[1e999,' + b"9" * 5000 + b'],"a":{"a":1,"a":2}}',
)
BYTES = b'{}[]",:\\u019eE+-.truefalsn \t\n\x00\x1f\x80\xc3\xa9\xffNaI'


def mutated(random: Random) -> bytes:
    """A seed with some bytes changed, put in or taken out."""
    data = bytearray(random.choice(SEEDS))
    for _ in range(random.choice((0, 1, 2, 4))):
        at = random.randrange(len(data))
        data[at : at + random.randrange(3)] = bytes(random.choices(BYTES, k=random.randrange(3)))
    return bytes(data)


def read(data: bytes) -> list[JsonMember] | str | None:
    """The members, or that it is no JSON."""
    try:
        return members(data)
    except NotJson:
        return "no JSON"


def test_what_is_passed_over_at_once_ends_where_it_ends(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(6)
    texts = [*SEEDS, *(mutated(random) for _ in range(200_000 if full else 3000))]
    at_once = [read(text) for text in texts]
    monkeypatch.setattr(json_text, "_FLAT_OBJECT", _Nothing())
    monkeypatch.setattr(json_text, "_FLAT_MEMBER", _Nothing())
    monkeypatch.setattr(json_text._Reader, "_skip_proper", lambda reader: False)
    assert [read(text) for text in texts] == at_once
    monkeypatch.setattr(json_text, "_FLAT_NESTED", _Nothing())
    assert [read(text) for text in texts] == at_once
    good = sum(isinstance(found, list) for found in at_once)
    print(f"{len(texts)} texts, {good} of them objects")
    assert 500 < good < len(texts) - 500


class _Nothing:
    """A pattern that matches nothing."""

    def match(self, data: bytes, at: int) -> None:
        """Match nothing."""

    def fullmatch(self, data: bytes) -> None:
        """Match nothing."""


def test_flat_members_that_are_read_at_once_are_those_that_are_read_by_parts(
    full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(7)
    flat = b'{"a":1,"b" : "x\\u00e9\\n" , "c":null,"\\"d":-1.5e3,"e":"\x01\xff","f":[1,{"g":true}],"h":false}'
    texts = [flat]
    for _ in range(100_000 if full else 3000):
        data = bytearray(flat)
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            at = random.randrange(len(data))
            data[at : at + random.randrange(3)] = bytes(random.choices(BYTES, k=random.randrange(3)))
        texts.append(bytes(data))
    at_once = [read(text) for text in texts]
    assert [is_json(text) for text in texts] == [found != "no JSON" for found in at_once]
    monkeypatch.setattr(json_text, "_FLAT_NESTED", _Nothing())
    monkeypatch.setattr(json_text, "_FLAT_OBJECT", _Nothing())
    assert [read(text) for text in texts] == at_once
    monkeypatch.setattr(json_text, "_FLAT_MEMBER", _Nothing())
    assert [read(text) for text in texts] == at_once
    good = sum(isinstance(found, list) for found in at_once)
    assert 500 < good < len(texts) - 500


def test_a_flat_member_is_read_by_one_match() -> None:
    """3,000 headers took 30 ms by 22 calls a member, in which other clients waited."""
    ext = b"{" + b",".join(b'"key-%d":"value"' % number for number in range(300)) + b"}"
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        found = members(ext)
    finally:
        sys.setprofile(None)
    assert found is not None
    assert len(found) == 300
    assert calls <= 300 * 8, f"{calls / 300:.1f} calls a member"


def test_whether_a_flat_object_is_json_takes_no_call_for_each_member() -> None:
    """A publication of 3,000 headers took 8 ms, in which other clients waited, to see only that it is JSON."""
    ext = b"{" + b",".join(b'"key-%d":"value"' % number for number in range(300)) + b"}"
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        is_good = is_json(ext)
    finally:
        sys.setprofile(None)
    assert is_good
    assert calls <= 5


ODD_VALUES = (b'{"a":1}', b"[1,2]", b'"\\q\xff"', b"1e999", b"9" * 30, b'"x"', b"null", b"1.5", b'"\\u00e9"')


def test_odd_headers_take_few_calls_each() -> None:
    """3,000 took 22 ms by 40 calls each: each value was parsed up to three times."""
    ext = b"{" + b",".join(b'"h%d":' % number + ODD_VALUES[number % 9] for number in range(900)) + b"}"
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        found = headers_of(JSON_EXT, ext)
    finally:
        sys.setprofile(None)
    # the last one marks those whose text is JSON
    assert len(found) == 901
    assert calls <= 900 * 27, f"{calls / 900:.1f} calls a header"


def test_lenient_values_are_tried_as_proper_json_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure counted the lines before it: 8,000 values of one message took 0.4 s."""
    tries = []

    class Decoder(json.JSONDecoder):
        def raw_decode(self, text: str, at: int = 0) -> tuple[object, int]:
            tries.append(at)
            return super().raw_decode(text, at)

    monkeypatch.setattr(json_text, "_EXTENTS", Decoder(strict=False))
    assert read(b"{" + b",".join([b'"a":[[01]]'] * 500) + b"}") == [JsonMember(b"a", b"[[01]]")] * 500
    assert len(tries) == 1


def test_depth_is_bounded_either_way() -> None:
    assert read(b'{"a":' + b"[" * 62 + b"]" * 62 + b"}") != "no JSON"
    assert read(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}") == "no JSON"
    assert read(b'{"a":' + b"[" * 60_000) == "no JSON"
