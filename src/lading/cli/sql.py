"""``lading sql``: queries over topics and tables, by DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..model.errors import SettingError
from .options import DEFAULT_SERVER, AsOutput, From, States
from .output import Output, format_count, json_line, literal, print_first_rows, print_lines, print_note
from .payload_options import PayloadFormat, PayloadMessage, PayloadRegistry, PayloadSchema, gather_payload
from .result_values import distinguish_names, read_rows
from .storage_option import Storage, parse_storage

if TYPE_CHECKING:
    import pyarrow as pa

    from ..tables.insert import InsertStatement
    from ..tables.query import QuerySource

SHOWN_ROWS = 1000


def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement; its tables are topics, with headers as columns.")],
    from_: From = DEFAULT_SERVER,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="NAME=TABLE",
            help="A table that the query may name, e.g. late=./tables/late or late=delta:s3://lake/late.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help='Columns of topics, e.g. "carrier string, delay int". Default: what their headers suggest.'),
    ] = None,
    states: States = "available",
    memory: Annotated[str, typer.Option(help="What the query may use before it spills to disk.")] = "1GB",
    payload_format: PayloadFormat = None,
    payload_schema: PayloadSchema = None,
    payload_message: PayloadMessage = None,
    registry: PayloadRegistry = None,
    storage: Storage = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="Where an insert sends its messages. Default: --from.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what an insert would send: its query runs, and nothing is sent.")
    ] = False,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Run SQL over topics and tables, without Spark. Needs the extra "sql" (DuckDB).

    A topic has the columns partition, offset, timestamp, key, payload and one for each header; members of JSON payloads
    are payload.NAME. It is read up to its
    present end while the query runs. With --output json each row is a line. Times are in UTC.

    insert into TOPIC select … sends each row as a message to a topic that exists: columns called key, payload and
    timestamp become these, others headers of their name and type. All messages become visible together, or none, in a
    Lading broker and a Kafka cluster.

    Examples:

        lading sql "select carrier, count(*) from flights group by 1"

        lading sql "select * from flights where delay > 60 limit 5" --from kafka://127.0.0.1:9092 --output json

        lading sql "select tenant, payload->>'state', sum(payload.order.amount) from orders group by all"

        lading sql "select count(*) from flights join late using (key)" --table late=./tables/late

        lading sql "insert into late select key, carrier, delay from flights limit 100" --dry-run
    """
    from ..tables.insert import parse_insert
    from ..tables.query import QuerySource, run_query

    kept: Literal["all", "available"] = "all" if states == "all" else "available"
    payload = gather_payload(payload_format, payload_schema, payload_message, registry)
    source = QuerySource(from_, _parse_tables(table or []), columns, kept, memory, parse_storage(storage), payload)
    statement = parse_insert(query)
    if statement is not None:
        _insert(statement, source, to or from_, dry_run, output)
        return
    if to is not None or dry_run:
        raise SettingError(f"{'--to' if to else '--dry-run'} is for inserts; write insert into TOPIC select …")
    with run_query(query, source) as result:
        # a result may have two columns of one name, such as a.delay and b.delay
        names = distinguish_names(result.schema.names)
        if output is Output.JSON:
            for batch in result:
                for row in read_rows(batch):
                    json_line(dict(zip(names, row, strict=True)))
        else:
            _print(result, names)


def _insert(statement: InsertStatement, source: QuerySource, url: str, dry_run: bool, output: Output) -> None:
    from ..tables.insert import run_insert
    from .connection import open_source

    with open_source(url) as transport:
        done = run_insert(statement, source, transport, dry_run=dry_run)
    if output is Output.JSON:
        json_line({"url": url, "dry_run": dry_run, **done._asdict()})
        return
    verb = "would be sent" if dry_run else "sent"
    print_lines(f"{format_count(done.messages, 'message')} {verb} to topic {literal(done.topic)!r} at {url}")
    kinds = ", ".join(f"{literal(name)} {kind}" for name, kind in done.headers.items())
    print_note(f"headers: {kinds or 'none'}; from columns: {', '.join(done.fields) or 'none'}")
    if done.left_out:
        print_note(f"left out, as the target has its own: {', '.join(done.left_out)}")
    if not done.is_atomic:
        print_note("this target has no transactions: after an error some of the messages stay")


def _print(result: pa.RecordBatchReader, names: list[str]) -> None:
    rows: list[dict[str, Any]] = []
    for batch in result:
        rows += (dict(zip(names, row, strict=True)) for row in read_rows(batch))
        if len(rows) > SHOWN_ROWS:
            break
    remedy = "get all with --output json, or set a limit in the query"
    print_first_rows(rows, {name: name for name in names}, SHOWN_ROWS, output=Output.TEXT, remedy=remedy, exact=True)


def _parse_tables(given: list[str]) -> dict[str, str]:
    found = dict(one.partition("=")[::2] for one in given)
    for name, place in found.items():
        if not (name and place):
            raise SettingError(f"table {name!r}: write NAME=TABLE, e.g. late=./tables/late")
    return found
