"""The contract: which message fields and which headers become columns, of which type, read from which form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..model.batch import SCHEMA_WITH_ORIGIN
from ..model.errors import LocalError, SettingError
from ..model.lazy_dataclass import lazy_dataclass
from .field_names import field_meant

TIMESTAMP = pa.timestamp("us", tz="UTC")
INTEGER_DECIMAL = pa.decimal128(38, 0)
TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(38,0)": INTEGER_DECIMAL,
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
"""Column types of one value by Spark's word for them; besides them there is decimal(p,s)."""
ARRAY = pa.list_(pa.field("element", pa.string()))
"""The type of a column with every value of a header that may be repeated."""
ARRAY_WORD = "array<string>"
_OTHER_WORDS = ("decimal(p,s)", ARRAY_WORD)

SYNONYMS = {
    "text": "string",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "bool": "boolean",
}
PLACE_FIELDS: dict[str, pa.DataType] = {"stream": pa.string(), "topic": pa.string(), "partition": pa.int32()}
"""Origin of a message: constant within a batch, so no part of the Batch schema."""

FIELD_TYPES: dict[str, pa.DataType] = {**{field.name: field.type for field in SCHEMA_WITH_ORIGIN}, **PLACE_FIELDS}
TEXT_FIELDS = ("key", "payload")
"""The message fields of bytes, which may be columns of text."""


class Encoding(StrEnum):
    """Reading of values without a declared type of their own (kind raw, unknown kinds) (docs/reference/contract)."""

    AUTO = "auto"
    TEXT = "text"
    BE = "be"
    LE = "le"
    JSON = "json"


BINARY_ENCODINGS = frozenset({Encoding.BE, Encoding.LE})


class ColumnConstraint(Protocol):
    """A constraint on the values of a column beside their type; ``columns.constraints`` has it."""

    @property
    def rules(self) -> Sequence[tuple[str, str]]:
        """The reason of each breach there can be, and what it asks, in words."""
        ...

    def find_breaches(self, column: pa.Array[Any]) -> Iterator[NDArray[np.bool_] | None]:
        """Yield for each of ``rules`` which rows break it, or None if no row does."""
        ...


@lazy_dataclass(frozen=True, slots=True)
class HeaderColumn:
    """One promoted header: column ``name``, header key, Arrow type, encoding, and whether a message must have it.

    SettingError for a type outside ``TYPES`` and for ``be`` or ``le`` with a type that has no binary number form.
    """

    name: str
    header: str
    type: pa.DataType
    encoding: Encoding = Encoding.AUTO
    required: bool = False
    constraint: ColumnConstraint | None = None
    """Constraint of a pipeline on its values, beside the type."""

    def __post_init__(self) -> None:
        if not self.name:
            remedy = f'header_ {type_word(self.type)} from "{self.header}"'
            raise SettingError(f"a column of a header needs a name of at least one character; write `{remedy}`")
        if self.encoding in BINARY_ENCODINGS and self.type in (pa.string(), pa.binary(), ARRAY):
            raise SettingError(
                f"column {self.name!r}: encoding {self.encoding.value} reads binary numbers, "
                f"and a {type_word(self.type)} is none; use auto, or a number type"
            )
        type_word(self.type)

    @property
    def field(self) -> pa.Field[Any]:
        """The Arrow field of this column; nullable even when required, so that a breach can be shown."""
        return pa.field(self.name, self.type)


