"""Options of streams, topics and users: header blocks with text keys; those of a topic (iggy-current.md B2, B6)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ....model.errors import MalformedMessage
from ....model.kinds import FIXED_SIZE_BYTES, Kind
from ..classic.errors import StatusError
from ..messages.header_block_fallback import list_headers
from ..messages.layout import TYPED
from . import limits
from .size_text import parse_size

_PREFIX = struct.Struct("<BI")
INVALID_TOPIC_SIZE: Final = 1019
UNSUPPORTED_KEY: Final = 4041
INVALID_VALUE: Final = 4042
TOO_LARGE: Final = 4043
UNLIMITED: Final = (1 << 64) - 1
"""An expiry or a size without a bound."""


class OptionSpec(NamedTuple):
    """An option of a topic: its kind, its default, and a sentence for people."""

    kind: Kind
    default: bytes
    description: str


class Option(NamedTuple):
    """A value as it was sent."""

    kind: int
    value: bytes


Options = Mapping[str, Option]

_NEVER: Final = struct.pack("<Q", UNLIMITED)
TOPIC_OPTIONS: Final[Mapping[str, OptionSpec]] = {
    "compression_algorithm": OptionSpec(Kind.STRING, b"none", "Compression algorithm (none, gzip)"),
    "message_expiry": OptionSpec(Kind.UINT64, _NEVER, "How long messages are kept, in microseconds"),
    "max_topic_size": OptionSpec(Kind.UINT64, _NEVER, "How many bytes of messages are kept"),
    "segment_size": OptionSpec(Kind.UINT64, struct.pack("<Q", 1 << 30), "Bytes of a segment; the broker's setting"),
    "enforce_fsync": OptionSpec(Kind.BOOL, b"\x00", "Whether a send waits for the disk; the broker's durability"),
    "messages_required_to_save": OptionSpec(
        Kind.UINT32, struct.pack("<I", 1024), "After how many messages they are written; here they are at once"
    ),
    "size_of_messages_required_to_save": OptionSpec(
        Kind.UINT64, struct.pack("<Q", 1 << 20), "After how many bytes they are written; here they are at once"
    ),
    "preallocate_segments": OptionSpec(Kind.BOOL, b"\x00", "Whether segments are allocated at once"),
    "durability": OptionSpec(Kind.STRING, b"replicated", "When a send is acknowledged; the broker's durability"),
    "consumer_offset_durability": OptionSpec(
        Kind.STRING, b"replicated", "When an offset is acknowledged; within position_flush_ms here"
    ),
    "partition_resize_policy": OptionSpec(Kind.STRING, b"mutable", "Whether partitions may be added; here they may"),
    "replication_factor": OptionSpec(Kind.UINT32, struct.pack("<I", 1), "Copies of each partition; here one"),
}
"""Options of a topic. Those of durability the client 0.9.0 sends, and its own server refuses them (iggy-current.md N1);
the last two are of protocol 0.12."""


_UPDATABLE, _RESETTABLE = 1, 2
_BOUNDS: Final = frozenset({"message_expiry", "max_topic_size"})


def option_flags(key: str) -> int:
    """Return what may happen to an option of a topic later, as bits."""
    return _UPDATABLE | _RESETTABLE if key in _BOUNDS else 0


DESCRIBED_OPTIONS: Final = {key: TOPIC_OPTIONS[key] for key in list(TOPIC_OPTIONS)[:-2]}
"""The catalog of options: those that clients of every version may set."""
_NUMBER_BYTES: Final = {Kind.UINT64: struct.Struct("<Q"), Kind.UINT32: struct.Struct("<I")}
_FLAGS: Final = {"true": b"\x01", "false": b"\x00"}


def parse_options(data: memoryview) -> dict[str, Option]:
    """Return the options of a block by key.

    Raises StatusError or MalformedMessage if the bytes are not such a block, or a key occurs twice.
    """
    if len(data) > limits.OPTIONS_BYTES_MAX:
        raise StatusError(TOO_LARGE, f"{len(data)} bytes of options; the limit is {limits.OPTIONS_BYTES_MAX}")
    found: dict[str, Option] = {}
    for place in list_headers(data, 0, len(data), TYPED):
        if place is None or place.key_kind != Kind.STRING or not 1 <= place.key_size <= limits.KEY_BYTES_MAX:
            raise MalformedMessage("the options are not a block of text keys with values")
        try:
            key = str(data[place.key_at : place.key_at + place.key_size], "utf-8")
        except UnicodeDecodeError:
            raise MalformedMessage("the key of an option is not UTF-8") from None
        if key in found:
            raise StatusError(INVALID_VALUE, f"option {key!r} occurs twice")
        found[key] = Option(place.kind, bytes(data[place.value_at : place.value_at + place.value_size]))
        if len(found) > limits.OPTIONS_MAX:
            raise StatusError(TOO_LARGE, f"more than {limits.OPTIONS_MAX} options")
    return found


def to_topic_options(options: Options) -> dict[str, Option]:
    """Return options of a topic with values of their own kinds.

    Raises StatusError for an option that no topic has, and for a value that it cannot have.
    """
    found: dict[str, Option] = {}
    for key, option in options.items():
        spec = TOPIC_OPTIONS.get(key)
        if spec is None:
            raise StatusError(UNSUPPORTED_KEY, f"topics have no option {key!r}; there are {', '.join(TOPIC_OPTIONS)}")
        if option.kind == Kind.STRING != spec.kind:
            option = parse_option(key, option.value.decode("utf-8", "replace"))
        kind, value = option
        if kind != spec.kind or len(value) != FIXED_SIZE_BYTES.get(kind, len(value)):
            raise StatusError(INVALID_VALUE, f"option {key!r} takes one {spec.kind.word}")
        found[key] = option
    return found


def parse_option(key: str, text: str) -> Option:
    """Return one option of a topic from its text; one that is unknown stays text, and is refused by its key later.

    Sizes and numbers may have a unit, such as ``128 MiB``. Raises StatusError for a text of another kind.
    """
    spec = TOPIC_OPTIONS.get(key)
    kind = Kind.STRING if spec is None else spec.kind
    try:
        if kind in _NUMBER_BYTES:
            return Option(kind, _NUMBER_BYTES[kind].pack(parse_size(text)))
        return Option(kind, _FLAGS[text] if kind is Kind.BOOL else text.encode())
    except (KeyError, ValueError, struct.error):
        raise StatusError(INVALID_VALUE, f"option {key!r} cannot be {text[:40]!r}") from None


def show_option(option: Option) -> str:
    """Return the text that ``parse_option`` takes for a value of the option's own kind."""
    if option.kind in _NUMBER_BYTES:
        return str(int.from_bytes(option.value, "little"))
    if option.kind == Kind.BOOL:
        return "true" if any(option.value) else "false"
    return option.value.decode("utf-8", "replace")


def number_of(options: Options, key: str) -> int | None:
    """Return the number of an option, or None if it is absent, 0, or stands for no bound."""
    if key not in options:
        return None
    number = int.from_bytes(options[key].value, "little")
    return None if number in (0, UNLIMITED) else number


def encode_options(options: Mapping[str, Option]) -> bytes:
    """Encode these options as a block."""
    return b"".join(_encode_entries(options))


def _encode_entries(options: Mapping[str, Option]) -> Iterator[bytes]:
    for key, (kind, value) in options.items():
        raw = key.encode()
        yield _PREFIX.pack(Kind.STRING, len(raw)) + raw + _PREFIX.pack(kind, len(value)) + value
