"""Header values that are JSON documents, brought into the text forms that the typing rules read."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.kinds import FIXED_SIZE_BYTES, Kind
from ..model.run import Located
from ..payloads.walk import write_whole_number

_NULL, _ABSENT = -2, -1


def unwrap_json(located: Located, *, whole_numbers: bool) -> tuple[Located, NDArray[np.bool_]]:
    """Return the rows with JSON values unwrapped, and a mask of the rows that are not JSON.

    A JSON string becomes its text, a number, true, false, object or array its JSON text, JSON null a null value; with
    ``whole_numbers`` 1.0 and 1e3 become 1 and 1000. Values of number kinds stay unchanged.
    """
    pieces: list[bytes] = []
    length = located.length.copy()
    kind = located.kind.copy()
    wrong = np.zeros(len(length), np.bool_)
    for row in range(len(length)):
        if length[row] < 0:
            continue
        data: bytes = located.data[located.start[row] : located.start[row] + length[row]].tobytes()
        if int(kind[row]) not in FIXED_SIZE_BYTES:
            try:
                text = _to_text(data, whole_numbers)
            except (ValueError, RecursionError):
                wrong[row], length[row] = True, _ABSENT
                continue
            if text is None:
                length[row] = _NULL
                continue
            data, kind[row] = text, Kind.STRING
        pieces.append(data)
        length[row] = len(data)
    held = length.clip(min=0)
    start = np.cumsum(held) - held
    return Located(np.frombuffer(b"".join(pieces), np.uint8), start, length, kind), wrong


def _to_text(data: bytes, whole_numbers: bool) -> bytes | None:
    document = data.decode()
    value: Any = json.loads(document, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant)
    if value is None:
        return None
    if isinstance(value, _Number):
        return (write_whole_number(value) if whole_numbers else value).encode()
    return value.encode() if isinstance(value, str) else document.strip().encode()


class _Number(str):
    """The literal of a JSON number, kept apart from JSON strings."""

    __slots__ = ()


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
