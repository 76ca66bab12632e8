"""Changes of the current generation over HTTP as the fields of its operations (iggy-current.md B5)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from ...model.kinds import Kind
from ..iggy_classic.primitives import ConsumerKind
from ..iggy_current.errors import StatusError
from ..iggy_current.operations import ConsumerName
from ..iggy_current.options import INVALID_VALUE, TOPIC_OPTIONS, Option
from .byte_sizes import SIZE
from .commands import Part, read_body, read_query
from .documents import IDENTIFIER, TEXT, U32, U64, Form, form_of, optional
from .text import Members

_NUMBER_BYTES: Final = {Kind.UINT64: struct.Struct("<Q"), Kind.UINT32: struct.Struct("<I")}
_FLAGS: Final = {"true": b"\x01", "false": b"\x00"}


def _options_of(value: Any, where: str) -> dict[str, Option]:
    return {key: _option(key, text, where) for key, text in form_of(value, where, Members).items()}


def _option(key: str, value: Any, where: str) -> Option:
    """Return one option of a topic from its text; an unknown one stays text, and is refused by its name later."""
    text = form_of(value, f"{where}.{key}", str)
    spec = TOPIC_OPTIONS.get(key)
    kind = Kind.STRING if spec is None else spec.kind
    try:
        if kind in _NUMBER_BYTES:
            return Option(kind, _NUMBER_BYTES[kind].pack(SIZE.from_text(text)))
        return Option(kind, _FLAGS[text] if kind is Kind.BOOL else text.encode())
    except (KeyError, ValueError, struct.error):
        raise StatusError(INVALID_VALUE, f"option {key!r} cannot be {text[:40]!r}") from None


def _u64_option(value: int | None) -> Option | None:
    return None if value is None else Option(Kind.UINT64, struct.pack("<Q", value))


_NAME: Final = Part("name", ("name",), TEXT)
_OPTIONS: Final = Part("options", ("options",), Form(_options_of, TEXT.from_text), {})
_TOPIC: Final = (
    _NAME,
    Part("compression_algorithm", ("compression_algorithm",), optional(TEXT), None),
    Part("message_expiry", ("message_expiry",), optional(U64), None),
    Part("max_topic_size", ("max_topic_size",), optional(SIZE), None),
    _OPTIONS,
)
_COUNT: Final = Part("count", ("partitions_count",), U32)
_CONSUMER: Final = Part("consumer", ("consumer_id",), IDENTIFIER, 1)
_PARTITION: Final = Part("partition", ("partition_id",), optional(U32), 0)

BODIES: Final[Mapping[str, tuple[Part, ...]]] = {
    "create_stream": (_NAME, _OPTIONS),
    "update_stream": (_NAME, _OPTIONS),
    "create_topic": (Part("partitions_count", ("partitions_count",), U32), *_TOPIC),
    "update_topic": _TOPIC,
    "create_partitions": (_COUNT,),
    "store_consumer_offset": (_CONSUMER, _PARTITION, Part("offset", ("offset",), U64)),
    "create_consumer_group": (_NAME,),
}
"""Members of bodies, by operation."""
QUERIES: Final[Mapping[str, tuple[Part, ...]]] = {
    "delete_partitions": (_COUNT,),
    "delete_segments": (Part("segments_count", ("segments_count",), U32),),
    "delete_consumer_offset": (_PARTITION,),
}
"""Parameters of queries, by operation."""


def parse_operation(name: str, body: bytes, query: Mapping[str, str], **path: Any) -> dict[str, Any]:
    """Return the fields of an operation by what path, body and query say; BodyError, or StatusError for options.

    ``path`` has them as clients count; a consumer in it is named.
    """
    values = dict(path)
    if name in BODIES:
        values |= read_body(BODIES[name], body)
    return _complete(name, values | read_query(QUERIES.get(name, ()), query))


def _complete(name: str, values: dict[str, Any]) -> dict[str, Any]:
    if "consumer" in values:
        values["consumer"] = ConsumerName(ConsumerKind.CONSUMER, values["consumer"])
        values["ack"] = 1
    if name in ("create_topic", "update_topic"):
        named = {key: _u64_option(values.pop(key)) for key in ("message_expiry", "max_topic_size")}
        algorithm = values.pop("compression_algorithm")
        named["compression_algorithm"] = None if algorithm is None else Option(Kind.STRING, algorithm.encode())
        given = {key: option for key, option in named.items() if option is not None}
        values["options"] = {**given, **values["options"]}
    return values
