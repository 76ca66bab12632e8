"""``lading tables``: topics as Iceberg tables for any engine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    DEFAULT_SERVER,
    AsOutput,
    KeyFile,
    ListenAddress,
    Listener,
    WithParent,
    local_path,
    parse_listen_address,
)
from .output import Output, print_note
from .storage_option import Storage, parse_options, parse_storage


def tables(
    from_: Annotated[
        str,
        typer.Option(
            "--from", "-f", "--server", "-s", envvar="LADING_SERVER", metavar="URL|DIR",
            help="Whose topics: a lading://, iggy:// or kafka:// URL, or a data directory.",
        ),
    ] = DEFAULT_SERVER,
    address: ListenAddress = "127.0.0.1:8181",
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--columns", "-c", metavar="TOPIC=COLUMNS",
            help="Typed columns of a topic, as in 'flights=carrier string, delay int'; repeat for several topics.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="DIR", parser=local_path,
            help="Directory of snapshots and rendered files. Default: one in the user's cache.",
        ),
    ] = None,
    files: Annotated[
        str | None,
        typer.Option(
            "--files", metavar="URL",
            help="Object store for sealed files, s3://BUCKET/PREFIX. Default: files are kept in --state alone.",
        ),
    ] = None,
    storage: Storage = None,
    engine_storage: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-storage", metavar="NAME=VALUE",
            help="How engines read that store themselves: endpoint, region and the references of a key that may only "
            "read, which callers of the catalog get. Default: they read it through this process.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate", metavar="FILE", parser=local_path,
            help="PEM file of a certificate: serve HTTPS, on addresses of other machines too.",
        ),
    ] = None,
    key: KeyFile = None,
    output: AsOutput = Output.TEXT,
    listener: Listener = None,
    with_parent: WithParent = False,
) -> None:  # fmt: skip
    """Serve each topic as a read-only Iceberg table, until Ctrl-C: a query sees what was acknowledged before it.

    Listens on this machine only, unless it has a certificate and the source has users. DuckDB, Spark, PyIceberg,
    Polars, Daft, ClickHouse and others read it with their own parts: they take the printed address as that of an
    Iceberg REST catalog.

    Examples:

        lading tables

        lading tables --from kafka://127.0.0.1:9092 --columns 'flights=carrier string, delay int'

        lading tables --from ./data --address 127.0.0.1:0
    """
    from ..serve.parent_pipe import end_with_parent
    from ..topic_tables.file_store import StoreAddress
    from ..topic_tables.server import TablesSettings, run

    if files is None and (storage or engine_storage):
        raise typer.BadParameter("give --files too", param_hint="--storage" if storage else "--engine-storage")
    store = None
    if files is not None:
        engines = parse_options(engine_storage, "--engine-storage") if engine_storage else None
        store = StoreAddress(files, parse_storage(storage), engines)
    if key is not None and certificate is None:
        raise typer.BadParameter("give --certificate too", param_hint="--key")
    where = parse_listen_address(address, "--address")
    if with_parent:
        end_with_parent()
    settings = TablesSettings(from_, where, _parse_columns(column or ()), state, certificate, key, store)
    given = None if listener is None else socket.socket(fileno=listener)
    raise typer.Exit(run(settings, output=output.value, listener=given, print_note=print_note))


def _parse_columns(texts: list[str] | tuple[()]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for text in texts:
        topic, equals, words = (part.strip() for part in text.partition("="))
        if not (topic and equals and words):
            raise typer.BadParameter(
                f"{text!r}: write TOPIC=COLUMNS, as in 'flights=carrier string, delay int'", param_hint="--columns"
            )
        if topic in columns:
            raise typer.BadParameter(f"{topic!r} is named twice; put all columns into one", param_hint="--columns")
        columns[topic] = words
    return columns
