"""Changes of the current generation over HTTP as the fields of its operations (iggy-current.md B5)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from ...model.kinds import Kind
from ..iggy_classic.primitives import ConsumerKind
from ..iggy_current.operations import ConsumerName, Deferral
from ..iggy_current.options import UNLIMITED, Option, parse_option
from .byte_sizes import SIZE
from .commands import LATER_PARTS, Part, drop_unused, read_body, read_query
from .documents import IDENTIFIER, TEXT, U32, U64, Form, form_of, list_of, optional
from .errors import wrong_document
from .text import Members

_BOUNDS: Final = ("message_expiry", "max_topic_size")
_UNLIMITED: Final = struct.pack("<Q", UNLIMITED)


def _options_of(value: Any, where: str) -> dict[str, Option]:
    return {key: _option(key, text, where) for key, text in form_of(value, where, Members).items()}


def _option(key: str, value: Any, where: str) -> Option:
    """Return one option of a topic from its text; an unknown one stays text, and is refused by its name later."""
    # clients of protocol 0.12 send numbers and truth values as such
    text = json.dumps(value) if isinstance(value, bool | int) else form_of(value, f"{where}.{key}", str)
    return parse_option(key, text)


def _u64_option(value: int | None) -> Option | None:
    return None if value is None else Option(Kind.UINT64, struct.pack("<Q", value))


def _u64_of(value: Any, where: str) -> Any:
    # clients of protocol 0.12 send as text what other JSON readers would round
    try:
        return U64.from_text(value) if isinstance(value, str) else U64.of(value, where)
    except ValueError as error:
        raise wrong_document(f"{where}: {error}") from None


_NAME: Final = Part("name", ("name",), TEXT)
_OPTIONS: Final = Part("options", ("options",), Form(_options_of, TEXT.from_text), {})
_TOPIC: Final = (
    _NAME,
    Part("compression_algorithm", ("compression_algorithm",), optional(TEXT), None),
    Part("message_expiry", ("message_expiry",), optional(Form(_u64_of, U64.from_text)), None),
    Part("max_topic_size", ("max_topic_size",), optional(SIZE), None),
    _OPTIONS,
)
_NEW_NAME: Final = Part("name", ("name",), optional(TEXT), None)
_RESET: Final = Part("reset", ("reset",), optional(list_of(TEXT)), None)
_COUNT: Final = Part("count", ("partitions_count",), U32)
_CONSUMER: Final = Part("consumer", ("consumer_id",), IDENTIFIER, 1)
_PARTITION: Final = Part("partition", ("partition_id",), optional(U32), 0)

BODIES: Final[Mapping[str, tuple[Part, ...]]] = {
    "create_stream": (_NAME, _OPTIONS),
    # since protocol 0.12 what is left out stays as it is, a name too, and what is reset is named
    "update_stream": (_NEW_NAME, _OPTIONS),
    "create_topic": (Part("partitions_count", ("partitions_count",), U32), *_TOPIC),
    "update_topic": (_NEW_NAME, *_TOPIC[1:], _RESET),
    "create_partitions": (_COUNT,),
    "store_consumer_offset": (_CONSUMER, _PARTITION, Part("offset", ("offset",), U64)),
    "create_consumer_group": (_NAME,),
}
"""Members of bodies, by operation."""
QUERIES: Final[Mapping[str, tuple[Part, ...]]] = {
    "delete_partitions": (_COUNT,),
    "delete_segments": (Part("segments_count", ("segments_count",), U32),),
    "delete_consumer_offset": (_PARTITION, *LATER_PARTS),
}
"""Parameters of queries, by operation."""


_DEFERRAL: Final = (
    Part("wait_us", ("wait_us",), U64, 0),
    Part("count_min", ("min_count",), U32, 1),
    Part("bytes_max", ("max_bytes",), U32, 1 << 20),
    Part("timeout_us", ("request_timeout_us",), U64, 0),
)
_DEFERRAL_NAMES: Final = frozenset(name for part in _DEFERRAL for name in part.names)


def take_deferral(query: dict[str, str]) -> Deferral:
    """Take out of a poll's query for how much it may wait, and how long; BodyError 400 for a bad parameter."""
    return Deferral(**read_query(_DEFERRAL, {name: query.pop(name) for name in _DEFERRAL_NAMES & query.keys()}))


def parse_operation(name: str, body: bytes, query: Mapping[str, str], **path: Any) -> dict[str, Any]:
    """Return the fields of an operation by what path, body and query say; BodyError, or StatusError for options.

    ``path`` has them as clients count; a consumer in it is named.
    """
    values = dict(path)
    if name in BODIES:
        values |= read_body(BODIES[name], body)
    return _complete(name, values | drop_unused(read_query(QUERIES.get(name, ()), query)))


def _complete(name: str, values: dict[str, Any]) -> dict[str, Any]:
    if "consumer" in values:
        values["consumer"] = ConsumerName(ConsumerKind.CONSUMER, values["consumer"])
        values["ack"] = 1
    if name in ("create_topic", "update_topic"):
        named = {key: _u64_option(values.pop(key)) for key in _BOUNDS}
        algorithm = values.pop("compression_algorithm")
        named["compression_algorithm"] = None if algorithm is None else Option(Kind.STRING, algorithm.encode())
        given = {key: option for key, option in named.items() if option is not None}
        reset = {key: Option(Kind.UINT64, _UNLIMITED) for key in values.pop("reset", None) or () if key in _BOUNDS}
        values["options"] = {**given, **values["options"], **reset}
    return values
