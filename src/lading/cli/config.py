"""``lading config``: the settings, and the source of each value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..model.errors import LocalError
from .options import AsOutput
from .output import Output, json_line, line, print_note

app = typer.Typer(help="Show settings and where they come from, or write a file of them.", no_args_is_help=True)


@app.command()
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Show the source of each value.")] = False,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="TOML settings file.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting. May be repeated.")
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Show every setting. Later sources override earlier ones: file, LADING__* environment, --set.

    The output is a settings file for --config. Tokens are not shown.

    Examples:

        lading config show --origin --config lading.toml

        lading config show --set durability=os > lading.toml
    """
    from ..settings.listing import setting_rows, toml_lines
    from .connection import load_settings

    loaded = load_settings(config, settings or [])
    rows = setting_rows(loaded.settings, loaded.origins)
    if output is Output.JSON:
        json_line({row["setting"]: row if origin else row["value"] for row in rows})
        return
    for text in toml_lines(rows, origin=origin):
        line(text)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="Settings file to write; must not exist.")] = Path("lading.toml"),
) -> None:
    """Write a settings file with every setting and its default as a comment, for serve --config.

    Examples:

        lading config init

        lading config init /etc/lading/lading.toml
    """
    from ..settings.listing import setting_rows, toml_lines
    from .connection import load_defaults

    rows = setting_rows(load_defaults().settings, {})
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write("# Settings of lading serve. Take the # away from what you change.\n")
            for text in toml_lines(rows, origin=False):
                opened.write(text if not text or text[0] in "#[" else f"# {text}")
                opened.write("\n")
    except FileExistsError:
        raise LocalError(f"{file} exists and is not overwritten; name another file") from None
    print_note(f"wrote {file}; lading serve --config {file} reads it")
