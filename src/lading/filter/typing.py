"""The typing rules: what a comparison converts its sides to, and which comparisons are refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from typing import Literal as Choice
from uuid import UUID

import pyarrow as pa

from ..columns.contract import INTEGER_DECIMAL, TIMESTAMP, did_you_mean, type_word
from ..columns.rules import read_instant
from ..model.errors import LocalError
from ..model.state import STATE_BY_WORD
from ..payloads.paths import write_path
from .tree import AnyHeader, Cast, Domain, Field, HeaderRef, Literal, Operand, PayloadRef

Nature = Domain | Choice["open", "null"]
"""Domain of an operand by itself: of one domain, ``open`` (takes the other side's), or the constant ``null``."""

FIELD_DOMAINS: Final[dict[str, Nature]] = {
    "offset": Domain.NUMBER,
    "state": Domain.TEXT,
    "timestamp": Domain.INSTANT,
    "id": Domain.BYTES,
    "checksum": Domain.NUMBER,
    "key": "open",
    "payload": "open",
}
"""The message fields of a filter. Key and payload are read as headers of kind raw are."""

TYPE_DOMAINS: Final[dict[pa.DataType, Domain]] = {
    pa.string(): Domain.TEXT,
    pa.binary(): Domain.BYTES,
    pa.bool_(): Domain.BOOLEAN,
    pa.int8(): Domain.NUMBER,
    pa.int16(): Domain.NUMBER,
    pa.int32(): Domain.NUMBER,
    pa.int64(): Domain.NUMBER,
    INTEGER_DECIMAL: Domain.NUMBER,
    pa.float32(): Domain.DOUBLE,
    pa.float64(): Domain.DOUBLE,
    pa.date32(): Domain.INSTANT,
    TIMESTAMP: Domain.INSTANT,
}
"""The domain of a type, but for decimals: those without decimals are NUMBER, others DOUBLE."""
UNORDERED: Final = frozenset({Domain.BOOLEAN})
NUMBERS: Final = frozenset({Domain.NUMBER, Domain.DOUBLE})
ID = Field("id")
STATE = Field("state")


def nature(operand: Operand) -> Nature:
    """Return the domain of an operand by itself; "open" for a header without a type, "null" for NULL."""
    match operand:
        case HeaderRef(_, type_) | AnyHeader(_, type_) | PayloadRef(_, type_):
            return "open" if type_ is None else domain_of(type_)
        case Field(name):
            return FIELD_DOMAINS[name]
        case Cast(_, type_):
            return domain_of(type_)
        case Literal(None):
            return "null"
        case Literal(bool()):
            return Domain.BOOLEAN
        case Literal(str()):
            return Domain.TEXT
        case Literal(float()):
            return Domain.DOUBLE
        case Literal(bytes()):
            return Domain.BYTES
    return Domain.NUMBER


def domain_of(type_: pa.DataType) -> Domain:
    """Return the domain in which values of a column type are compared."""
    if isinstance(type_, pa.Decimal128Type):
        return Domain.DOUBLE if type_.scale else Domain.NUMBER
    return TYPE_DOMAINS[type_]


def common_domain(sides: Iterable[Operand], *, ordered: bool) -> Domain:
    """Return the domain in which ``sides`` are compared. Raises LocalError, worded for people, if they have none."""
    sides = list(sides)
    known = {found: side for side in reversed(sides) if isinstance(found := nature(side), Domain)}
    texts_are_constants = all(isinstance(side, Literal) for side in sides if nature(side) is Domain.TEXT)
    match sorted(known):
        case []:
            if ordered and not any(nature(side) == "null" for side in sides):
                raise LocalError(
                    "neither side has a type, so it is unknown whether numbers or texts are compared; "
                    "say it: CAST(name AS bigint)"
                )
            return Domain.TEXT
        case [one]:
            domain = one
        case [Domain.DOUBLE, Domain.NUMBER]:
            domain = Domain.DOUBLE
        case [Domain.BYTES, Domain.TEXT] if texts_are_constants:
            domain = Domain.BYTES
        case [Domain.TEXT, Domain.INSTANT] if texts_are_constants:
            domain = Domain.INSTANT
        case _:
            raise LocalError(
                f"{_describe_side(sides[0])} is compared with {_describe_side(_find_other(sides, known))}; "
                f"{_advise(sides)}"
            )
    if ordered and domain in UNORDERED:
        raise LocalError("booleans have no order; compare with = or <>")
    return domain


def constant(literal: Literal, domain: Domain, sides: Iterable[Operand]) -> Literal:
    """Convert a constant to its domain: instants to microseconds, text to bytes, ids from hex or UUID text.

    Raises LocalError if it cannot be converted, and for a state word that does not exist.
    """
    value = literal.value
    if not isinstance(value, str):
        return literal
    if STATE in sides and domain is Domain.TEXT and value not in STATE_BY_WORD:
        raise LocalError(
            f"state {value!r} does not exist{did_you_mean(value, STATE_BY_WORD)}; states are {', '.join(STATE_BY_WORD)}"
        )
    if domain is Domain.INSTANT:
        micros = read_instant(value.encode())
        if micros is None:
            raise LocalError(f"{value!r} is not a timestamp; write it like '2024-05-01T12:30:00Z'")
        return Literal(micros)
    if domain is Domain.BYTES:
        if ID not in sides:
            return Literal(value.encode())
        try:
            return Literal(UUID(value).bytes)
        except ValueError:
            raise LocalError(
                f"{value!r} is not a message id; write its 16 bytes as 32 hex digits or as a UUID"
            ) from None
    return literal


def _describe_side(side: Operand) -> str:
    match side:
        case HeaderRef(key, type_) | AnyHeader(key, type_) if type_ is not None:
            return f"header {key!r} ({type_word(type_)})"
        case HeaderRef(key) | AnyHeader(key):
            return f"header {key!r}"
        case PayloadRef(path):
            return f"{write_path(path)} ({type_word(side.type)})" if side.type is not None else write_path(path)
        case Field(name):
            return f"the message's {name}"
        case Cast(_, type_):
            return f"a {type_word(type_)}"
        case Literal(value):
            kind = {Domain.TEXT: "text", Domain.BOOLEAN: "boolean", "null": "constant"}.get(nature(side), "number")
            return f"the {kind} {value!r}" if not isinstance(value, bool) else f"the {kind} {str(value).lower()}"


def _find_other(sides: list[Operand], known: dict[Domain, Operand]) -> Operand:
    own = nature(sides[0])
    return next((side for domain, side in known.items() if domain != own), sides[-1])


def _advise(sides: list[Operand]) -> str:
    if STATE in sides:
        return "a state is compared with its word, such as 'poisoned'"
    if Domain.INSTANT in map(nature, sides):
        return "a timestamp is compared with a text such as '2024-05-01T12:30:00Z'"
    return "convert one of them: CAST(name AS type)"
