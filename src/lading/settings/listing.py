"""Settings as rows and as lines of a TOML file: for ``lading config`` and snapshots of the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..model.toml import toml_key, toml_value
from .settings import Settings, is_secret


def setting_rows(settings: Settings, origins: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row per setting: dotted name, value, and the source of the value by ``origins``."""
    rows: list[dict[str, Any]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else name, inner)
            return
        rows.append({"setting": prefix, "value": value, "origin": origins.get(prefix, "default")})

    walk("", settings.model_dump(mode="json"))
    return rows


def toml_lines(rows: Sequence[Mapping[str, Any]], *, origin: bool) -> Iterator[str]:
    """Yield the settings as lines of a TOML file, with those that are not set, or secret, as comments."""
    section = ""
    # keys without a table come first: after a table's head they would belong to that table
    for row in sorted(rows, key=lambda one: str(one["setting"]).rpartition(".")[0]):
        table, _, name = str(row["setting"]).rpartition(".")
        if table != section:
            yield ""
            yield f"[{'.'.join(map(toml_key, table.split('.')))}]"
            section = table
        if row["value"] is None:
            shown = f"# {toml_key(name)} is not set"
        elif is_secret(row["setting"]):
            shown = f"# {toml_key(name)} is set and not shown"
        else:
            shown = f"{toml_key(name)} = {toml_value(row['value'])}"
        yield f"{shown}  # {row['origin']}" if origin else shown
