"""Operands to Arrow arrays of their domain; a batch, or the single header entries that ``any`` looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..columns.contract import INTEGER_DECIMAL, TIMESTAMP, Encoding, PayloadColumn
from ..columns.instants import TIME_FIELDS, drop_unreadable_times
from ..columns.locate import Entries, to_located
from ..columns.members import build_column
from ..columns.typed import compare_bytes, convert_column
from ..model.errors import LocalError
from ..model.run import Decoded, Located
from ..model.state import State
from ..payloads.form import JSON_FORM, PayloadForm, find_fields
from ..payloads.found import FoundValues
from ..payloads.paths import PAYLOAD, Path, write_path
from .tree import AnyHeader, Cast, Domain, Field, HeaderRef, Literal, Operand, PayloadRef

DOMAIN_TYPES: dict[Domain, pa.DataType] = {
    Domain.NUMBER: pa.int64(),
    Domain.DOUBLE: pa.float64(),
    Domain.TEXT: pa.string(),
    Domain.BOOLEAN: pa.bool_(),
    Domain.INSTANT: TIMESTAMP,
    Domain.BYTES: pa.binary(),
}
"""The column type of each domain; a NUMBER is decimal(38,0) if 64 bits do not hold all values."""

_STATE_CODES = pa.array([state.value for state in State], pa.int8())
_STATE_WORDS = pa.array([state.word for state in State])
_INT64_MAX = (1 << 63) - 1

Values = Any
"""An Arrow array with one value a row, or a scalar for a constant."""


class Numbers(NamedTuple):
    """The values of a NUMBER: whole numbers exactly, and if some are not whole, all numbers as doubles too."""

    whole: Values
    double: Values | None

    def as_double(self) -> Values:
        """Return all values as doubles."""
        return pc.cast(self.whole, pa.float64(), safe=False) if self.double is None else self.double


class Source(Protocol):
    """Source of the rows of operands."""

    @property
    def rows(self) -> int: ...

    def locate(self, header: HeaderRef | AnyHeader) -> Located: ...

    def field(self, name: str) -> Values: ...

    def find_payload(self, path: Path) -> FoundValues: ...


TypedHeaders = dict[tuple[str | Path, pa.DataType, Encoding], tuple[Values, Values | None]]
"""Results of ``typed`` (or ``repeating``) for the last values of a header, by key, type and encoding.

