"""The contract: which message fields and which headers become columns, of which type, read from which form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from enum import StrEnum
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..model.batch import SCHEMA_WITH_ORIGIN
from ..model.errors import LocalError, SettingError
from ..model.lazy_dataclass import lazy_dataclass
from ..payloads.form import JSON_FORM, PayloadForm, find_fields
from ..payloads.paths import PATH_PATTERN, PAYLOAD, Path, parse_path, write_path
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
JSON_WORD = "json"
"""The word for a payload column of strings that hold the JSON text of the value, whatever it is."""


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
        """Each rule as the reason of a message that breaks it, and the rule in words."""
        ...

    def find_breaches(self, column: pa.Array[Any]) -> Iterator[NDArray[np.bool_] | None]:
        """Yield for each of ``rules`` which rows violate it, or None if no row does."""
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
class PayloadColumn:
    """One value of the payload: column ``name``, the path to it, Arrow type, and whether a payload must have it.

    With ``json`` it is a string that holds the JSON text of the value. SettingError for a type no payload column has.
    """

    name: str
    path: Path
    type: pa.DataType
    required: bool = False
    constraint: ColumnConstraint | None = None
    """Constraint of a pipeline on its values, beside the type."""
    json: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise SettingError(f"a column of {write_path(self.path)} needs a name; write `NAME TYPE from payload.PATH`")
        value_type_word(self.type)

    @property
    def text(self) -> str:
        """The path to the value as users write it, ``payload.order.amount``."""
        return write_path(self.path)

    @property
    def word(self) -> str:
        """The word for its type."""
        return JSON_WORD if self.json else value_type_word(self.type)

    @property
    def field(self) -> pa.Field[Any]:
        """The Arrow field of this column; nullable even when required, so that a breach can be shown."""
        return pa.field(self.name, self.type)


@lazy_dataclass(frozen=True, slots=True)
class Projection:
    """Columns to read.

    Message fields, header columns and payload columns; ``order`` is the order of the output, else fields, headers,
    payload. The fields of ``texts``, key or payload, are read as UTF-8 text if they are among the columns.

    SettingError for an unknown field and for a name used twice.
    """

    fields: tuple[str, ...] = ()
    headers: tuple[HeaderColumn, ...] = ()
    order: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    payload: tuple[PayloadColumn, ...] = ()
    form: PayloadForm = JSON_FORM
    """The form in which payloads are read."""

    def __post_init__(self) -> None:
        for field in self.fields:
            if field not in FIELD_TYPES:
                near = did_you_mean(field, FIELD_TYPES)
                raise SettingError(f"{field!r} is not a message field{near}; use one of {', '.join(FIELD_TYPES)}")
        names = [*self.fields, *(column.name for column in self.typed)]
        if len(names) != len(set(names)):
            self._refuse_names(names)
        if not self.order:
            object.__setattr__(self, "order", tuple(names))
        elif sorted(self.order) != sorted(names):
            raise SettingError(
                f"the order {', '.join(self.order)} does not list the columns {', '.join(names)}; "
                "name every column in it once"
            )

    def _refuse_names(self, names: list[str]) -> None:
        """Raise SettingError for a name used twice, with the ways to write columns of a header and of the payload."""
        twice = next(name for name in names if names.count(name) > 1)
        header = next((column for column in self.headers if column.name == twice), None)
        member = next((column for column in self.payload if column.name == twice), None)
        if header is None or member is None:
            raise SettingError(f"column {twice!r} is named twice; leave one out")
        raise SettingError(
            f"column {twice!r} is named twice, for a header and for the payload; write `header_{twice} "
            f'{type_word(header.type)} from "{header.header}"` or `payload_{twice} {member.word} from {member.text}`'
        )

    @property
    def typed(self) -> tuple[HeaderColumn | PayloadColumn, ...]:
        """The columns with declared types: those of headers, then those of the payload."""
        return (*self.headers, *self.payload)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result of ``assemble`` for this projection."""
        fields = {name: SCHEMA_WITH_ORIGIN.field(name) for name in self.fields if name not in PLACE_FIELDS}
        # times outside the years 1 to 9999 are null
        fields |= {name: fields[name].with_nullable(True) for name in fields.keys() & {"timestamp"}}
        fields |= {name: pa.field(name, pa.string()) for name in fields.keys() & set(self.texts)}
        fields |= {name: pa.field(name, PLACE_FIELDS[name]) for name in self.fields if name in PLACE_FIELDS}
        fields |= {column.name: column.field for column in self.typed}
        return pa.schema([fields[name] for name in self.order])

    @property
    def message_fields(self) -> tuple[str, ...]:
        """The fields to decode from messages: those of the Batch schema, without the place that they were read from.

        They include the headers if a column has every value of a header, and the payload if a column comes from it.
        """
        wanted = {*self.fields, *(("headers",) if any(column.type == ARRAY for column in self.headers) else ())}
        wanted |= {*find_fields(column.path for column in self.payload)}
        return tuple(field for field in SCHEMA_WITH_ORIGIN.names if field in wanted)

    @property
    def header_keys(self) -> tuple[str, ...]:
        """The distinct header keys to locate, in order of first use."""
        of_payloads = self.form.list_headers(column.path for column in self.payload)
        return tuple(dict.fromkeys((*(column.header for column in self.headers), *of_payloads)))

    @property
    def requires_values(self) -> bool:
        """Whether any column is required."""
        return any(column.required for column in self.typed)

    def require_values(
        self, batch: pa.RecordBatch, describe_place: Callable[[int], str], payloads: pa.Array[Any] | None = None
    ) -> None:
        """Raise LocalError at the first null of a required column; ``describe_place`` names the place of a row.

        ``payloads`` are the rows' payloads if a column comes from them: a message with a null payload has no such
        values. It is for readers without a quarantine; a pipeline puts such messages there.
        """
        for member in self.payload:
            if member.required and (values := batch.column(member.name)).null_count:
                lacking = values.is_null().to_numpy(zero_copy_only=False)
                if find_fields((member.path,)) == (PAYLOAD,):
                    assert payloads is not None
                    lacking &= payloads.is_valid().to_numpy(zero_copy_only=False)
                if lacking.any():
                    raise LocalError(
                        f"{describe_place(int(lacking.argmax()))}: the column {member.name!r} is required, and "
                        f"{member.text} is absent, null or cannot be read as {member.word}; leave out `required` to "
                        f'read null, or such messages with where="{member.name} is not null", or take them to '
                        "quarantine by a pipeline"
                    )
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

    def payload_column(self, name: str) -> PayloadColumn | None:
        """Return the payload column of this name, or None."""
        return next((column for column in self.payload if column.name == name), None)


