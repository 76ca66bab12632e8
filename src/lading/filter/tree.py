"""The nodes of a typed filter: what every evaluator compiles (Arrow here, a Spark Column in ``spark``)."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

import pyarrow as pa

from ..columns.contract import Encoding
from ..model.lazy_dataclass import lazy_dataclass
from ..payloads.paths import Path


class Domain(StrEnum):
    """Type that both sides of a comparison are converted to; what does not convert is null.

    NUMBER compares whole numbers exactly (decimal(38,0)); if one of the two values is not a whole number, both are
    compared as doubles. In DOUBLE one side is declared or written as a float. NaN equals NaN and is above all
    others.
    """

    NUMBER = "number"
    DOUBLE = "double"
    TEXT = "text"
    BOOLEAN = "boolean"
    INSTANT = "timestamp"
    BYTES = "binary"


class Operator(StrEnum):
    """Comparison operators."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@lazy_dataclass(frozen=True, slots=True)
class HeaderRef:
    """The last value of header ``key``; ``type`` None: it takes the type of what it is compared with."""

    key: str
    type: pa.DataType | None = None
    encoding: Encoding = Encoding.AUTO


@lazy_dataclass(frozen=True, slots=True)
class AnyHeader:
    """Every value of header ``key``: the condition that contains it is true if it is true for one of them."""

    key: str
    type: pa.DataType | None = None
    encoding: Encoding = Encoding.AUTO


@lazy_dataclass(frozen=True, slots=True)
class Field:
    """A message field: offset, state (as its word), timestamp, id, checksum, key or payload."""

    name: str


@lazy_dataclass(frozen=True, slots=True)
class PayloadRef:
    """The value at ``path`` of a JSON payload; ``type`` None: it takes the type of what it is compared with.

    With ``json`` it is the JSON text of the value.
    """

    path: Path
    type: pa.DataType | None = None
    json: bool = False


@lazy_dataclass(frozen=True, slots=True)
class Literal:
    """A constant: int or Decimal (whole numbers), float, str, bool, bytes, None; an INSTANT is microseconds as int."""

    value: int | Decimal | float | str | bool | bytes | None


@lazy_dataclass(frozen=True, slots=True)
class Cast:
    """``operand`` as ``type`` by the typing rules of header columns; null if it cannot be converted."""

    operand: HeaderRef | AnyHeader | PayloadRef | Field | Literal | Cast
    type: pa.DataType


Operand = HeaderRef | AnyHeader | PayloadRef | Field | Literal | Cast


@lazy_dataclass(frozen=True, slots=True)
class Compare:
    """``left operator right`` in ``domain``."""

    operator: Operator
    left: Operand
    right: Operand
    domain: Domain


@lazy_dataclass(frozen=True, slots=True)
class Between:
    """``low <= operand AND operand <= high`` in ``domain``."""

    operand: Operand
    low: Operand
    high: Operand
    domain: Domain


@lazy_dataclass(frozen=True, slots=True)
class In:
    """``operand`` equals one of ``items``, which are constants; null among them is unknown."""

    operand: Operand
    items: tuple[Literal, ...]
    domain: Domain


@lazy_dataclass(frozen=True, slots=True)
class Like:
    """``operand`` as text matches ``pattern``: ``%`` any characters, ``_`` one, a backslash takes the next as it is."""

    operand: Operand
    pattern: str


@lazy_dataclass(frozen=True, slots=True)
class IsNull:
    """``operand`` is absent, null, or cannot be converted to its type."""

    operand: Operand


@lazy_dataclass(frozen=True, slots=True)
class Present:
    """True if the message has the header, even if its last value is null; never unknown."""

    operand: HeaderRef


@lazy_dataclass(frozen=True, slots=True)
class Truth:
    """``operand`` as a boolean."""

    operand: Operand


@lazy_dataclass(frozen=True, slots=True)
class Not:
    """The negation; unknown stays unknown."""

    term: Condition


@lazy_dataclass(frozen=True, slots=True)
class And:
    """All of ``terms``, in three-valued logic."""

    terms: tuple[Condition, ...]


@lazy_dataclass(frozen=True, slots=True)
class Or:
    """True if one of ``terms`` is, in three-valued logic."""

    terms: tuple[Condition, ...]


Predicate = Compare | Between | In | Like | IsNull | Present | Truth
Condition = Predicate | Not | And | Or


def operands(condition: Condition) -> list[Operand]:
    """Return every operand of a condition: a cast, and also the operand inside it."""
    found: list[Operand] = []
    todo: list[Condition | Operand] = [condition]
    while todo:
        node = todo.pop()
        match node:
            case And(terms) | Or(terms):
                todo.extend(terms)
            case Not(term):
                todo.append(term)
            case Compare(_, left, right):
                todo.extend((left, right))
            case Between(operand, low, high):
                todo.extend((operand, low, high))
            case In(operand) | Like(operand) | IsNull(operand) | Present(operand) | Truth(operand):
                todo.append(operand)
            case Cast(operand):
                found.append(node)
                todo.append(operand)
            case _:
                found.append(node)
    return found


def list_paths(condition: Condition) -> tuple[Path, ...]:
    """Return the paths into the payload that a condition reads, each once."""
    return tuple(dict.fromkeys(node.path for node in operands(condition) if isinstance(node, PayloadRef)))