The key of a value of the payload is its path.
"""


class Messages:
    """The messages of a batch as a Source; what was typed once, before or here, is kept."""

    def __init__(
        self,
        decoded: Decoded,
        typed_before: TypedHeaders | None = None,
        looked_at: NDArray[np.bool_] | None = None,
        form: PayloadForm = JSON_FORM,
    ) -> None:
        """``form`` says how payloads are read."""
        self._decoded = decoded
        self._form = form
        self._entries: Entries | None = None
        self._found: dict[Path, FoundValues] = {}
        self._looked_at = looked_at
        self.typed: TypedHeaders = typed_before or {}

    @property
    def rows(self) -> int:
        return self._decoded.count

    def locate(self, header: HeaderRef | AnyHeader) -> Located:
        try:
            return self._decoded.located[header.key]
        except KeyError:
            raise LocalError(
                f"the filter reads header {header.key!r}, which was not located; name it among the headers to locate"
            ) from None

    def field(self, name: str) -> Values:
        try:
            return self._decoded.columns[name]
        except KeyError:
            raise LocalError(
                f"the filter reads the message field {name!r}, which was not decoded; decode it too"
            ) from None

    def walk_payloads(self, paths: Iterable[Path]) -> None:
        """Find the values of ``paths`` in the payloads, those that were not found before, in one walk."""
        missing = [path for path in paths if path not in self._found]
        if missing:
            read = {name: self.field(name) for name in find_fields(missing)}
            if self._looked_at is not None:
                chosen = pa.array(self._looked_at)
                nothing: Any = pa.scalar(None, pa.binary())
                read = {name: pc.if_else(chosen, column, nothing.cast(column.type)) for name, column in read.items()}
            self._found.update(self._form.walk(read, self._decoded.located, missing).values)

    def find_payload(self, path: Path) -> FoundValues:
        self.walk_payloads([path])
        return self._found[path]

    def look_at(self, rows: NDArray[np.bool_]) -> Messages:
        """Return the same messages, with values only for payloads of ``rows``; the others are not parsed."""
        kept = rows if self._looked_at is None else rows & self._looked_at
        typed: TypedHeaders = {place: found for place, found in self.typed.items() if isinstance(place[0], str)}
        messages = Messages(self._decoded, typed, kept, self._form)
        messages._found.update(self._found)
        return messages

    def distinct(self, header: HeaderRef) -> Distinct | None:
        """Return the distinct values of a header as a Source; None unless it was typed as a dictionary."""
        if header.type is None:
            return None
        place = header.key, header.type, header.encoding
        array, _ = self.typed.get(place, (None, None))
        return Distinct(place, array) if array is not None and pa.types.is_dictionary(array.type) else None

    def every(self, header: AnyHeader) -> OneHeader:
        """Return every single entry of a header as a Source."""
        if self._entries is None:
            self._entries = Entries.of(self.field("headers"))
        entries, parents = self._entries.every(header.key)
        return OneHeader(self, self._entries.locate(entries), parents)


class Distinct:
    """The distinct values of one header as a Source, with a null after the last of them."""

    def __init__(self, place: tuple[str, pa.DataType, Encoding], array: Values) -> None:
        known: Any = array.dictionary
        self.typed: TypedHeaders = {place: (pa.concat_arrays([known, pa.nulls(1, known.type)]), None)}
        self._indices = array.indices.fill_null(len(known)) if array.null_count else array.indices
        self.rows = len(known) + 1

    def locate(self, header: HeaderRef | AnyHeader) -> Located:
        raise AssertionError(f"all values of header {header.key!r} are typed")

    def field(self, name: str) -> Values:
        raise AssertionError(f"the message field {name!r} has no values of a header")

    def find_payload(self, path: Path) -> FoundValues:
        raise AssertionError(f"{write_path(path)} has no values of a header")

    def spread(self, result: pa.BooleanArray) -> Values:
        """Return the result of each message, from the result of each distinct value."""
        return result.take(self._indices)


class OneHeader:
    """All values of one header over a batch, duplicates included, as a Source; ``parents`` is the message of each."""

    def __init__(self, messages: Messages, located: Located, parents: NDArray[np.int64]) -> None:
        self._messages = messages
        self._located = located
        self.parents = parents

    @property
    def rows(self) -> int:
        return len(self.parents)

    def locate(self, header: HeaderRef | AnyHeader) -> Located:
        if isinstance(header, AnyHeader):
            return self._located
        of_messages = self._messages.locate(header)
        rows = self.parents
        return Located(of_messages.data, of_messages.start[rows], of_messages.length[rows], of_messages.kind[rows])

    def field(self, name: str) -> Values:
        return self._messages.field(name).take(pa.array(self.parents))

    def find_payload(self, path: Path) -> FoundValues:
        return self._messages.find_payload(path).take(self.parents)


def values(source: Source, operand: Operand, domain: Domain) -> Values:
    """Return the operand's rows in ``domain``, null if absent or not convertible; a scalar for a constant."""
    if domain is Domain.NUMBER:
        raise AssertionError("numbers have two forms: use numbers()")
    match operand:
        case Literal():
            return _to_scalar(operand, DOMAIN_TYPES[domain])
        case Cast(Literal() as literal, type_):
            return _cast_to_domain(_to_scalar(literal, type_), domain)
        case PayloadRef(_, None):
            return _convert_payload(source, operand, DOMAIN_TYPES[domain])[0]
    found = _open(source, operand)
    if found is not None:
        return _convert_values(source, operand, found, DOMAIN_TYPES[domain])[0]
    return _cast_to_domain(_own_values(source, operand), domain)


def equal_bytes(source: Source, operand: Operand, literal: Literal, domain: Domain) -> pa.BooleanArray | None:
    """Return which rows of a TEXT or BYTES operand equal the constant, without building their column.

    None if the column exists already, or if its values are converted.
    """
    value, type_ = literal.value, DOMAIN_TYPES[domain]
    wanted = value.encode() if domain is Domain.TEXT and isinstance(value, str) else value
    if not isinstance(wanted, bytes):
        return None
    match operand:
        case HeaderRef(_, declared, encoding) | AnyHeader(_, declared, encoding):
            is_plain = declared in (None, type_) and encoding is not Encoding.JSON
            if not is_plain or _find_converted(source, operand, type_) is not None:
                return None
            located = source.locate(operand)
        case Field("key" | "payload" as name):
            located = to_located(source.field(name))
        case _:
            return None
    return compare_bytes(located, wanted, text=domain is Domain.TEXT)


def numbers(source: Source, operand: Operand) -> Numbers:
    """Return the operand's rows as numbers, as exact as they are."""
    match operand:
        case Literal():
            value = operand.value
            small = not isinstance(value, int | Decimal) or abs(int(value)) <= _INT64_MAX
            return Numbers(_to_scalar(operand, pa.int64() if small else INTEGER_DECIMAL), None)
        case Cast(Literal() as literal, type_):
            return Numbers(_to_whole(_to_scalar(literal, type_)), None)
        case PayloadRef(_, None):
            for type_ in (pa.int64(), INTEGER_DECIMAL):
                whole, bad = _convert_payload(source, operand, type_)
                if bad is None:
                    return Numbers(whole, None)
            return Numbers(whole, _convert_payload(source, operand, pa.float64())[0])
    found = _open(source, operand)
    if found is None:
        return Numbers(_to_whole(_own_values(source, operand)), None)
    for type_ in (pa.int64(), INTEGER_DECIMAL):
        whole, bad = _convert_values(source, operand, found, type_)
        if bad is None:
            return Numbers(whole, None)
    return Numbers(whole, _convert_values(source, operand, found, pa.float64())[0])


