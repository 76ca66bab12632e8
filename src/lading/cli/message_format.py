"""``--format``: the text printed for a message, in kcat's notation for everything that kcat has."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from ..model.errors import CorruptError, LocalError
from ..model.message import Message
from ..model.printable import escape_unseen
from ..payloads.form import JSON_FORM, PayloadForm
from ..payloads.paths import PAYLOAD, parse_path

PLACES: Final[dict[str, Callable[[Message], Any]]] = {
    "t": lambda message: message.topic,
    "p": lambda message: message.partition,
    "o": lambda message: message.offset,
    "k": lambda message: message.key,
    "s": lambda message: message.payload,
    "S": lambda message: len(message.payload or b""),
    "T": lambda message: message.timestamp_us // 1_000,
    "a": lambda message: message.state.word,
    "i": lambda message: message.id,
    "h": lambda message: ",".join(f"{header.key}={_to_text(_read_typed(header))}" for header in message.headers),
    "%": lambda message: "%",
}
MEANINGS: Final = (
    "%t topic, %p partition, %o offset, %k key, %s payload, %S its bytes, %T time in ms, %a state, %i id, "
    "%h all headers, %h{KEY} one header, %p{order.amount} one member of the payload"
)
ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\r": "\r", "\\\\": "\\"}
_PLACE: Final = re.compile(r"%(?P<part>[hp])\{(?P<name>[^}]+)\}|%(?P<letter>.?)|(?P<escape>\\[ntr\\])", re.DOTALL)
_INDENT: Final = "  "
_JSON_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"{}\[\],:]+|[{}\[\],:]', re.DOTALL)


def compile_format(text: str, form: PayloadForm = JSON_FORM) -> Callable[[Message], str]:
    """Return the function that prints a message by the format ``text``; ``form`` is how payloads are read.

    Raises LocalError for an unknown placeholder.
    """
    parts: list[str | Callable[[Message], Any]] = []
    end = 0
    for found in _PLACE.finditer(text):
        parts.append(text[end : found.start()])
        end = found.end()
        if found["part"] == "h":
            parts.append(_make_header_reader(found["name"]))
        elif found["part"] == "p":
            parts.append(_make_member_reader(text, found["name"], form))
        elif found["escape"] is not None:
            parts.append(ESCAPES[found["escape"]])
        elif found["letter"] in PLACES:
            parts.append(PLACES[found["letter"]])
        else:
            raise LocalError(f"--format {text!r}: {found[0]!r} at {found.start()} is unknown; there are {MEANINGS}")
    parts.append(text[end:])
    return lambda message: "".join(
        part if isinstance(part, str) else escape_unseen(_to_text(part(message))) for part in parts
    )


def _make_header_reader(key: str) -> Callable[[Message], Any]:
    def first_value(message: Message) -> Any:
        return next((_read_typed(header) for header in message.headers if header.key == key), None)

    return first_value


def _make_member_reader(text: str, name: str, form: PayloadForm) -> Callable[[Message], Any]:
    path = parse_path(f"{PAYLOAD}.{name}")
    if path is None:
        raise LocalError(f'--format {text!r}: %p{{{name}}} is no path; write %p{{order.amount}}, or %p{{"unit price"}}')

    def read_member(message: Message) -> Any:
        import pyarrow as pa

        from ..columns.contract import PayloadColumn
        from ..columns.locate import to_located
        from ..columns.members import build_column

        payloads: pa.Array[Any] = pa.array([message.payload], pa.binary())
        located = {
            key: to_located(pa.array([dict(_list_pairs(message)).get(key)], pa.binary())) for key in form.header_keys
        }
        values = form.walk({PAYLOAD: payloads}, located, [path]).values[path]
        return build_column(values, PayloadColumn("member", path, pa.string()))[0][0].as_py()

    return read_member


def _list_pairs(message: Message) -> list[tuple[str, bytes | None]]:
    return [(header.key, header.value) for header in message.headers]


def indent_json(payload: bytes, lines_max: int) -> tuple[list[str], int] | None:
    """Return the first lines of a JSON object, with names and values as written, and its number of lines.

    Returns None if the payload is not a JSON object.
    """
    import pyarrow as pa

    from ..payloads.walk import walk_json

    if payload[:1] != b"{" or not walk_json(pa.array([payload], pa.binary()), [("",)]).good[0]:
        return None
    lines, count, indent, before = [""], 1, 0, ""
    for found in _JSON_PART.finditer(payload.decode()):
        part = found[0]
        indent -= part in ("}", "]")
        is_empty = part in ("}", "]") and before in ("{", "[")
        if (before in ("{", "[", ",") and not is_empty) or (part in ("}", "]") and not is_empty):
            count += 1
            if count <= lines_max:
                lines.append(_INDENT * indent)
        if count <= lines_max:
            lines[-1] += ": " if part == ":" else part
        indent += part in ("{", "[")
        before = part
    return lines, count


def _read_typed(header: Any) -> Any:
    try:
        return header.typed
    except CorruptError:
        return header.value


def _to_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "0x" + value.hex()
    return str(value)
