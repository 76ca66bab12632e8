"""The text of a .proto file, parsed (protobuf.dev, language specifications of proto2, proto3 and editions)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

from .parsed import InvalidSchema
from .protobuf_model import (
    Options,
    ProtoEnum,
    ProtoExtend,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    ProtoMethod,
    ProtoOneof,
    ProtoService,
    quote,
)

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<name>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[{}()\[\]<>;,=:/+-]|\.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_LABELS: Final = frozenset({"optional", "required", "repeated"})
NESTED_MAX: Final = 32
"""The limit of protoc: deeper messages are invalid, and would exhaust Python's stack."""
END: Final = ("end", "")


def parse_text(text: str) -> ProtoFile:
    """Return the file of a text. Raises InvalidSchema, which names the line."""
    return _Parser(text).parse_file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise InvalidSchema(f"Syntax error in :{_line_of(text, at)}: unexpected {text[at : at + 20]!r}")
            if found.lastgroup is not None:
                self._tokens.append((found.lastgroup, found[0], at))
            at = found.end()
        self._next = 0
        self._depth = 0

    # -- tokens

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self._next >= len(self._tokens):
            return END
        kind, text, _ = self._tokens[self._next]
        self._next += 1
        return kind, text

    def _fail(self, wanted: str) -> NoReturn:
        at = self._tokens[self._next - 1][2] if 0 < self._next <= len(self._tokens) else len(self._text)
        found = self._text[at : at + 20]
        raise InvalidSchema(f"Syntax error in :{_line_of(self._text, at)}: expected {wanted}, not {found!r}")

    def _expect(self, text: str) -> None:
        if self._take()[1] != text:
            self._fail(repr(text))

    def _skip(self, text: str) -> bool:
        is_there = self._peek() == text and self._tokens[self._next][0] != "string"
        self._next += is_there
        return is_there

    def _name(self) -> str:
        kind, text = self._take()
        if kind != "name" or "." in text:
            self._fail("a name")
        return text

    def _full_name(self) -> str:
        kind, text = self._take()
        if kind != "name":
            self._fail("a name of a type")
        return text

    def _read_string(self) -> str:
        kind, text = self._take()
        if kind != "string":
            self._fail("a string")
        parts = [unquote(text)]
        while self._next < len(self._tokens) and self._tokens[self._next][0] == "string":
            parts.append(unquote(self._take()[1]))
        return "".join(parts)

    def _read_integer(self) -> int:
        sign = -1 if self._skip("-") else 1
        kind, text = self._take()
        try:
            if kind != "number" or len(text) > 20:
                raise ValueError
            octal = len(text) > 1 and text[0] == "0" and text[1] not in "xX"
            return sign * (int(text, 8) if octal else int(text, 0))
        except ValueError:
            self._fail("a whole number")

    # -- the file

    def parse_file(self) -> ProtoFile:
        syntax, package = "", ""
        imports: list[tuple[str, str]] = []
        options: list[tuple[str, str]] = []
        types: list[ProtoMessage | ProtoEnum] = []
        extends: list[ProtoExtend] = []
        services: list[ProtoService] = []
        while self._peek():
            if self._skip(";"):
                continue
            kind, word = self._take()
            if kind != "name":
                self._fail("message, enum, import, option, package, extend or service")
            if word in ("syntax", "edition"):
                self._expect("=")
                syntax = ("edition " if word == "edition" else "") + self._read_string()
                if syntax not in ("proto2", "proto3") and not syntax.startswith("edition "):
                    self._fail('"proto2" or "proto3"')
                self._expect(";")
            elif word == "package":
                package = self._full_name()
                self._expect(";")
            elif word == "import":
                how = self._take()[1] if self._peek() in ("public", "weak", "option") else ""
                imports.append((how, self._read_string()))
                self._expect(";")
            elif word == "option":
                options.append(self._option_statement())
            elif word == "message":
                types.append(self._read_message())
            elif word == "enum":
                types.append(self._read_enum())
            elif word == "extend":
                extends.append(self._extend())
            elif word == "service":
                services.append(self._read_service())
            else:
                self._fail("message, enum, import, option, package, extend or service")
        return ProtoFile(syntax, package, tuple(imports), tuple(options), tuple(types), tuple(extends), tuple(services))

    # Return a value in braces as its tokens.

    def _option_statement(self) -> tuple[str, str]:
        option = self._read_option()
        self._expect(";")
        return option

    def _read_option(self) -> tuple[str, str]:
        parts: list[str] = []
        while True:
            if self._skip("("):
                parts.append(f"({self._full_name()})")
                self._expect(")")
            else:
                parts.append(self._full_name())
            following = self._peek()
            if following == ".":
                self._take()
                parts.append(".")
            elif not (following.startswith(".") and following != "=" and following[1:2].isalpha()):
                break
        self._expect("=")
        return "".join(parts), self._read_constant()

    def _read_constant(self) -> str:
        if self._peek() == "{" and self._tokens[self._next][0] == "sign":
            return self._read_aggregate()
        sign = self._take()[1] if self._peek() in ("-", "+") else ""
        if self._next < len(self._tokens) and self._tokens[self._next][0] == "string":
            return quote(self._read_string())
        kind, text = self._take()
        if kind not in ("name", "number"):
            self._fail("a value")
        return (sign if sign == "-" else "") + text

    def _read_aggregate(self) -> str:
        """Return a value in braces, as its tokens."""
        parts, depth = [], 0
        while True:
            kind, text = self._take()
            if kind == "end":
                self._fail("'}'")
            parts.append(quote(unquote(text)) if kind == "string" else text)
            depth += (text in ("{", "<", "[")) - (text in ("}", ">", "]")) if kind == "sign" else 0
            if depth == 0:
                return " ".join(parts)

    def _bracket_options(self) -> Options:
        if not self._skip("["):
            return ()
        options = [self._read_option()]
        while self._skip(","):
            options.append(self._read_option())
        self._expect("]")
        return tuple(options)

    # -- messages

    def _read_message(self) -> ProtoMessage:
        return self._message_body(self._name())

    def _message_body(self, name: str) -> ProtoMessage:
        self._depth += 1
        if self._depth > NESTED_MAX:
            raise InvalidSchema(f"messages are nested more than {NESTED_MAX} levels deep")
        self._expect("{")
        fields: list[ProtoField] = []
        oneofs: list[ProtoOneof] = []
        types: list[ProtoMessage | ProtoEnum] = []
        options: list[tuple[str, str]] = []
        reserved: list[str] = []
        extensions: list[str] = []
        extends: list[ProtoExtend] = []
        # a keyword begins a statement only if a name or its own syntax follows: keywords may be names of types
        statements: dict[str, Callable[[], None]] = {
            "message": lambda: types.append(self._read_message()),
            "enum": lambda: types.append(self._read_enum()),
            "extend": lambda: extends.append(self._extend()),
            "oneof": lambda: oneofs.append(self._read_oneof(types)),
            "option": lambda: options.append(self._option_statement()),
            "reserved": lambda: reserved.append(self._read_ranges()),
            "extensions": lambda: extensions.append(self._read_ranges()),
        }
        while not self._skip("}"):
            if self._skip(";"):
                continue
            word = self._peek()
            after = self._tokens[self._next + 1 : self._next + 3]
            is_field = len(after) == 2 and after[0][0] == "name" and after[1][1] == "="
            if word in statements and not (is_field and word != "option"):
                self._take()
                statements[word]()
            else:
                fields.append(self._read_field(types))
        self._depth -= 1
        return ProtoMessage(
            name, tuple(fields), tuple(oneofs), tuple(types), tuple(options), tuple(reserved), tuple(extensions),
            tuple(extends),
        )  # fmt: skip

    def _read_field(self, types: list[ProtoMessage | ProtoEnum] | None = None) -> ProtoField:
        """Return a field; the message of a group is added to ``types``, the types of the message around it."""
        label = ""
        after = self._tokens[self._next + 1 : self._next + 2]
        if self._peek() in _LABELS and after and after[0][0] == "name":
            label = self._take()[1]
        type_ = self._full_name()
        after = self._tokens[self._next : self._next + 3]
        if type_ == "group" and len(after) == 3 and after[0][1][:1].isupper() and after[1][1] == "=":
            return self._group(label, types)
        map_types = None
        if type_ == "map" and self._skip("<"):
            key = self._name()
            self._expect(",")
            map_types = (key, self._full_name())
            self._expect(">")
            type_ = f"map<{map_types[0]}, {map_types[1]}>"
        name = self._name()
        self._expect("=")
        number = self._read_integer()
        options = self._bracket_options()
        self._expect(";")
        return ProtoField(name, number, type_, label, options, map_types)

    def _group(self, label: str, types: list[ProtoMessage | ProtoEnum] | None) -> ProtoField:
        if types is None:
            raise InvalidSchema("groups in extend are not supported; use a message")
        name = self._name()
        self._expect("=")
        number = self._read_integer()
        options = self._bracket_options()
        types.append(self._message_body(name))
        return ProtoField(name.lower(), number, name, label, options, is_group=True)

    def _read_oneof(self, types: list[ProtoMessage | ProtoEnum]) -> ProtoOneof:
        name = self._name()
        self._expect("{")
        fields: list[ProtoField] = []
        options: list[tuple[str, str]] = []
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._peek() == "option":
                self._take()
                options.append(self._option_statement())
            else:
                fields.append(self._read_field(types))
        return ProtoOneof(name, tuple(fields), tuple(options))

    def _read_ranges(self) -> str:
        """Return the ranges or names of ``reserved`` or ``extensions``, as text."""
        parts: list[str] = []
        while not self._skip(";"):
            kind, text = self._take()
            if kind == "end" or (kind == "sign" and text not in (",", "[", "]", "=", "-", "{", "}", ":")):
                self._fail("';'")
            if kind == "string":
                text = quote(unquote(text))
            parts.append(text if text == "," or not parts or parts[-1] == "-" else f" {text}")
        return "".join(parts)

    def _read_enum(self) -> ProtoEnum:
        name = self._name()
        self._expect("{")
        values: list[tuple[str, int, Options]] = []
        options: list[tuple[str, str]] = []
        reserved: list[str] = []
        while not self._skip("}"):
            if self._skip(";"):
                continue
            word = self._name()
            if word == "option" and self._peek() != "=":
                options.append(self._option_statement())
            elif word == "reserved" and self._peek() != "=":
                reserved.append(self._read_ranges())
            else:
                self._expect("=")
                number = self._read_integer()
                if not -(1 << 31) <= number < 1 << 31:
                    self._fail("a number of 32 bits")
                values.append((word, number, self._bracket_options()))
                self._expect(";")
        return ProtoEnum(name, tuple(values), tuple(options), tuple(reserved))

    def _extend(self) -> ProtoExtend:
        name = self._full_name()
        self._expect("{")
        fields = []
        while not self._skip("}"):
            if not self._skip(";"):
                fields.append(self._read_field())
        return ProtoExtend(name, tuple(fields))

    def _read_service(self) -> ProtoService:
        name = self._name()
        self._expect("{")
        methods: list[ProtoMethod] = []
        options: list[tuple[str, str]] = []
        while not self._skip("}"):
            if self._skip(";"):
                continue
            word = self._name()
            if word == "option":
                options.append(self._option_statement())
            elif word == "rpc":
                methods.append(self._read_method())
            else:
                self._fail("rpc or option")
        return ProtoService(name, tuple(methods), tuple(options))

    def _read_method(self) -> ProtoMethod:
        name = self._name()
        request = self._read_parameter()
        self._expect("returns")
        response = self._read_parameter()
        options: list[tuple[str, str]] = []
        if self._skip("{"):
            while not self._skip("}"):
                if not self._skip(";"):
                    self._expect("option")
                    options.append(self._option_statement())
        else:
            self._expect(";")
        return ProtoMethod(name, request, response, tuple(options))

    def _read_parameter(self) -> str:
        self._expect("(")
        name = self._full_name()
        if name == "stream" and self._peek() != ")":
            name = f"stream {self._full_name()}"
        self._expect(")")
        return name


def _line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def unquote(text: str) -> str:
    """Return the string of a literal with its quotes.

    Bytes that are not UTF-8 become ``surrogateescape``s. Numeric escapes are bytes, so that several may be one
    character.
    """
    data = text[1:-1].encode(errors="surrogateescape")
    return _ESCAPE.sub(_replace_escape, data).decode(errors="surrogateescape")


def _replace_escape(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes((int(found[1], 16),))
    if found[2]:
        return bytes((int(found[2], 8) & 0xFF,))
    if found[3] or found[4]:
        number = int(found[3] or found[4], 16)
        return b"?" if 0xD800 <= number <= 0xDFFF or number > 0x10FFFF else chr(number).encode()
    return _ESCAPED.get(found[5], found[5])
