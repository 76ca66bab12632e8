"""JSON payloads: verdicts with their byte, values by their paths, kernels as their twin, and both as other parsers."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic_core import from_json

from lading.kernels import engine
from lading.payloads import fallback, walk
from lading.payloads.found import VERDICTS
from lading.payloads.paths import parse_path, write_path
from lading.payloads.walk import WalkedJson

DEEP = 1000
CASES: list[tuple[bytes | None, str, int]] = [
    (b'{"a":1}', "is good", 0),
    (b' {\n "a" : [ 1 , {} , [ ] ] } \t', "is good", 0),
    (None, "is null", 0),
    (b"", "is empty", 0),
    (b" \n", "is empty", 2),
    (b"[1]", "is JSON, and not an object", 0),
    (b" null", "is JSON, and not an object", 1),
    (b'"a"', "is JSON, and not an object", 0),
    (b'{"a":1', "ends too early", 6),
    (b'{"a":tru', "ends too early", 8),
    (b'{"a":-', "ends too early", 6),
    (b'{"a":"\\u00', "ends too early", 10),
    (b'{"a":1}{"a":2}', "has something after its end", 7),
    (b'{"a":1,}', "has a character that JSON does not have there", 7),
    (b"{'a':1}", "has a character that JSON does not have there", 1),
    (b'{"a":NaN}', "has a character that JSON does not have there", 5),
    (b'{"a":-Infinity}', "has an invalid number", 6),
    (b'{"a":nul1}', "has a character that JSON does not have there", 8),
    (b'{"a":01}', "has an invalid number", 6),
    (b'{"a":1.}', "has an invalid number", 7),
    (b'{"a":1e+}', "has an invalid number", 8),
    (b'{"a":"\x01"}', "has a control character in a string", 6),
    (b'{"a":"\\x"}', "has an invalid escape", 6),
    (b'{"a":"b\\u12g4"}', "has an invalid escape", 7),
    (b'{"a":"\xc3\xa9\xff"}', "is not UTF-8", 8),
    (b'{"other":"\xed\xa0\x80"}', "is not UTF-8", 10),
    (b"\xef\xbb\xbf{}", "has a character that JSON does not have there", 0),
    (b'{"a":/*c*/1}', "has a character that JSON does not have there", 5),
    (b'{"z":' + b"[" * (DEEP - 1) + b"]" * (DEEP - 1) + b"}", "is good", 0),
    (b'{"z":' + b"[" * DEEP + b"]" * DEEP + b"}", f"has more than {DEEP:,} objects", 5 + DEEP - 1),
    (b'{"z":' + b"[" * 10_000 + b"}", f"has more than {DEEP:,} objects", 5 + DEEP - 1),
]


def walk_paths(payloads: list[bytes | None], *paths: str) -> WalkedJson:
    return walk.walk_json(pa.array(payloads, pa.binary()), [parse_path(path) or () for path in paths])


def texts_of(walked: WalkedJson, path: str) -> list[Any]:
    """Return the values of a path: texts, None for null, ... for absent, and "!" for one that cannot be read."""
    located, broken = walked.values[parse_path(path) or ()].locate(whole_numbers=False)
    return [
        "!" if broken[row] else ... if size == -1 else None if size == -2
        else located.data[start : start + size].tobytes().decode()
        for row, (start, size) in enumerate(zip(located.start, located.length, strict=True))
    ]  # fmt: skip


def test_every_payload_has_a_verdict_with_its_byte_and_leaves_its_neighbours_alone(half: str) -> None:
    good = b'{"a":"kept","b":{"c":2}}'
    payloads = [payload for case, _, _ in CASES for payload in (good, case)] + [good]
    walked = walk_paths(payloads, "payload.a", "payload.b.c")
    for row, (_, words, position) in enumerate(CASES):
        at = 2 * row + 1
        assert VERDICTS[walked.verdict[at]].startswith(words), payloads[at]
        assert walked.position[at] == position, payloads[at]
        assert bool(walked.malformed[at]) == (words not in ("is good", "is null"))
    assert texts_of(walked, "payload.a")[::2] == ["kept"] * (len(CASES) + 1)
    assert texts_of(walked, "payload.b.c")[::2] == ["2"] * (len(CASES) + 1)
    assert all(value is ... for value, bad in zip(texts_of(walked, "payload.a"), walked.malformed, strict=True) if bad)
    assert walked.describe(2 * 8 + 1) == "ends too early (byte 6)"


def test_values_are_found_by_their_paths(half: str) -> None:
    walked = walk_paths(
        [
            b'{"o":{"x":1,"in":{"y":"z"}},"t":"a\\n\\u00e9\\ud83d\\ude00","n":-1.50e3,"b":true,"l":[1, 2]}',
            b'{"o":null,"t":null,"b":false}',
            b'{"o":{"x":1,"in":{"y":1}},"o":{"in":7},"t":"\\ud800"}',
            b'{"o":[1],"\\u0074":"caf\xc3\xa9"}',
            None,
        ],
        *("payload.o.x", "payload.o.in.y", "payload.o.in", "payload.o"),
        *("payload.t", "payload.n", "payload.b", "payload.l"),
    )  # fmt: skip
    assert not walked.malformed.any()
    assert texts_of(walked, "payload.o.x") == ["1", None, ..., "!", ...]
    assert texts_of(walked, "payload.o.in.y") == ["z", None, "!", "!", ...]
    assert texts_of(walked, "payload.o.in") == ['{"y":"z"}', None, "7", "!", ...]
    assert texts_of(walked, "payload.o") == ['{"x":1,"in":{"y":"z"}}', None, '{"in":7}', "[1]", ...]
    assert texts_of(walked, "payload.t") == ["a\né😀", None, "!", "café", ...]
    assert texts_of(walked, "payload.n") == ["-1.50e3", ..., ..., ..., ...]
    assert texts_of(walked, "payload.b") == ["true", "false", ..., ..., ...]
    assert texts_of(walked, "payload.l") == ["[1, 2]", ..., ..., ..., ...]


def test_members_in_any_order_are_found_whatever_came_before(half: str) -> None:
    # the kernel first looks for the name that came next in an earlier payload
    rng = random.Random(5)
    members = {"a": 1, "abcdefgh": 2, "abcdefghi": 3, "o": {"a": 4, "b": 5}, 'q"': 6, "other": 7, "ab": 8}
    texts: list[bytes | None] = []
    for _ in range(200):
        names = rng.sample(list(members), rng.randint(1, len(members)))
        separators = rng.choice([(",", ":"), (" , ", " : ")])
        texts.append(json.dumps({name: members[name] for name in names}, separators=separators).encode())
    paths = {"a": "a", "abcdefgh": "abcdefgh", "abcdefghi": "abcdefghi", "ab": "ab", 'q"': '"q"""'}
    walked = walk_paths(texts, *(f"payload.{path}" for path in paths.values()), "payload.o.a", "payload.o.b")
    assert not walked.malformed.any()
    documents = [json.loads(text or b"") for text in texts]
    for name, path in paths.items():
        assert texts_of(walked, f"payload.{path}") == [str(one[name]) if name in one else ... for one in documents]
    for name in "ab":
        expected = [str(one["o"][name]) if "o" in one else ... for one in documents]
        assert texts_of(walked, f"payload.o.{name}") == expected


