"""The building blocks of Iggy classic requests and responses (iggy.md A2): one Codec a block."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Generic, TypeVar

from ....model.errors import LocalError, MalformedMessage, Reason
from ....model.lazy_dataclass import lazy_dataclass

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)
Bytes = bytes | bytearray | memoryview

Identifier = int | str
"""A stream or topic as clients name it: its number (1 and up) or its name."""


class ConsumerKind(IntEnum):
    """Owner of the stored position that a poll or an offset command means."""

    CONSUMER = 1
    GROUP = 2


class PartitioningKind(IntEnum):
    """The way in which the partition of a send is chosen."""

    BALANCED = 1
    PARTITION_ID = 2
    MESSAGES_KEY = 3


class PollingKind(IntEnum):
    """The kinds of place at which a poll can begin."""

    OFFSET = 1
    TIMESTAMP = 2
    FIRST = 3
    LAST = 4
    NEXT = 5


@lazy_dataclass(frozen=True, slots=True)
class ConsumerIdentifier:
    """A single consumer or a consumer group, by a number of the client's choice (u32) or, in later releases, a name."""

    kind: ConsumerKind
    id: Identifier


@lazy_dataclass(frozen=True, slots=True)
class Partitioning:
    """The partition choice of one send; ``value`` is empty, the partition number as u32, or the key (1-255 bytes)."""

    kind: PartitioningKind
    value: bytes = b""

    @property
    def partition_id(self) -> int:
        """The partition number counted from 1, if the kind is PARTITION_ID."""
        return int.from_bytes(self.value, "little")


def balanced() -> Partitioning:
    """Let the server choose partitions round robin."""
    return Partitioning(PartitioningKind.BALANCED)


def to_partition(partition_id: int) -> Partitioning:
    """Return the partitioning that names one partition, counted from 1."""
    return Partitioning(PartitioningKind.PARTITION_ID, struct.pack("<I", partition_id))


@lazy_dataclass(frozen=True, slots=True)
class Strategy:
    """Start of a poll; ``value`` is an offset or a time in microseconds, ignored by first, last and next."""

    kind: PollingKind
    value: int = 0


@lazy_dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """One block of bytes: ``read(data, at)`` returns the value and the position after it, ``write`` the bytes.

    ``read`` raises MalformedMessage and nothing else.
    """

    read: Callable[[memoryview, int], tuple[T, int]]
    write: Callable[[T], bytes]


def number(form: str) -> Codec[Any]:
    """Return the Codec of a little-endian number; ``form`` is its ``struct`` letter."""
    layout = struct.Struct("<" + form)
    unpack, size_bytes = layout.unpack_from, layout.size

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        try:
            return unpack(data, at)[0], at + size_bytes
        except struct.error:
            raise MalformedMessage(f"the bytes end inside a number of {size_bytes} bytes", at=at) from None

    def write(value: Any) -> bytes:
        try:
            return layout.pack(value)
        except struct.error:
            raise LocalError(f"{value!r} does not fit a number of {size_bytes} bytes; give one that does") from None

    return Codec(read, write)


U8, U32, U64, F32 = number("B"), number("I"), number("Q"), number("f")


def _read_bool(data: memoryview, at: int) -> tuple[bool, int]:
    value, end = U8.read(data, at)
    if value > 1:
        raise MalformedMessage(f"a yes-or-no byte is {value}, not 0 or 1", at=at)
    return bool(value), end


BOOL: Codec[bool] = Codec(_read_bool, lambda value: b"\x01" if value else b"\x00")


def read_bytes(data: memoryview, at: int, size_bytes: int, what: str) -> tuple[bytes, int]:
    """Return ``size_bytes`` bytes and the position after them. Raises MalformedMessage if the data ends earlier."""
    end = at + size_bytes
    if end > len(data):
        raise MalformedMessage(f"{what} claims {size_bytes} bytes but {len(data) - at} are left", at=at)
    return bytes(data[at:end]), end


def _read_text(data: memoryview, at: int) -> tuple[str, int]:
    size_bytes, at = U32.read(data, at)
    raw, end = read_bytes(data, at, size_bytes, "a text")
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        raise MalformedMessage("a text is not UTF-8", at=at) from None


def _write_text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw


