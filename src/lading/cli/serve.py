"""``lading serve``: the embedded broker."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from .options import AsOutput, WithParent, local_path, parse_listen_address
from .output import Output

CONSOLE_ADDRESS = "127.0.0.1:7071"
TABLES_ADDRESS = "127.0.0.1:8181"


def serve(
    data: Annotated[
        Path | None,
        typer.Option("--data", "-d", parser=local_path, metavar="DIR", help="Data directory; created if missing."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="Keep topics in a Kafka cluster instead of a data directory: kafka://HOST:PORT[,HOST:PORT].",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="TOML settings file.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override one setting, e.g. endpoints.iggy_tcp.address=127.0.0.1:0. May be repeated.",
        ),
    ] = None,
    free_ports: Annotated[
        bool,
        typer.Option(
            "--free-ports",
            help="Take free ports of the loopback if no address is set; the ready line names them.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Listen for this protocol alone, next to the admin endpoint: kafka, iggy, nsq, schema_registry, or "
            "one endpoint such as iggy_tcp. May be repeated, or names in one word: kafka,nsq.",
        ),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Also start the console, a web page on this machine.")
    ] = False,
    console_address: Annotated[
        str | None,
        typer.Option(
            "--console-address",
            metavar="HOST:PORT",
            help=f"Start the console, listening here on this machine. Default: {CONSOLE_ADDRESS}.",
        ),
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables", help="Also serve each topic as an Iceberg table, to engines on this machine: `lading tables`."
        ),
    ] = False,
    tables_address: Annotated[
        str | None,
        typer.Option(
            "--tables-address",
            metavar="HOST:PORT",
            help=f"Start the tables' catalog, listening here on this machine. Default: {TABLES_ADDRESS}.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File that holds the admin endpoint's bearer token and nothing else."),
    ] = None,
    output: AsOutput = Output.TEXT,
    log: Annotated[
        Output | None, typer.Option("--log", help="Format of log lines on standard error: text or json.")
    ] = None,
    test_faults: Annotated[
        bool,
        typer.Option(
            "--test-faults", help="For tests of clients: let requests to /faults of the admin endpoint make it fail."
        ),
    ] = False,
    with_parent: WithParent = False,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM.

    Iggy clients connect to 8090 (TCP) and 3000 (HTTP), Kafka clients to 9092, NSQ clients to 4150 (nsqd) and 4161
    (nsqlookupd); the admin endpoint is 7070. Prints one [bold]ready[/] line with all addresses once every endpoint is
    listening.

    Examples:

        lading serve --data ./data

        lading serve --data ./scratch --free-ports --console

        lading serve --data ./data --only kafka

        lading serve --data ./data --set durability=os --set endpoints.admin.address=127.0.0.1:0 --output json
    """
    from ..serve.lean_imports import install_lean_imports

    install_lean_imports()
    from ..serve import serve as server
    from ..serve.parent_pipe import end_with_parent
    from ..settings.settings import EndpointSettings, is_secret
    from ..settings.sources import ARGUMENT
    from .connection import load_settings

    if with_parent:
        end_with_parent()
    sets = [*_keep_only(only or (), EndpointSettings.model_fields), *(settings or ())]
    if data is not None:
        sets.append(f"data={data}")
    if store is not None:
        sets.append(f"store={store}")
    if log is not None:
        sets.append(f"log_format={log.value}")
    if token_file is not None:
        sets.append(f"endpoints.admin.token_file={token_file}")
    loaded = load_settings(config, sets)
    if free_ports:
        addresses = (f"endpoints.{name}.address" for name in EndpointSettings.model_fields)
        sets += [f"{key}=127.0.0.1:0" for key in addresses if key not in loaded.origins]
        loaded = load_settings(config, sets)
    exposed = [key for key, origin in sorted(loaded.origins.items()) if is_secret(key) and origin == ARGUMENT]
    companions = []
    # the console shows the address of the tables, which are started before it
    wanted = (
        ("tables", tables, tables_address, TABLES_ADDRESS),
        ("console", console, console_address, CONSOLE_ADDRESS),
    )
    for name, _, given, usual in (row for row in wanted if row[1] or row[2] is not None):
        from ..serve.companion import Companion

        address = parse_listen_address(given or ("127.0.0.1:0" if free_ports else usual), f"--{name}-address")
        more = ["--state", str(loaded.settings.data / "tables")] if name == "tables" else []
        companions.append(Companion(name, f"--{name}", address, loaded.settings, more))
    beside = None
    if companions:
        from ..serve.companion import run_all

        beside = partial(run_all, companions)
    raise typer.Exit(
        server.run(
            loaded.settings,
            output=output.value,
            exposed_secrets=exposed,
            load=lambda: load_settings(config, sets).settings,
            beside=beside,
            test_faults=test_faults,
        )
    )


def _keep_only(words: Iterable[str], endpoints: Iterable[str]) -> list[str]:
    """Return the settings that switch off all endpoints whose names begin with none of ``words``; admin stays."""
    listed = [word.strip() for one in words for word in one.split(",")]
    kept = {word: [name for name in endpoints if name.startswith(word)] for word in listed}
    for word, names in kept.items():
        if not names:
            known = dict.fromkeys(("kafka", "iggy", "nsq", *endpoints))
            raise typer.BadParameter(
                f"{word!r} begins no endpoint; name one of {', '.join(known)}",
                param_hint="--only",
            )
    chosen = {"admin", *(name for names in kept.values() for name in names)}
    named = [f"endpoints.{word}.enabled=true" for word in kept if word in endpoints]
    return named + [f"endpoints.{name}.enabled=false" for name in endpoints if kept and name not in chosen]
