"""Caller of requests on one connection of the current generation, and the form of its ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, overload

from ....dialects.iggy_current.versions import V_0_11, ProtocolVersion
from ..clients import Client

FIRST_ID: Final = 0
"""Streams, topics and groups are counted from here by clients of this generation, and from 1 inside."""
_SHIFT: Final = 1 - FIRST_ID


@dataclass(slots=True, eq=False)
class CurrentCaller:
    """A connection; ``session`` is what its login gave, 0 before."""

    client: Client
    session: int = 0
    version: ProtocolVersion = V_0_11
    """What its login said; before, and over HTTP, what makes no difference."""


def to_wire(ident: int) -> int:
    """Return the id by which clients know the broker's stream, topic or group ``ident``."""
    return ident - _SHIFT


@overload
def from_wire(ident: int) -> int: ...
@overload
def from_wire(ident: str) -> str: ...
def from_wire(ident: int | str) -> int | str:
    """Return the id, or the name, by which the broker knows the client's stream, topic or group ``ident``."""
    return ident + _SHIFT if isinstance(ident, int) else ident