def test_names_that_json_writes_otherwise_are_no_short_cut(half: str) -> None:
    # bytes that look like the name between quotes, and are another name, not UTF-8, or cut
    walked = walk.walk_json(
        pa.array([b'{"q\\"":1}', b'{"q"":1}', b'{"\xed\xa0\x80":1}', b'{"x', b'{"x"', b'{"x":'], pa.binary()),
        [('q"',), ("\ud800",), ("x",)],
    )
    words = [VERDICTS[verdict] for verdict in walked.verdict]
    assert words[0] == "is good"
    assert [word.split()[0] for word in words[1:]] == ["has", "is", "ends", "ends", "ends"]
    assert walked.position.tolist() == [0, 4, 2, 3, 4, 5]


def test_of_a_name_with_escapes_nothing_but_the_name_is_unescaped() -> None:
    # once the quote, the colon and all white space around it were written too, beyond the room for the name
    kernels, rooms = engine.load(walk.KERNEL_MODULE), []

    class WithRoom:
        """The kernel, whose room for names has other memory after it."""

        def walk_json(self, *arguments: Any) -> int:
            room = np.full(arguments[7].size + 4096, 7, np.uint8)
            rooms.append(room[arguments[7].size :])
            found: int = kernels.walk_json(*arguments[:7], room[: arguments[7].size], *arguments[8:])
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "select", lambda home, twin, size_bytes: WithRoom())
        texts = [b'{"\\u0061bc"' + b" " * size + b":" + b" " * size + b"1}" for size in (0, 1, 2000)]
        walked = walk_paths([*texts], "payload.abc")
    assert texts_of(walked, "payload.abc") == ["1", "1", "1"]
    assert (rooms[0] == 7).all()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("payload.a.b-c", ("a", "b-c")),
        ('payload."a.b".c', ("a.b", "c")),
        ("payload.`x y`", ("x y",)),
        ('payload."say ""a"""', ('say "a"',)),
        ('payload.""', ("",)),
        ("payload", None),
        ("payload.", None),
        ("payloads.a", None),
    ],
)
def test_paths_are_read_and_written(text: str, names: tuple[str, ...] | None) -> None:
    assert parse_path(text) == names
    if names is not None:
        assert parse_path(write_path(names)) == names


