"""Contracts that a pipeline's file includes by name: CloudEvents in both modes, and trace contexts.

A CloudEvent in binary mode has its attributes in headers, ``ce_id``. One in structured mode is a JSON object with
these and the data, and its content type says so (CloudEvents 1.0.2, Kafka protocol binding). Attributes of the second
become headers of the first before the contract looks at them, so that both fill the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..columns.contract import did_you_mean
from ..model.errors import SettingError
from ..model.run import Decoded, Located
from ..payloads.paths import PAYLOAD, Path
from ..payloads.walk import walk_json

CLOUDEVENTS: Final = "cloudevents"
CONTENT_TYPE: Final = "content-type"
_STRUCTURED: Final = b"application/cloudevents+json"
_PREFIX: Final = "ce_"


def _match_id(digits: int) -> str:
    """Return a pattern of lower-case hexadecimal ids that are not all zero; RE2 has no lookahead to forbid one."""
    zeros = ("0" * count for count in range(digits))
    return "(?:" + "|".join(f"{start}[1-9a-f][0-9a-f]{{{digits - 1 - len(start)}}}" for start in zeros) + ")"


_CONTEXT: Final = f"{_match_id(32)}-{_match_id(16)}-[0-9a-f]{{2}}"
_TRACE: Final = f"00-{_CONTEXT}|(?:0[1-9a-f]|[1-9a-e][0-9a-f]|f[0-9a-e])-{_CONTEXT}(?:-.*)?"
"""A traceparent (W3C Trace Context 3.2.2): version ff and ids of zeros are invalid, later versions may have more."""
CONTRACTS: Final[Mapping[str, Mapping[str, Any]]] = {
    CLOUDEVENTS: {
        "ce_specversion": "string required",
        "ce_id": "string required",
        "ce_source": "string required",
        "ce_type": "string required",
        "ce_subject": "string",
        "ce_time": "timestamp",
        "ce_dataschema": "string",
        "ce_datacontenttype": f"string from {CONTENT_TYPE}",
    },
    "opentelemetry": {
        "traceparent": {"type": "string", "pattern": _TRACE},
        "tracestate": "string",
        "baggage": "string",
    },
}
"""The declarations of each contract, as in the section [headers]."""


def include_contracts(headers: Mapping[str, Any], included: Sequence[str], name: str) -> dict[str, Any]:
    """Return the declarations of contracts, and those of the file ``name``, which replace them column by column.

    Raises SettingError for a contract that does not exist.
    """
    merged: dict[str, Any] = {}
    for contract in included:
        if contract not in CONTRACTS:
            raise SettingError(
                f"{name}: include {contract!r} does not exist{did_you_mean(contract, CONTRACTS)}; there are "
                f"{', '.join(CONTRACTS)}"
            )
        merged |= CONTRACTS[contract]
    return merged | dict(headers)


def open_structured_events(decoded: Decoded) -> Decoded:
    """Return messages with the attributes of CloudEvents in structured mode among their located headers.

    An attribute that the event does not have is absent; so are those of a payload that is not a JSON object.
    """
    content = decoded.located[CONTENT_TYPE]
    rows = np.flatnonzero(_begin_with(content, _STRUCTURED))
    if not len(rows):
        return decoded
    names: dict[str, Path] = {key: (key[len(_PREFIX) :],) for key in decoded.located if key.startswith(_PREFIX)}
    names[CONTENT_TYPE] = ("datacontenttype",)
    payloads: Any = decoded.columns[PAYLOAD]
    walked = walk_json(payloads.take(pa.array(rows)), names.values())
    located = dict(decoded.located)
    for key, path in names.items():
        attributes, _ = walked.values[path].locate(whole_numbers=False)
        located[key] = _replace(located[key], rows, attributes)
    return Decoded(decoded.count, decoded.columns, located)


def _begin_with(values: Located, prefix: bytes) -> Any:
    """Return which values begin with ``prefix``, in any case."""
    wanted = np.frombuffer(prefix, np.uint8)
    long = np.flatnonzero(values.length >= len(prefix))
    found = np.zeros(len(values.length), np.bool_)
    if len(long):
        letters = values.data[values.start[long][:, None] + np.arange(len(prefix))]
        lower = np.where((letters >= ord("A")) & (letters <= ord("Z")), letters + 32, letters)
        found[long] = (lower == wanted).all(axis=1)
    return found


def _replace(values: Located, rows: Any, others: Located) -> Located:
    """Return values with those of ``rows`` replaced by ``others``, in memory of both."""
    start, length, kind = values.start.copy(), values.length.copy(), values.kind.copy()
    start[rows] = others.start + len(values.data)
    length[rows] = others.length
    kind[rows] = others.kind
    return Located(np.concatenate([values.data, others.data]), start, length, kind)
