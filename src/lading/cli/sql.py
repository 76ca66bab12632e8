"""``lading sql``: queries over topics and tables, by DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..model.errors import SettingError
from .options import DEFAULT_SERVER, AsOutput, From, States
from .output import Output, json_line, print_first_rows
from .payload_options import PayloadFormat, PayloadMessage, PayloadRegistry, PayloadSchema, gather_payload
from .result_values import distinguish_names, read_rows
from .storage_option import Storage, parse_storage

if TYPE_CHECKING:
    import pyarrow as pa

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
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Run SQL over topics and tables, without Spark. Needs the extra "sql" (DuckDB).

    A topic has the columns partition, offset, timestamp, key, payload and one for each header; members of JSON payloads
    are payload.NAME. It is read up to its
    present end while the query runs. With --output json each row is a line. Times are in UTC.

    Examples:

        lading sql "select carrier, count(*) from flights group by 1"

        lading sql "select * from flights where delay > 60 limit 5" --from kafka://127.0.0.1:9092 --output json

        lading sql "select tenant, payload->>'state', sum(payload.order.amount) from orders group by all"

        lading sql "select count(*) from flights join late using (key)" --table late=./tables/late
    """
    from ..tables.query import QuerySource, run_query

    kept: Literal["all", "available"] = "all" if states == "all" else "available"
    payload = gather_payload(payload_format, payload_schema, payload_message, registry)
    source = QuerySource(from_, _tables(table or []), columns, kept, memory, parse_storage(storage), payload)
    with run_query(query, source) as result:
        # a result may have two columns of one name, such as a.delay and b.delay
        names = distinguish_names(result.schema.names)
        if output is Output.JSON:
            for batch in result:
                for row in read_rows(batch):
                    json_line(dict(zip(names, row, strict=True)))
        else:
            _print(result, names)


def _print(result: pa.RecordBatchReader, names: list[str]) -> None:
    rows: list[dict[str, Any]] = []
    for batch in result:
        rows += (dict(zip(names, row, strict=True)) for row in read_rows(batch))
        if len(rows) > SHOWN_ROWS:
            break
    remedy = "get all with --output json, or set a limit in the query"
    print_first_rows(rows, {name: name for name in names}, SHOWN_ROWS, output=Output.TEXT, remedy=remedy)


def _tables(given: list[str]) -> dict[str, str]:
    found = dict(one.partition("=")[::2] for one in given)
    for name, place in found.items():
        if not (name and place):
            raise SettingError(f"table {name!r}: write NAME=TABLE, e.g. late=./tables/late")
    return found