TEXT: Codec[str] = Codec(_read_text, _write_text)
"""``[len u32][utf8]``."""


def short_text(reason: Reason = Reason.MALFORMED) -> Codec[str]:
    """Return the Codec of ``[len u8][utf8]``.

    Reading text that is not UTF-8 raises MalformedMessage with ``reason``.
    """

    def read(data: memoryview, at: int) -> tuple[str, int]:
        size_bytes, text_at = U8.read(data, at)
        raw, end = read_bytes(data, text_at, size_bytes, "a text")
        try:
            return raw.decode(), end
        except UnicodeDecodeError:
            raise MalformedMessage("a text is not UTF-8", reason=reason, at=at) from None

    def write(value: str) -> bytes:
        raw = value.encode()
        return U8.write(len(raw)) + raw

    return Codec(read, write)


SHORT_TEXT: Codec[str] = short_text()


def name_to_end(reason: Reason) -> Codec[str]:
    """Return the Codec of a name without a length that runs to the end of the payload.

    Raises MalformedMessage with ``reason`` on reading a name that is not UTF-8.
    """

    def read(data: memoryview, at: int) -> tuple[str, int]:
        try:
            return str(data[at:], "utf-8"), len(data)
        except UnicodeDecodeError:
            raise MalformedMessage("the name is not UTF-8", reason=reason, at=at) from None

    return Codec(read, str.encode)


def _read_rest(data: memoryview, at: int) -> tuple[memoryview, int]:
    return data[at:], len(data)


REST: Codec[Bytes] = Codec(_read_rest, bytes)
"""Everything that is left, unread."""

_NUMERIC, _NAMED = 1, 2


def _read_identifier(data: memoryview, at: int) -> tuple[Identifier, int]:
    kind, size_at = U8.read(data, at)
    size_bytes, value_at = U8.read(data, size_at)
    raw, end = read_bytes(data, value_at, size_bytes, "an identifier")
    if kind == _NUMERIC and size_bytes == 4:
        return int.from_bytes(raw, "little"), end
    if kind == _NAMED and size_bytes:
        try:
            return raw.decode(), end
        except UnicodeDecodeError:
            raise MalformedMessage("an identifier is not UTF-8", at=value_at) from None
    raise MalformedMessage(
        f"an identifier of kind {kind} and {size_bytes} bytes is neither a number (1, 4) nor a name (2, 1-255)", at=at
    )


def _write_identifier(value: Identifier) -> bytes:
    if isinstance(value, int):
        return bytes((_NUMERIC, 4)) + U32.write(value)
    raw = value.encode()
    if not 1 <= len(raw) <= 255:
        raise LocalError(f"a stream or topic name has {len(raw)} bytes; Iggy takes 1 to 255")
    return bytes((_NAMED, len(raw))) + raw


IDENTIFIER: Codec[Identifier] = Codec(_read_identifier, _write_identifier)
"""``[kind u8][len u8][value]``."""


def _parse_kind(kinds: type[E], code: int, what: str, at: int) -> E:
    try:
        return kinds(code)
    except ValueError:
        raise MalformedMessage(f"unknown {what} kind {code}", at=at) from None


def _read_consumer(data: memoryview, at: int) -> tuple[ConsumerIdentifier, int]:
    code, id_at = U8.read(data, at)
    number_, end = U32.read(data, id_at)
    return ConsumerIdentifier(_parse_kind(ConsumerKind, code, "consumer", at), number_), end


CONSUMER: Codec[ConsumerIdentifier] = Codec(_read_consumer, lambda value: U8.write(value.kind) + U32.write(value.id))
"""``[kind u8][id u32]``."""


def _read_named_consumer(data: memoryview, at: int) -> tuple[ConsumerIdentifier, int]:
    code, id_at = U8.read(data, at)
    ident, end = IDENTIFIER.read(data, id_at)
    return ConsumerIdentifier(_parse_kind(ConsumerKind, code, "consumer", at), ident), end


NAMED_CONSUMER: Codec[ConsumerIdentifier] = Codec(
    _read_named_consumer, lambda value: U8.write(value.kind) + IDENTIFIER.write(value.id)
)
"""``[kind u8][id ident]``, of the releases since 0.0.92."""


