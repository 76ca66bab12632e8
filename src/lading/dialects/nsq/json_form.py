"""Headers in NSQ's JSON (docs/reference/carrier.md): every kind in a form that plain readers can use."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...model.headers import Header
from ...model.kinds import FLOATS, INTEGERS, Kind
from ..carrier.encoding import NAME
from .json_mark import NAME as MARK
from .json_mark import find_marked
from .limits import CARRIER_NAME, TRACE_NAME

_TRACE: Final = re.compile(rb"[0-9]{1,19}")
_NUMBER_BYTES_MAX: Final = 4
"""Integers of at most this many bytes are numbers in JSON, larger ones text: many readers hold all numbers as
float64."""
_NAME_BYTES: Final = len("##" + NAME)
_SYNTAX_BYTES: Final = 6
"""Size of the syntax of a member: two pairs of quotes, a colon and a comma."""
_ESCAPE_BYTES: Final = 6
_HEADER_BYTES: Final = 30
"""Size of a header besides its name and value, each byte of which takes up to ``_ESCAPE_BYTES`` with escapes."""

_Form = tuple[int, bytes]


class JsonForm:
    """See model.protocol.HeaderForm."""

    names = (TRACE_NAME, CARRIER_NAME, MARK)

    def render(self, headers: Mapping[int, Header]) -> dict[int, Header]:
        """See HeaderForm.render; the mark of JSON is shown only if it names the headers before it."""
        shown = ((at, _render_header(header)) for at, header in headers.items())
        forms = {at: header for at, header in shown if header is not None}
        if find_marked(list(forms.values())):
            return forms
        return {at: header for at, header in forms.items() if header.key != MARK}

    def size_bytes(self, headers: Iterable[Header]) -> int:
        """See HeaderForm.size_bytes."""
        return 2 + sum(map(_header_bytes, headers))

    def limit_sizes(self, name_sizes: NDArray[np.int64], value_sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """See HeaderForm.limit_sizes."""
        return _ESCAPE_BYTES * (value_sizes + name_sizes) + _HEADER_BYTES

    def is_exact(self, kinds: NDArray[np.int8], values: Any) -> NDArray[np.bool_]:
        """See HeaderForm.is_exact: text, and null of kind raw."""
        null: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
        text = (kinds == Kind.STRING) & ~null
        try:
            values.filter(pa.array(text)).cast(pa.string())
        except pa.ArrowInvalid:
            text = np.zeros(len(text), np.bool_)
        return np.asarray(text | (null & (kinds == Kind.RAW)), np.bool_)


FORM: Final = JsonForm()


def _render_header(header: Header) -> Header | None:
    """Return the header as it is read back from JSON, or None if JSON cannot express it."""
    if header.key == CARRIER_NAME:
        return None
    if header.key == MARK:
        return header if header.kind == Kind.RAW else None
    if header.key == TRACE_NAME and (header.kind != Kind.STRING or not _TRACE.fullmatch(header.value or b"")):
        # servers refuse a message with an invalid trace id
        return None
    if header.value is None:
        return header._replace(kind=int(Kind.RAW))
    kind, value = _FORMS.get(header.kind, _form_text)(header.kind, header.value) or _form_text(
        header.kind, header.value
    )
    return header._replace(kind=int(kind), value=value)


def _form_text(kind: int, value: bytes) -> _Form:
    """Return text unchanged, other bytes as base64."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return Kind.STRING, base64.b64encode(value)
    return Kind.STRING, value


def _form_bool(kind: int, value: bytes) -> _Form | None:
    return (Kind.BOOL, value) if value in (b"\x00", b"\x01") else None


def _form_integer(kind: int, value: bytes) -> _Form | None:
    form = INTEGERS[kind]
    if len(value) != form.size_bytes:
        return None
    number = int.from_bytes(value, "little", signed=form.signed)
    if form.size_bytes <= _NUMBER_BYTES_MAX:
        return Kind.INT64, number.to_bytes(8, "little", signed=True)
    return Kind.STRING, str(number).encode()


def _form_float(kind: int, value: bytes) -> _Form | None:
    if len(value) != FLOATS[kind].size:
        return None
    (number,) = FLOATS[kind].unpack(value)
    if math.isfinite(number):
        return Kind.FLOAT64, struct.pack("<d", number)
    return Kind.STRING, b"NaN" if math.isnan(number) else b"Infinity" if number > 0 else b"-Infinity"


_FORMS: Final[Mapping[int, Callable[[int, bytes], _Form | None]]] = {
    Kind.BOOL: _form_bool,
    **dict.fromkeys(INTEGERS, _form_integer),
    **dict.fromkeys(FLOATS, _form_float),
}
"""JSON form of a value of a kind; None for bytes that are not of that kind, which show as text or base64."""


def _header_bytes(header: Header) -> int:
    value = header.value or b""
    if header.key == NAME and header.kind == Kind.RAW:
        return _NAME_BYTES + _SYNTAX_BYTES + -(-len(value) // 3) * 4
    if header.key == MARK:
        # an empty mark: it is not written, and other headers are written without quotes
        return 0
    # a number or word has at most 24 characters
    text = _measure_quoted(value.decode()) if header.kind == Kind.STRING else 24
    return _measure_quoted(header.key) + text + 2


_encode: Final[Callable[[str], str]] = json.JSONEncoder(ensure_ascii=False).encode
"""Returns JSON; json.dumps would create an encoder for each call."""


def _measure_quoted(text: str) -> int:
    return len(_encode(text).encode())
