"""Options for reading payloads whose members are columns, or used in conditions."""

from __future__ import annotations

from typing import Annotated

import typer

from ..schemas.subjects import STRATEGIES
from .options import word

PayloadFormat = Annotated[
    str | None,
    typer.Option(
        "--payload-format",
        metavar="FORMAT",
        help="Format of payloads of which columns are members: json, avro, protobuf, text, or schema for that of the "
        "schema that a payload names by its id. Default: that of --payload-schema; with --registry alone schema; else "
        "json.",
    ),
]
PayloadSchema = Annotated[
    str | None,
    typer.Option(
        "--payload-schema",
        metavar="FILE",
        help="Schema of the payloads: a file .avsc, .proto or .desc, which says their format.",
    ),
]
PayloadMessage = Annotated[
    str | None,
    typer.Option("--payload-message", metavar="NAME", help="The message of a .proto or .desc file that payloads are."),
]
PayloadRegistry = Annotated[
    str | None,
    typer.Option("--registry", metavar="URL", help="Schema registry, for payloads with the id of their schema."),
]


SubjectStrategy = Annotated[
    str | None,
    typer.Option(
        "--subject-strategy",
        parser=word(STRATEGIES),
        metavar="|".join(STRATEGIES),
        help="Name of the subject in the registry, as Confluent's serialisers have it: TOPIC-value, the name of the "
        "record, or TOPIC-RECORD. Default: TOPIC.",
    ),
]


def gather_payload(
    format_: str | None, schema: str | None, message: str | None, registry: str | None
) -> dict[str, str] | None:
    """Return the keys of ``[payload]`` that options give, or None without any. Raises SettingError for wrong ones."""
    from ..registry.payload_form import parse_payload_form

    if format_ is None and registry is not None and schema is None:
        format_ = "schema"
    given = {"format": format_, "schema": schema, "message": message, "registry": registry}
    payload = {name: value for name, value in given.items() if value is not None} or None
    parse_payload_form(payload)
    return payload
