"""A query of a topic's table for each engine, as the page "Query a topic from any engine" has it."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_STREAM: Final = "default"
LIMIT: Final = 10


class EngineBlock(NamedTuple):
    """The text for one engine, which can be copied as it is."""

    engine: str
    text: str


def write_engine_blocks(catalog: str, namespace: str, table: str) -> list[EngineBlock]:
    """Return a block for each engine; ``catalog`` is the URL of the topics' tables."""
    names = namespace, table
    uri = ascii(catalog) if '"' in catalog else f'"{catalog}"'
    spark_name = ".".join(["t", *(_quote(name, "`") for name in names)])
    loaded = f'table = RestCatalog("lading", uri={uri}).load_table({_write_identifier(names)})'
    rest = "from pyiceberg.catalog.rest import RestCatalog"
    duckdb_name = ".".join(["t", *(_quote(name, '"') for name in names)])
    of_duckdb = _write_text(f"select * from {duckdb_name} limit {LIMIT}")
    attach = (
        f"ATTACH '' AS t (TYPE iceberg, ENDPOINT '{_double_quotes(catalog)}', AUTHORIZATION_TYPE 'none', READ_ONLY)"
    )  # fmt: skip
    of_clickhouse = _write_text(f"SELECT * FROM t.{_quote('.'.join(names), '`')} LIMIT {LIMIT}")
    return [
        EngineBlock("DuckDB", "\n".join([
            "import duckdb", "", "connection = duckdb.connect()", 'for extension in ("avro", "httpfs", "iceberg"):',
            "    connection.install_extension(extension)", "    connection.load_extension(extension)",
            f"connection.sql({_write_text(attach)})", f"print(connection.sql({of_duckdb}))",
        ])),
        EngineBlock("PyIceberg", "\n".join([rest, "", loaded, f"print(table.scan(limit={LIMIT}).to_arrow())"])),
        EngineBlock("Polars", "\n".join([
            "import polars", rest, "", f'catalog = RestCatalog("lading", uri={uri})',
            f"rows = polars.scan_iceberg({_write_identifier(names)}, catalog=catalog)",
            f"print(rows.head({LIMIT}).collect())",
        ])),
        EngineBlock("Daft", "\n".join([
            "import daft", rest, "", loaded, "rows = daft.read_iceberg(table)", f"rows.limit({LIMIT}).show()",
        ])),
        EngineBlock("ClickHouse", "\n".join([
            "from chdb.session import Session", "", "session = Session()",
            'session.query("SET allow_experimental_database_iceberg = 1")', "session.query(",
            f"    {_write_text(_create_database(catalog)[0])}", f"    {_write_text(_create_database(catalog)[1])}", ")",
            f"print(session.query({of_clickhouse}))",
        ])),
        EngineBlock("Spark settings", "\n".join([
            "spark.sql.catalog.t               org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.t.type          rest",
            f"spark.sql.catalog.t.uri           {catalog}",
            "spark.sql.catalog.t.cache-enabled false",
        ])),
        EngineBlock("Spark", f"spark.sql({_write_text(f'select * from {spark_name} limit {LIMIT}')}).show()"),
    ]  # fmt: skip


def _create_database(catalog: str) -> tuple[str, str]:
    return (
        f"CREATE DATABASE t ENGINE = DataLakeCatalog('{_double_quotes(catalog)}/v1') ",
        "SETTINGS catalog_type = 'rest', warehouse = 'lading', vended_credentials = true",
    )


def _quote(name: str, mark: str) -> str:
    """Return a name between marks, as it may be a word of SQL; that of the first stream is taken as it is."""
    if name == DEFAULT_STREAM:
        return name
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def _double_quotes(text: str) -> str:
    return text.replace("'", "''")


def _write_text(text: str) -> str:
    """Return a Python literal; of a text that has to be escaped, in ASCII, as nothing hidden may be copied."""
    is_simple = text.isascii() and text.isprintable() and not set(text) & {'"', "\\"}
    return f'"{text}"' if is_simple else ascii(text)


def _write_identifier(names: tuple[str, str]) -> str:
    """Return a table's name for PyIceberg: a text, or a tuple if a name has a dot."""
    if any("." in name for name in names):
        return f"({', '.join(map(_write_text, names))})"
    return _write_text(".".join(names))
