"""``lading profile``: what the headers of a topic hold and weigh, how that changes, and a contract for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsOutput, SourceOption, States, Where, split_source
from .output import Output, format_count, json_line, meter, print_note, print_table
from .payload_options import PayloadRegistry, gather_payload

COLUMNS = {
    "key": "header", "looks": "looks like", "kinds": "kinds", "share": "share %", "change": "change", "nulls": "null",
    "empty": "empty", "duplicates": "repeated", "distinct": "distinct", "bytes": "bytes",
    "bytes_share": "of all bytes %", "examples": "examples",
}  # fmt: skip
MEMBERS = {
    "path": "member of the payload", "type": "type", "kinds": "kinds", "share": "share %", "nulls": "null",
    "examples": "examples",
}  # fmt: skip
HEAVIEST = {
    "partition": "partition", "offset": "offset", "header_bytes": "bytes of headers", "headers": "headers",
    "payload_bytes": "payload",
}  # fmt: skip


def profile(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[SRC] TOPIC",
            help="A lading://, iggy://, kafka:// or nsq:// URL, or a data directory, and the topic; the topic alone "
            "with --from.",
        ),
    ],
    from_: SourceOption = None,
    where: Where = None,
    states: States = "available",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Read at most this many messages.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="The channel to read a queue (nsq://) with, which consumes.")
    ] = None,
    registry: PayloadRegistry = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Profile the headers and payloads of a topic: kinds, looks, frequency, bytes, change over time, a contract.

    Payloads are JSON; with --registry those that name a schema are read by it.

    Examples:

        lading profile flights

        lading profile kafka://127.0.0.1:9092 flights --html flights.html

        lading profile ./data flights --limit 100000 --output json

        lading profile orders --registry http://127.0.0.1:8081
    """
    from ..columns.instants import unreadable_times_sentence
    from ..model.errors import LocalError
    from ..pipeline.contract import headers_section
    from ..pipeline.profile import read_profile
    from ..pipeline.profile_page import describe_looks, draw_line, profile_page
    from ..tables.schema_columns import add_schema_columns, sample_field_schemas
    from ..transports.open import is_queue
    from .connection import open_source
    from .output import format_size

    source, topic = split_source(words, from_, ("TOPIC",))
    total = None
    with open_source(source) as transport:
        parts = transport.topic(topic).partitions
    if group is None:
        total = sum(part.end_offset - part.first_offset for part in parts)
        total = min(total, limit or total)
    with meter("reading headers", total) as progress:
        found = read_profile(
            source, topic, group=group, where=where, states=states, limit=limit, on_rows=progress.advance,
            payload=gather_payload(None, None, None, registry),
        )  # fmt: skip
    if found.lost:
        print_note(f"[red]{found.lost}[/]")
    document = found.document(topic, source)
    # messages of a queue cannot be read again to look up their schemas
    form = None if is_queue(source) else found.form
    schemas = [] if form is None else sample_field_schemas(source, topic, form, states)
    is_json = not schemas and form is found.form
    contract = headers_section(found.statistics, topic, document["headers"], found.members if is_json else None)
    if registry is not None and schemas:
        contract = add_schema_columns(contract, schemas[-1], {"registry": registry})
    if html is not None:
        try:
            html.write_text(profile_page(document, contract))
        except OSError as error:
            raise LocalError(f"the page cannot be written to {html}: {error.strerror}; name another file") from None
    if output is Output.JSON:
        json_line({**document, "contract": contract})
        return
    rows = [
        row | {"looks": describe_looks(row["looks"]), "change": draw_line(row["change"])} for row in document["headers"]
    ]
    if found.unreadable_times:
        print_note(unreadable_times_sentence(found.unreadable_times, "every table"))
    print_table(rows, COLUMNS, output=output)
    if document["payload"]["members"]:
        print_table(document["payload"]["members"], MEMBERS, output=output)
    for sentence in found.members.describe():
        print_note(sentence)
    print_table(document["heaviest"], HEAVIEST, output=output, title="heaviest messages")
    typer.echo(contract, nl=False)
    print_note(
        f"{format_count(document['messages'], 'message')} of {topic!r} at {source}: "
        f"{format_size(found.header_bytes)} of headers, {format_size(found.key_bytes)} of keys, "
        f"{format_size(found.payload_bytes)} of payloads"
    )