def type_word(type_: pa.DataType) -> str:
    """Return Spark's word for a column type. Raises SettingError for a type that no header column can have."""
    for word, known in TYPES.items():
        if known == type_:
            return word
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return f"decimal({type_.precision},{type_.scale})"
    if type_ == ARRAY:
        return ARRAY_WORD
    raise SettingError(f"a header column cannot have the type {type_}; known are {list_type_words()}")


def value_type_word(type_: pa.DataType) -> str:
    """Return Spark's word for the type of a payload column. Raises SettingError for any other type."""
    if pa.types.is_map(type_):
        map_type: Any = type_
        if map_type.key_type != pa.string():
            raise SettingError(f"a payload column cannot have the type {type_}; use string keys: names of members are")
        return f"map<string,{value_type_word(map_type.item_type)}>"
    if pa.types.is_list(type_):
        return f"array<{value_type_word(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{write_field_name(field.name)}:{value_type_word(field.type)}' for field in type_)}>"
    return type_word(type_)


def write_field_name(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`"


def parse_value_type(word: str) -> pa.DataType:
    """Return the Arrow type of a payload column: those of headers, and ``array``, ``struct`` and ``map`` of them.

    Fields are written ``name:type`` or ``name type``. Raises SettingError with the part that is not a type.
    """
    text = word.strip()
    found = re.fullmatch(r"(?is)(array|struct|map)\s*<(.*)>", text)
    if found is None:
        return parse_type(text)
    parts = _split_parts(found[2])
    match found[1].lower(), parts:
        case "array", [item]:
            return pa.list_(pa.field("element", parse_value_type(item)))
        case "map", [key, value] if parse_value_type(key) == pa.string():
            return pa.map_(pa.string(), parse_value_type(value))
        case "struct", fields if all(part.strip() for part in fields):
            return pa.struct([_parse_field(part) for part in fields])
    raise SettingError(
        f"{word!r} is not a type; write array<type>, map<string,type>, whose keys are strings, or struct<name:type,…>"
    )


def _parse_field(text: str) -> pa.Field[Any]:
    found = re.fullmatch(r"(?s)\s*(?:`((?:[^`]|``)+)`|([\w-]+))\s*[:\s]\s*(.+)", text)
    if found is None:
        raise SettingError(f"{text!r} is not a field of a struct; write it name:type")
    return pa.field(found[1].replace("``", "`") if found[1] else found[2], parse_value_type(found[3]))


def _split_parts(text: str) -> list[str]:
    """Return the parts between commas, except for commas in brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


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
            raise SettingError(f"{word!r} is not a type: decimal(p,s) has p from 1 to 38 digits, s of them decimals")
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
    return _header_column(name, list(_split_tokens(words)))


def parse_columns(text: str, form: PayloadForm = JSON_FORM) -> Projection:
    """Parse a projection such as ``offset, carrier string, delay int be, trace string from "trace-id"``, in this order.

    A word alone is a message field; a name with a type is a header column of that header, or of the one after
    ``from``; ``key string`` and ``payload string`` are these fields as text. A name or source ``payload.x`` is a member
    of the payload, and ``x int from payload`` the same. Names with other characters than letters, digits, ``_ . -`` go
    in double quotes or backticks, and so does a header called ``payload.x``.
    ``form`` says how payloads are read. Raises SettingError that names the part that is wrong.
    """
    fields: list[str] = []
    texts: list[str] = []
    headers: list[HeaderColumn] = []
    members: list[PayloadColumn] = []
    order: list[str] = []
    for part in _parts(text):
        name, *words = part
        order.append(name.text)
        path = _find_path(name, words)
        if path is not None:
            members.append(_payload_column(name.text, path, words))
        elif words:
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
    return Projection(tuple(fields), tuple(headers), tuple(order), tuple(texts), tuple(members), form)


def split_columns(text: str) -> dict[str, str]:
    """Return the declaration of each column of a projection by its name, such as ``delay`` to ``delay int be``."""
    declarations: dict[str, str] = {}
    for part in _parts(text):
        words = [_quote(token.text) if token.quoted else token.text for token in part]
        declarations[part[0].text] = " ".join(words)
    return declarations


def is_text_field(name: str, words: str) -> bool:
    """Return whether a column ``name`` with these words after it is the key or payload of messages as text."""
    plain = words.strip().lower()
    return name in TEXT_FIELDS and SYNONYMS.get(plain, plain) == "string"


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


_PLAIN_NAME = re.compile(rf"(?!(?:key|{PAYLOAD})\.|{PAYLOAD}$)[\w.-]+")
_TOKEN = re.compile(
    r'\s*(?:"(?P<double>(?:[^"]|"")*)"|`(?P<back>(?:[^`]|``)*)`'
    rf"|(?P<path>{PATH_PATTERN})"
    r"|(?P<word>(?:(?i:decimal)\s*\(\s*\d+\s*,\s*\d+\s*\))|(?:(?i:array|struct|map)\s*<)|[\w.-]+)|(?P<comma>,)|(?P<wrong>\S))"
)


def _split_tokens(text: str) -> Iterator[_Token]:
    """Return words and quoted names of ``text``; a comma outside quotes is a token ``,``."""
    at, text = 0, text.rstrip()
    while match := _TOKEN.match(text, at):
        at = match.end()
        if (wrong := match["wrong"]) is not None:
            raise SettingError(
                f"columns {text!r}: {wrong!r} at character {match.start('wrong') + 1} is unexpected; "
                "put a name that has it in double quotes"
            )
        if (double := match["double"]) is not None:
            yield _Token(double.replace('""', '"'), True)
        elif (back := match["back"]) is not None:
            yield _Token(back.replace("``", "`"), True)
        elif match["word"] and match["word"].endswith("<"):
            at = _find_type_end(text, at)
            yield _Token(text[match.start("word") : at], False)
        else:
            yield _Token(match["path"] or match["word"] or match["comma"], False)


def _find_type_end(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one before ``at``."""
    depth, start = 1, at
    while depth and at < len(text):
        depth += (text[at] == "<") - (text[at] == ">")
        at += 1
    if depth:
        raise SettingError(f"columns {text!r}: the bracket < at character {start} is not closed; close it with >")
    return at


def _parts(text: str) -> Iterator[list[_Token]]:
    part: list[_Token] = []
    for token in _split_tokens(text):
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
                raise SettingError(f"column {name!r}: `from` is followed by a header name; add it")
            header = rest.pop(0).text
        elif not word.quoted and (near := get_close_matches(word.text.lower(), ("required", "from"), 1, 0.7)):
            raise SettingError(
                f"column {name!r}: {word.text!r} is not a keyword of a header column; did you mean {near[0]}?"
            )
        else:
            encoding = parse_encoding(word.text)
    return HeaderColumn(name, name if header is None else header, type_, encoding, required)


def parse_payload_column(name: str, words: str) -> PayloadColumn | None:
    """Parse a payload column from its name and the words after it, or return None for a column of a header.

    It is ``TYPE [required] from payload``, or ``from payload.PATH``. Raises SettingError that names what is wrong.
    """
    tokens = list(_split_tokens(words))
    path = _find_path(_Token(name, True), tokens)
    return None if path is None else _payload_column(name, path, tokens)


def parse_header_source(source: str) -> str:
    """Return the header that ``source`` names; one called like a place in the payload is in double quotes."""
    return source[1:-1].replace('""', '"') if _is_quoted(source) else source


def write_header_source(header: str) -> str:
    """Return the source that names a header: in double quotes if it would be read as a place in the payload."""
    if _is_quoted(header) or header == PAYLOAD or parse_path(header) is not None:
        return _quote(header)
    return header


def write_column_name(name: str) -> str:
    """Return a name as ``parse_columns`` reads it back, as a column or after ``from``.

    It is quoted if it has other characters than a plain word, or would be read as a place in the key or payload.
    """
    return name if _PLAIN_NAME.fullmatch(name) else _quote(name)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_quoted(source: str) -> bool:
    return len(source) > 1 and source[0] == source[-1] == '"'


def parse_payload_source(name: str, source: str) -> Path | None:
    """Return the path of a column ``name`` with this ``source``, or None if that is a header.

    ``payload`` alone is the member with the column's name. ``key`` alone is a header, since producers use one of this
    name.
    """
    return (parse_path(f"{PAYLOAD}.{name}") or (name,)) if source == PAYLOAD else parse_path(source)


def parse_payload_type(word: str) -> tuple[pa.DataType, bool]:
    """Return the type of a payload column, and whether it holds JSON texts."""
    return (pa.string(), True) if word.strip().lower() == JSON_WORD else (parse_value_type(word), False)


def _find_path(name: _Token, words: list[_Token]) -> Path | None:
    """Return the path of a payload column, by its source or else its name; None for another column."""
    for word, source in pairwise(words):
        if word.is_word("from"):
            is_header = source.quoted or (name.text in TEXT_FIELDS and source.text == PAYLOAD)
            return None if is_header else parse_payload_source(name.text, source.text)
    return None if name.quoted else parse_path(name.text)


def _payload_column(name: str, path: Path, words: list[_Token]) -> PayloadColumn:
    text = write_path(path)
    if name in FIELD_TYPES:
        raise SettingError(
            f"{name!r} is a field of every message; name the column of {text} differently: `my_{name} … from {text}`"
        )
    if not words or words[0].is_word("from"):
        raise SettingError(f"column {name!r} has no type; for example `{name} string from {text}`")
    type_, is_json = parse_payload_type(words[0].text)
    source = next((at for at, word in enumerate(words) if word.is_word("from")), len(words))
    rest = [*words[1:source], *words[source + 2 :]]
    for word in rest:
        if not word.is_word("required"):
            raise SettingError(
                f"column {name!r}: {word.text!r} is not a keyword of a payload column, as its format says how "
                f"values are encoded; write `{name} {words[0].text} required from {text}`"
            )
    return PayloadColumn(name, path, type_, bool(rest), None, is_json)
