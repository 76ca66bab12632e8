"""``lading sql``: queries over topics and tables, by DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..model.errors import SettingError
from .options import DEFAULT_SERVER, AsOutput, From, States
from .output import Output, json_line, print_first_rows
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
    storage: Storage = None,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Run SQL over topics and tables, without Spark. Needs the extra "sql" (DuckDB).

    A topic has the columns partition, offset, timestamp, key, payload and one for each header. It is read up to its
    present end while the query runs. With --output json each row is a line.

    Examples:

        lading sql "select carrier, count(*) from flights group by 1"

        lading sql "select * from flights where delay > 60 limit 5" --from kafka://127.0.0.1:9092 --output json

        lading sql "select count(*) from flights join late using (key)" --table late=./tables/late
    """
    from ..tables.query import QuerySource, run_query

    kept: Literal["all", "available"] = "all" if states == "all" else "available"
    source = QuerySource(from_, _tables(table or []), columns, kept, memory, parse_storage(storage))
    with run_query(query, source) as result:
        if output is Output.JSON:
            for batch in result:
                for row in batch.to_pylist():
                    json_line(_plain(row))
        else:
            _print(result)


def _print(result: pa.RecordBatchReader) -> None:
    rows: list[dict[str, Any]] = []
    for batch in result:
        rows += batch.to_pylist()
        if len(rows) > SHOWN_ROWS:
            break
    names = {name: name for name in result.schema.names}
    remedy = "get all with --output json, or set a limit in the query"
    print_first_rows([_plain(row) for row in rows], names, SHOWN_ROWS, output=Output.TEXT, remedy=remedy)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as JSON and a terminal can show it: bytes are text, or hex if they are none."""
    return {name: _text(value) if isinstance(value, bytes) else value for name, value in row.items()}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def _tables(given: list[str]) -> dict[str, str]:
    found = dict(one.partition("=")[::2] for one in given)
    for name, place in found.items():
        if not (name and place):
            raise SettingError(f"table {name!r}: write NAME=TABLE, e.g. late=./tables/late")
    return found