SEEDS = [
    b'{"a":1,"b":{"c":"x\\u00e9"},"d":[1,2.5,{"q":null}]}',
    b'{"a":"caf\xc3\xa9","b":null,"d":true,"zz":{"y":[[],{}]}}',
    b' { "b" : { "c" : -1.5e10 , "c":false} , "a" : "\\n\\ud83d\\ude00" } ',
    b'{"\\u0061":"esc","b":5,"a":0.1E-2,"long name of a member":"a text of more than eight bytes"}',
    b'[1,{"a":[]}]',
]
LETTERS = b'{}[]",:\\u0123456789abcdeftrulsnE.-+ \n\xc3\xa9\xff\x00\x1f'
PATHS = ("payload.a", "payload.b.c", "payload.b", "payload.d", 'payload."long name of a member"')


def damage(rng: random.Random) -> bytes:
    text = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                text[at : at + 1] = bytes([rng.choice(LETTERS)])
            case 1:
                text.insert(at, rng.choice(LETTERS))
            case 2:
                del text[at : at + rng.randrange(1, 5)]
            case _:
                other = rng.choice(SEEDS)
                text[at:at] = other[rng.randrange(len(other)) :][: rng.randrange(8)]
    return bytes(text)


def refuse_constant(word: str) -> Any:
    raise ValueError(word)


def read_with_others(text: bytes) -> Any:
    """Return what the standard library and jiter read alike, or ValueError as a value."""
    try:
        first: Any = json.loads(text.decode(), parse_constant=refuse_constant)
    except ValueError:
        first = ValueError
    try:
        second: Any = from_json(text, allow_inf_nan=False)
    except ValueError:
        second = ValueError
    # one of them accepts half of a surrogate pair, which is valid JSON and no text
    if second is ValueError and b"\\u" in text:
        second = first
    assert (first is ValueError) == (second is ValueError) or b"e" in text.lower(), text
    return first


def test_any_bytes_give_values_or_a_verdict_as_other_parsers_read_them(full: bool) -> None:
    rng, count = random.Random(41), 1_000_000 if full else 10_000
    kernels = engine.load(walk.KERNEL_MODULE)
    for first in range(0, count, 10_000):
        texts = [damage(rng) for _ in range(min(10_000, count - first))]
        walked, twin = (_walk_with(half, texts) for half in (kernels, fallback))
        assert np.array_equal(walked.verdict, twin.verdict)
        assert np.array_equal(walked.position, twin.position)
        found = {path: texts_of(walked, path) for path in PATHS}
        assert found == {path: texts_of(twin, path) for path in PATHS}
        for row, text in enumerate(texts):
            document = read_with_others(text)
            assert (walked.verdict[row] == 0) == isinstance(document, dict), text
            if walked.verdict[row] == 0:
                for path in PATHS:
                    assert_same(found[path][row], document, parse_path(path) or (), text)


def _walk_with(half: Any, texts: list[bytes]) -> WalkedJson:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "select", lambda home, twin, size_bytes: half)
        return walk_paths(list(texts), *PATHS)


def assert_same(value: Any, document: Any, path: tuple[str, ...], text: bytes) -> None:
    for name in path:
        if document is not None and not isinstance(document, dict):
            assert value == "!", text
            return
        document = (
            ... if document is None and name != path[-1] else None if document is None else document.get(name, ...)
        )
        if document is ...:
            break
    if document is ... or document is None:
        assert value is document or (value is None and document is ...), text
    elif isinstance(document, str):
        assert value == ("!" if any("\ud800" <= letter < "\ue000" for letter in document) else document), text
    else:
        assert json.loads(value) == document, text
