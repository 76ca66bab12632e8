"""Codecs of single fields in releases after 0.0.40 (docs/reference/protocols/iggy.md#releases)."""

from __future__ import annotations

from typing import Final

from . import later_commands as later
from .expiries import NEVER
from .primitives import SHORT_TEXT, TEXT, U8, U32, U64, Codec, map_values

OPTIONAL_ID: Final[Codec[int | None]] = map_values(U32, lambda value: value or None, lambda value: value or 0)
"""An id that the server chooses if it is 0."""
SIZE_MAX: Final[Codec[int | None]] = map_values(U64, lambda size: size or None, lambda size: size or 0)
"""Bytes of a topic; 0 for no bound."""
SIZE_MAX_OR_DEFAULT: Final[Codec[int | None]] = map_values(
    U64, lambda size: None if size in (0, NEVER) else size, lambda size: NEVER if size is None else size
)
"""The codec of size limits since 0.5.0: 0 is the server's setting, the largest number means no limit."""
PARTITION: Final[Codec[int]] = map_values(U32, lambda number: number or 1, lambda number: number)
"""A partition counted from 1; 0 means that the client names none, and then the first is taken."""


def _read_flagged_partition(data: memoryview, at: int) -> tuple[int, int]:
    is_named, number_at = U8.read(data, at)
    number, end = U32.read(data, number_at)
    return number + 1 if is_named else 1, end


def _write_flagged_partition(number: int) -> bytes:
    return b"\x01" + U32.write(number - 1) if number else bytes(5)


FLAGGED_PARTITION: Final[Codec[int]] = Codec(_read_flagged_partition, _write_flagged_partition)
"""``[flag u8][partition u32]`` counted from 0, of the releases since 0.8.0; as if counted from 1 here.

0 is written as none; none is read as the first.
"""
FROM_ZERO: Final[Codec[int]] = map_values(U32, lambda number: number + 1, lambda number: max(number - 1, 0))
"""A partition counted from 0 in bytes and from 1 here."""


def _read_login(data: memoryview, at: int) -> tuple[later.LoginUser, int]:
    name, at = SHORT_TEXT.read(data, at)
    password, at = SHORT_TEXT.read(data, at)
    if at == len(data):
        return later.LoginUser(name, password), at
    version, at = TEXT.read(data, at)
    context, at = TEXT.read(data, at) if at < len(data) else ("", at)
    return later.LoginUser(name, password, version, context), at


def _write_login(login: later.LoginUser) -> bytes:
    version = b"" if login.version is None else TEXT.write(login.version) + TEXT.write(login.context)
    return SHORT_TEXT.write(login.name) + SHORT_TEXT.write(login.password) + version


LOGIN: Final[Codec[later.LoginUser]] = Codec(_read_login, _write_login)
"""``[len u8]name[len u8]password``, since 0.5.0 with ``[len u32]version[len u32]context``."""