def is_null(source: Source, operand: Operand) -> Values:
    """Which rows have no value: absent, null, or not convertible to the operand's declared type."""
    match operand:
        case Literal(value) | Cast(Literal(value)):
            return pa.scalar(value is None)
        case PayloadRef(path, None):
            return pa.array(~source.find_payload(path).readable)
    found = _open(source, operand)
    if found is not None:
        return pa.array(found.length < 0)
    return _own_values(source, operand).is_null()


def constant_as(literal: Literal, type_: pa.DataType) -> Any:
    """Return a constant cast to ``type_`` by the typing rules, or None. Instants are microseconds."""
    if literal.value is None:
        return None
    plain = isinstance(literal.value, int | Decimal) and not isinstance(literal.value, bool)
    column: pa.Array[Any] = pa.array([str(literal.value) if plain else literal.value])
    converted: Any = convert_column(to_located(column), type_)[0]
    if type_ == TIMESTAMP:
        return converted.cast(pa.int64())[0].as_py()
    if type_ == pa.date32():
        return converted.cast(pa.int32())[0].as_py()
    value = converted[0].as_py()
    return int(value) if isinstance(value, Decimal) and type_ == INTEGER_DECIMAL else value


def _open(source: Source, operand: Operand) -> Located | None:
    """Return the located values of an operand that takes the other side's type; None for one that has its own."""
    match operand:
        case HeaderRef(_, None) | AnyHeader(_, None):
            return source.locate(operand)
        case Field("key" | "payload" as name):
            return to_located(source.field(name))
    return None


def _own_values(source: Source, operand: Operand) -> Values:
    """Return the rows of an operand that has a type of its own, in that type."""
    match operand:
        case HeaderRef(_, type_) | AnyHeader(_, type_) if type_ is not None:
            before = _find_converted(source, operand, type_)
            return before[0] if before else _convert_values(source, operand, source.locate(operand), type_)[0]
        case PayloadRef(_, type_) if type_ is not None:
            return _convert_payload(source, operand, type_)[0]
        case Field(name):
            return _FIELDS.get(name, _as_is)(source.field(name))
        case Cast(PayloadRef(_, None) as inner, type_):
            return _convert_payload(source, inner, type_)[0]
        case Cast(inner, type_):
            found = _open(source, inner)
            if found is not None:
                return _convert_values(source, inner, found, type_)[0]
            array = _own_values(source, inner)
            return array if array.type == type_ else convert_column(to_located(array), type_)[0]
    raise AssertionError(f"{operand} has no type; compare it with something that has one")


def _convert_payload(source: Source, operand: PayloadRef, type_: pa.DataType) -> tuple[Values, Values | None]:
    """Return the values at a path as ``type_``, and which are there and cannot be read, if any."""
    place = operand.path, type_, Encoding.JSON if operand.json else Encoding.AUTO
    before = source.typed.get(place) if isinstance(source, Messages) else None
    if before is None or pa.types.is_dictionary(before[0].type):
        column = PayloadColumn(PAYLOAD, operand.path, type_, json=operand.json)
        array, wrong = build_column(source.find_payload(operand.path), column)
        before = array, pa.array(wrong) if wrong.any() else None
        if isinstance(source, Messages):
            source.typed[place] = before
    return before


def _convert_values(
    source: Source, operand: Operand, located: Located, type_: pa.DataType
) -> tuple[Values, Values | None]:
    encoding = operand.encoding if isinstance(operand, HeaderRef | AnyHeader) else Encoding.AUTO
    before = _find_converted(source, operand, type_)
    if before is None:
        before = convert_column(located, type_, encoding)
        if isinstance(source, Messages) and isinstance(operand, HeaderRef):
            source.typed[operand.key, type_, encoding] = before
    return before


def _find_converted(source: Source, operand: Operand, type_: pa.DataType) -> tuple[Values, Values | None] | None:
    if not isinstance(source, Messages | Distinct) or not isinstance(operand, HeaderRef):
        return None
    found = source.typed.get((operand.key, type_, operand.encoding))
    # if the condition has other operands, a dictionary saves nothing
    return None if found is None or pa.types.is_dictionary(found[0].type) else found


def _state_words(codes: Values) -> Values:
    places: Values = pc.index_in(codes, value_set=_STATE_CODES)
    return _STATE_WORDS.take(places)


def _as_is(column: Values) -> Values:
    return column


_FIELDS: dict[str, Callable[[Values], Values]] = {
    "state": _state_words,
    "id": lambda column: column.cast(pa.binary()),
    **dict.fromkeys(TIME_FIELDS, lambda column: drop_unreadable_times(column)[0]),
}


def _cast_to_domain(column: Values, domain: Domain) -> Values:
    wanted = DOMAIN_TYPES[domain]
    return column if column.type == wanted else pc.cast(column, wanted, safe=False)


def _to_whole(column: Values) -> Values:
    return column.cast(INTEGER_DECIMAL) if pa.types.is_decimal(column.type) else pc.cast(column, pa.int64())


def _to_scalar(literal: Literal, type_: pa.DataType) -> Values:
    value = literal.value
    if pa.types.is_decimal(type_) and value is not None:
        value = Decimal(value)  # type: ignore[arg-type]
    if type_ == pa.float64() and isinstance(value, int | Decimal):
        value = float(value)
    return pa.scalar(value, type_)
