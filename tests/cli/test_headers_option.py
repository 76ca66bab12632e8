"""``-H``: what each spelling means, and what a wrong one tells its writer."""

from __future__ import annotations

import pytest

from lading.cli.headers_option import describe_colons, parse_headers
from lading.model.errors import LocalError

# spelling -> (key, kind code of the Iggy seed, value bytes)
SPELLINGS = [
    ("carrier=UA", "carrier", 2, b"UA"),
    ("empty=", "empty", 2, b""),
    ("null", "null", 1, None),
    ("delay:uint16=12", "delay", 10, b"\x0c\x00"),
    ("delay:int8=-1", "delay", 4, b"\xff"),
    ("big:uint128=0x0100", "big", 13, b"\x00\x01" + bytes(14)),
    ("ok:bool=true", "ok", 3, b"\x01"),
    ("ratio:float64=1.5", "ratio", 15, bytes.fromhex("000000000000f83f")),
    ("ratio:float32=-inf", "ratio", 14, bytes.fromhex("000080ff")),
    ("bytes:raw=0x00ff", "bytes", 1, b"\x00\xff"),
    ("bytes:raw=plain", "bytes", 1, b"plain"),
    ("url=http://a:b=c", "url", 2, b"http://a:b=c"),
    ("urn:isbn=12", "urn:isbn", 2, b"12"),
]


@pytest.mark.parametrize(("option", "key", "kind", "value"), SPELLINGS)
def test_spelling(option: str, key: str, kind: int, value: bytes | None) -> None:
    assert [tuple(header) for header in parse_headers([option])] == [(key, kind, value)]


def test_order_and_duplicates_are_kept() -> None:
    headers = parse_headers(["a=1", "b", "a:uint8=2"])
    assert [(header.key, header.typed) for header in headers] == [("a", "1"), ("b", None), ("a", 2)]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("delay:foo=3", "sent with the key 'delay:foo': 'foo' is not a header kind; write delay:foo:string=… if that"),
        ("delay:=3", "no kind follows the colon; write delay::string=…"),
        ("delay:uint16", "sent with the key 'delay:uint16' and a null; a null has no kind: write -H delay"),
        ("http://host=3", None),
        ("http://host", None),
        ("delay:foo:string=3", None),
        ("delay:uint16=3", None),
        ("delay", None),
        ("urn:isbn", None),
    ],
)
def test_a_colon_that_may_be_a_mistyped_kind_is_named(option: str, says: str | None) -> None:
    sentences = list(describe_colons([option]))
    assert (says is None and not sentences) or (says is not None and [says in one for one in sentences] == [True])


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("delay:unit16=3", "did you mean 'uint16'"),
        ("a:str=1", "did you mean 'string'"),
        ("a:integer=1", "did you mean 'int64'"),
        ("a:Double=1", "did you mean 'float64'"),
        ("delay:uint8=256", "-H delay:uint8=256: 256 does not fit a header of kind uint8 (0 to 255)"),
        ("delay:uint8=many", "'many' is not a valid uint8"),
        ("ok:bool=perhaps", "'perhaps' is not a valid bool"),
        ("=x", "a header needs a key"),
    ],
)
def test_a_wrong_spelling_says_what_to_write(option: str, says: str) -> None:
    with pytest.raises(LocalError) as caught:
        parse_headers([option])
    assert says in str(caught.value)
