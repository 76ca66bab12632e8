"""``lading config``: what is set, and where each value came from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsOutput
from .output import Output, document, table

app = typer.Typer(help="Settings and where they come from.", no_args_is_help=True)


@app.callback()
def _nouns() -> None:
    """Keep ``show`` a sub-command although it is the only one."""


@app.command()
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value came from.")] = False,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="TOML file with settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; repeatable.")
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Every setting with its value: file, then LADING__ environment, then --set, each over the one before.

    Example:

        lading config show --origin --config lading.toml
    """
    from .connection import loaded_settings, setting_rows

    rows = setting_rows(loaded_settings(config, settings or []))
    if output is Output.JSON:
        document({row["setting"]: row if origin else row["value"] for row in rows})
        return
    columns = {"setting": "setting", "value": "value"}
    table(rows, columns | {"origin": "from"} if origin else columns, output=output)