def check_partitioning(value: Partitioning) -> Partitioning:
    """Return ``value`` if it is valid.

    Raises MalformedMessage otherwise: 204 for a partition number that is not 4 bytes, 4028 for no value.
    """
    if value.kind != PartitioningKind.BALANCED and not 1 <= len(value.value) <= 255:
        raise MalformedMessage(
            f"a partitioning value has {len(value.value)} bytes, not 1 to 255", reason=Reason.INVALID_PARTITION_KEY
        )
    if value.kind == PartitioningKind.PARTITION_ID and len(value.value) != 4:
        raise MalformedMessage(
            f"a partition number has {len(value.value)} bytes, not 4", reason=Reason.INVALID_PARTITION_ID
        )
    return value


def _read_partitioning(data: memoryview, at: int) -> tuple[Partitioning, int]:
    code, size_at = U8.read(data, at)
    size_bytes, value_at = U8.read(data, size_at)
    kind = _parse_kind(PartitioningKind, code, "partitioning", at)
    raw, end = read_bytes(data, value_at, size_bytes, "a partitioning value")
    return check_partitioning(Partitioning(kind, b"" if kind == PartitioningKind.BALANCED else raw)), end


PARTITIONING: Codec[Partitioning] = Codec(
    _read_partitioning, lambda value: bytes((value.kind, len(value.value))) + value.value
)
"""``[kind u8][len u8][value]``; a value of a balanced send is read over (iggy.md M3)."""


def _read_strategy(data: memoryview, at: int) -> tuple[Strategy, int]:
    code, value_at = U8.read(data, at)
    value, end = U64.read(data, value_at)
    return Strategy(_parse_kind(PollingKind, code, "polling", at), value), end


STRATEGY: Codec[Strategy] = Codec(_read_strategy, lambda value: U8.write(value.kind) + U64.write(value.value))
"""``[kind u8][value u64]``."""


def repeat_to_end(codec: Codec[T]) -> Codec[Sequence[T]]:
    """Return the codec of any number of values, without a count, up to the end of the bytes."""

    def read(data: memoryview, at: int) -> tuple[Sequence[T], int]:
        values = []
        while at < len(data):
            value, at = codec.read(data, at)
            values.append(value)
        return tuple(values), at

    return Codec(read, lambda values: b"".join(map(codec.write, values)))


def ignore(codec: Codec[T], value: T) -> Codec[Any]:
    """Return a Codec whose value has no use: its bytes are skipped on reading and written as ``value``."""
    return Codec(codec.read, lambda _value: codec.write(value))


def imply(value: T) -> Codec[T]:
    """Return the Codec of a field without bytes, which always has ``value``."""
    return Codec(lambda _data, at: (value, at), lambda _value: b"")


def map_values(codec: Codec[Any], read_value: Callable[[Any], T], write_value: Callable[[T], Any]) -> Codec[T]:
    """Return a Codec of the same bytes whose values are converted on reading and back on writing."""

    def read(data: memoryview, at: int) -> tuple[T, int]:
        value, end = codec.read(data, at)
        return read_value(value), end

    return Codec(read, lambda value: codec.write(write_value(value)))


def repeat_counted(codec: Codec[T], count_max: int = (1 << 32) - 1) -> Codec[Sequence[T]]:
    """Return the codec of a list: ``[count u32]`` and as many values, at most ``count_max``."""

    def read(data: memoryview, at: int) -> tuple[Sequence[T], int]:
        count, at = U32.read(data, at)
        if count > count_max:
            raise MalformedMessage(f"a list of {count} entries; at most {count_max} are taken", at=at)
        if count > len(data) - at:
            raise MalformedMessage(f"a list claims {count} entries in {len(data) - at} bytes", at=at)
        values = []
        for _ in range(count):
            value, at = codec.read(data, at)
            values.append(value)
        return tuple(values), at

    return Codec(read, lambda values: U32.write(len(values)) + b"".join(map(codec.write, values)))


def optional(codec: Codec[T]) -> Codec[T | None]:
    """Return the Codec of ``[is there u8]`` and, if it is, the block of ``codec``."""

    def read(data: memoryview, at: int) -> tuple[T | None, int]:
        is_there, at = BOOL.read(data, at)
        return codec.read(data, at) if is_there else (None, at)

    return Codec(read, lambda value: BOOL.write(False) if value is None else BOOL.write(True) + codec.write(value))
