"""``lading headers``: the header keys of a topic: kinds, frequency, examples."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_SERVER, AsOutput, From, States, TopicName, Where
from .output import Output, format_count, meter, print_note, print_table

COLUMNS = {
    "key": "header", "kinds": "kinds", "share": "share %", "nulls": "null", "empty": "empty", "duplicates": "repeated",
    "distinct": "distinct", "size_bytes": "bytes", "examples": "examples",
}  # fmt: skip


def headers(
    topic: TopicName,
    from_: From = DEFAULT_SERVER,
    where: Where = None,
    states: States = "available",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Read at most this many messages.")] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Show which header keys a topic uses: kinds, frequency, nulls, duplicates, examples.

    Examples:

        lading headers flights

        lading headers flights --from ./data --where "carrier = 'UA'" --output json
    """
    from .connection import absent_headers, header_statistics, open_source

    with open_source(from_) as transport:
        total = sum(part.end_offset - part.first_offset for part in transport.topic(topic).partitions)
    with meter("reading headers", min(total, limit or total)) as progress:
        statistics = header_statistics(from_, topic, where=where, states=states, limit=limit, on_rows=progress.advance)
    print_table(statistics.rows(), COLUMNS, output=output)
    if output is Output.TEXT:
        print_note(f"{format_count(statistics.messages, 'message')} of {topic!r} at {from_}")
    if where is not None:
        for sentence in absent_headers(from_, topic, where, states, found=statistics.messages > 0):
            print_note(sentence)