@lazy_dataclass(frozen=True, slots=True)
class Projection:
    """Columns to read.

    Message fields and header columns; ``order`` is the order of the output, else fields then headers. The fields of
    ``texts``, key or payload, are read as UTF-8 text if they are among the columns.

    SettingError for an unknown field and for a name used twice.
    """

    fields: tuple[str, ...] = ()
    headers: tuple[HeaderColumn, ...] = ()
    order: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in self.fields:
            if field not in FIELD_TYPES:
                raise SettingError(f"{field!r} is not a message field{did_you_mean(field, FIELD_TYPES)}")
        names = [*self.fields, *(column.name for column in self.headers)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise SettingError(f"column {twice!r} is named twice; leave one out")
        if not self.order:
            object.__setattr__(self, "order", tuple(names))
        elif sorted(self.order) != sorted(names):
            raise SettingError(
                f"the order {', '.join(self.order)} does not list the columns {', '.join(names)}; "
                "name every column in it once"
            )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what ``assemble`` makes of this projection."""
        fields = {name: SCHEMA_WITH_ORIGIN.field(name) for name in self.fields if name not in PLACE_FIELDS}
        # outside the years 1 to 9999 it is null
        fields |= {name: fields[name].with_nullable(True) for name in fields.keys() & {"timestamp"}}
        fields |= {name: pa.field(name, pa.string()) for name in fields.keys() & set(self.texts)}
        fields |= {name: pa.field(name, PLACE_FIELDS[name]) for name in self.fields if name in PLACE_FIELDS}
        fields |= {column.name: column.field for column in self.headers}
        return pa.schema([fields[name] for name in self.order])

    @property
    def message_fields(self) -> tuple[str, ...]:
        """The fields to decode from messages: those of the Batch schema, without the place that they were read from.

        The headers are among them if a column has every value of a header.
        """
        wanted = {*self.fields, *(("headers",) if any(column.type == ARRAY for column in self.headers) else ())}
        return tuple(field for field in SCHEMA_WITH_ORIGIN.names if field in wanted)

    @property
    def header_keys(self) -> tuple[str, ...]:
        """The distinct header keys to locate, in order of first use."""
        return tuple(dict.fromkeys(column.header for column in self.headers))

    @property
    def requires_values(self) -> bool:
        """Whether a column is required."""
        return any(column.required for column in self.headers)

    def require_values(self, batch: pa.RecordBatch, describe_place: Callable[[int], str]) -> None:
        """Raise LocalError at the first null of a required column; ``describe_place`` names the place of a row.

        For readers without a quarantine, into which a pipeline takes such messages.
        """
        for column in self.headers:
            if column.required and (values := batch.column(column.name)).null_count:
                row = values.is_null().index(True).as_py()
                raise LocalError(
                    f"{describe_place(row)}: the column {column.name!r} is required, and the header "
                    f"{column.header!r} is absent, null or cannot be read as {type_word(column.type)}; leave out "
                    f'`required` to read null, or such messages with where="{column.name} is not null", or take '
                    "them to quarantine by a pipeline"
                )

    def column(self, name: str) -> HeaderColumn | None:
        """Return the header column of this name, or None."""
        return next((column for column in self.headers if column.name == name), None)


def type_word(type_: pa.DataType) -> str:
    """Spark's word for a column type; SettingError for a type that no header column can have."""
    for word, known in TYPES.items():
        if known == type_:
            return word
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return f"decimal({type_.precision},{type_.scale})"
    if type_ == ARRAY:
        return ARRAY_WORD
    raise SettingError(f"a header column cannot have the type {type_}; known are {list_type_words()}")


def list_type_words() -> str:
    """Return the words of all types, for messages to people."""
    return ", ".join((*TYPES, *_OTHER_WORDS))


def parse_type(word: str) -> pa.DataType:
    """Return the Arrow type of a word such as ``int`` or ``decimal(38,0)``. Raises SettingError with a suggestion."""
    plain = re.sub(r"\s+", "", word).lower()
    known = TYPES.get(SYNONYMS.get(plain, plain))
    if known is not None:
        return known
    if plain == ARRAY_WORD:
        return ARRAY
    if found := re.fullmatch(r"decimal\(([0-9]{1,3}),([0-9]{1,3})\)", plain):
        precision, scale = int(found[1]), int(found[2])
        if not (1 <= precision <= 38 and scale <= precision):
            raise SettingError(f"{word!r} is no type: decimal(p,s) has p from 1 to 38 digits, s of them decimals")
        return pa.decimal128(precision, scale)
    near = did_you_mean(plain, (*TYPES, ARRAY_WORD))
    raise SettingError(f"unknown column type {word!r}{near}; known are {list_type_words()}")


def parse_encoding(word: str) -> Encoding:
    """Return the encoding of this name. Raises SettingError with a suggestion."""
    try:
        return Encoding(word.lower())
    except ValueError:
        words = [encoding.value for encoding in Encoding]
        raise SettingError(
            f"unknown encoding {word!r}{did_you_mean(word, words)}; known are {', '.join(words)}"
        ) from None


def parse_header_column(name: str, words: str) -> HeaderColumn:
    """Parse a header column from its name and the words after it: ``TYPE [ENCODING] [required] [from HEADER]``.

    Without ``from`` a near miss of a message field's name is refused. Raises SettingError that names what is wrong.
    """
    return _header_column(name, list(_tokens(words)))


def parse_columns(text: str) -> Projection:
    """Parse a projection such as ``offset, carrier string, delay int be, trace string from "trace-id"``, in this order.

    A word alone is a message field; a name with a type is a header column of that header, or of the one after
    ``from``; ``key string`` and ``payload string`` are these fields as text. Names with other characters than letters,
    digits, ``_ . -`` go in double quotes or backticks, and so does a header called ``payload.x``.
    Raises SettingError that names the part that is wrong.
    """
    fields: list[str] = []
    texts: list[str] = []
    headers: list[HeaderColumn] = []
    order: list[str] = []
    for part in _parts(text):
        name, *words = part
        order.append(name.text)
        if words:
            if is_text_field(name.text, " ".join(map(str, words))):
                fields.append(name.text)
                texts.append(name.text)
                continue
            if name.text in FIELD_TYPES and name.text not in PLACE_FIELDS:
                text = f"`{name.text} string`, " if name.text in TEXT_FIELDS else ""
                raise SettingError(
                    f"{name.text!r} is a message field and has its own type: write it alone, {text}or name the column "
                    f"of a header {name.text!r} differently: my_{name.text} {' '.join(map(str, words))} "
                    f"from {name.text}"
                )
            if not name.quoted and not any(word.is_word("from") for word in words):
                require_no_member(name.text, f'`"{name.text}" {" ".join(map(str, words))}`')
            headers.append(_header_column(name.text, words))
        elif name.text in FIELD_TYPES:
            fields.append(name.text)
        else:
            field = field_meant(name.text, FIELD_TYPES)
            hint = did_you_mean(name.text, FIELD_TYPES) if field is None else f" (did you mean {field!r}?)"
            raise SettingError(
                f"{name.text!r} is not a message field{hint}; a header needs a type, for example `{name} string`"
            )
    if not order:
        raise SettingError("no columns are named; for example: offset, carrier string, delay int")
    return Projection(tuple(fields), tuple(headers), tuple(order), tuple(texts))


def is_text_field(name: str, words: str) -> bool:
    """Return whether a column ``name`` with these words after it is the key or payload of messages as text."""
    plain = words.strip().lower()
    return name in TEXT_FIELDS and SYNONYMS.get(plain, plain) == "string"


def require_no_member(name: str, header_form: str) -> None:
    """Raise SettingError if ``name`` looks like a member of a JSON payload or key, which is not a column.

    ``header_form`` is what reads a header of that name.
    """
    field, dot, member = name.partition(".")
    if dot and field in TEXT_FIELDS:
        raise SettingError(
            f"column {name!r}: members of a JSON {field} are not columns; read `{field} string` and take them from it "
            f"afterwards, in Spark by get_json_object({field}, '$.{member}'), in lading sql by decode({field}) ->> "
            f"'{member}', or read a header of this name by {header_form}"
        )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` if a known word is near, else nothing."""
    near = get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


@lazy_dataclass(frozen=True, slots=True)
class _Token:
    text: str
    quoted: bool

    def __str__(self) -> str:
        return f'"{self.text}"' if self.quoted else self.text

    def is_word(self, word: str) -> bool:
        return not self.quoted and self.text.lower() == word


_TOKEN = re.compile(
    r'\s*(?:"(?P<double>(?:[^"]|"")*)"|`(?P<back>(?:[^`]|``)*)`'
    r"|(?P<word>(?:(?i:decimal)\s*\(\s*\d+\s*,\s*\d+\s*\))|(?:(?i:array)\s*<\s*\w+\s*>)|[\w.-]+)|(?P<comma>,)|(?P<wrong>\S))"
)


def _tokens(text: str) -> Iterator[_Token]:
    """Words and quoted names of ``text``; a comma outside quotes is a token ``,``."""
    for match in _TOKEN.finditer(text.rstrip()):
        if (wrong := match["wrong"]) is not None:
            raise SettingError(f"columns {text!r}: {wrong!r} at character {match.start('wrong') + 1} is unexpected")
        if (double := match["double"]) is not None:
            yield _Token(double.replace('""', '"'), True)
        elif (back := match["back"]) is not None:
            yield _Token(back.replace("``", "`"), True)
        else:
            yield _Token(match["word"] or match["comma"], False)


def _parts(text: str) -> Iterator[list[_Token]]:
    part: list[_Token] = []
    for token in _tokens(text):
        if token.is_word(","):
            if not part:
                raise SettingError(
                    f"columns {text!r}: a column is missing before a comma; write it, or leave the comma out"
                )
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _header_column(name: str, words: list[_Token]) -> HeaderColumn:
    if not words:
        raise SettingError(f"column {name!r} has no type; for example `{name} string`")
    type_, rest = parse_type(words[0].text), words[1:]
    encoding, required = Encoding.AUTO, False
    header: str | None = None
    while rest:
        word = rest.pop(0)
        if word.is_word("required"):
            required = True
        elif word.is_word("from"):
            if not rest:
                raise SettingError(f"column {name!r}: `from` is followed by a header name")
            header = rest.pop(0).text
        elif not word.quoted and (near := get_close_matches(word.text.lower(), ("required", "from"), 1, 0.7)):
            raise SettingError(
                f"column {name!r}: {word.text!r} is not a keyword of a header column; did you mean {near[0]}?"
            )
        else:
            encoding = parse_encoding(word.text)
    return HeaderColumn(name, name if header is None else header, type_, encoding, required)
