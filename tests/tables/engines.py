"""Engines nobody here wrote that read one table, and whether they see the same rows.

``python -m tests.tables.engines`` does the same for another Python, which may have engines that this one has not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import polars

ROOT: Final = Path(__file__).parents[2]
Reader = Callable[[str, Sequence[str]], Any]
"""Takes a directory and columns; returns anything with rows of Arrow."""


def _latest_metadata(table: str) -> str:
    # the hint names the version that is current, as for Hadoop tables of Spark
    metadata = Path(table) / "metadata"
    hint = (metadata / "version-hint.text").read_text().strip()
    named = metadata / hint
    if named.exists():
        return str(named)
    numbered = metadata / f"v{hint}.metadata.json"
    return str(numbered if numbered.exists() else metadata / f"{hint}.metadata.json")


def _data_files(table: str) -> list[str]:
    return sorted(
        str(path) for path in Path(table).rglob("*.parquet")
        if not any(part.startswith("_") for part in path.relative_to(table).parts)
    )  # fmt: skip


def _by_pyarrow(table: str, columns: Sequence[str]) -> Any:
    import pyarrow.dataset

    return pyarrow.dataset.dataset(_data_files(table), format="parquet").to_table(list(columns))


def _by_polars_parquet(table: str, columns: Sequence[str]) -> Any:
    return polars.read_parquet(_data_files(table), columns=list(columns)).to_arrow()


def _by_duckdb(call: str, extensions: Sequence[str] = ()) -> Reader:
    def read(table: str, columns: Sequence[str]) -> Any:
        import duckdb

        with duckdb.connect() as connection:
            for extension in extensions:
                # wheels carry the extensions, as their own download needs a network
                import duckdb_extensions  # type: ignore[import-not-found, unused-ignore]

                duckdb_extensions.import_extension(extension, con=connection)
                connection.load_extension(extension)
            place = {"files": repr(_data_files(table)), "table": repr(table), "metadata": ""}
            if "{metadata}" in call:
                place["metadata"] = repr(_latest_metadata(table))
            names = ", ".join(f'"{name}"' for name in columns)
            return connection.sql(f"select {names} from {call.format(**place)}").to_arrow_table()

    return read


def _by_daft(reader: str) -> Reader:
    def read(table: str, columns: Sequence[str]) -> Any:
        import daft
        from pyiceberg.table import StaticTable

        given: Any = table
        if reader == "read_parquet":
            given = _data_files(table)
        if reader == "read_iceberg":
            given = StaticTable.from_metadata(_latest_metadata(table))
        return getattr(daft, reader)(given).select(*columns).to_arrow()

    return read


def _by_deltalake(table: str, columns: Sequence[str]) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(table).to_pyarrow_table(columns=list(columns))


def _by_polars_delta(table: str, columns: Sequence[str]) -> Any:
    return polars.read_delta(table, columns=list(columns)).to_arrow()


def _by_pyiceberg(table: str, columns: Sequence[str]) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(_latest_metadata(table)).scan(selected_fields=tuple(columns)).to_arrow()


def _by_polars_iceberg(table: str, columns: Sequence[str]) -> Any:
    frame: Any = polars.scan_iceberg(_latest_metadata(table)).select(*columns).collect()
    return frame.to_arrow()


ENGINES: Final[dict[str, dict[str, Reader]]] = {
    "parquet": {
        "Arrow": _by_pyarrow, "Polars": _by_polars_parquet, "DuckDB": _by_duckdb("read_parquet({files})"),
        "Daft": _by_daft("read_parquet"),
    },
    "delta": {
        "deltalake": _by_deltalake, "Polars": _by_polars_delta,
        "DuckDB": _by_duckdb("delta_scan({table})", ["delta"]), "Daft": _by_daft("read_deltalake"),
    },
    "iceberg": {
        "pyiceberg": _by_pyiceberg, "Polars": _by_polars_iceberg,
        "DuckDB": _by_duckdb("iceberg_scan({metadata})", ["avro", "iceberg"]), "Daft": _by_daft("read_iceberg"),
    },
}  # fmt: skip
MISSING: Final = (ImportError, ModuleNotFoundError)


def read_rows(form: str, table: str, columns: Sequence[str], engines: Sequence[str] = ()) -> dict[str, list[list[Any]]]:
    """Return the rows that each engine reads, in order; engines that are not installed are left out."""
    rows: dict[str, list[list[Any]]] = {}
    for name, read in ENGINES[form].items():
        if engines and name not in engines:
            continue
        try:
            found = read(table, columns)
        except MISSING:
            continue
        rows[name] = sorted(map(list, zip(*(found[column].to_pylist() for column in columns), strict=True)), key=str)
    return rows


class Engines:
    """The engines of this Python, or of another one that has more of them, if ``LADING_TEST_ENGINES`` names it."""

    def __init__(self) -> None:
        self.seen = set[str]()
        self._other: subprocess.Popen[str] | None = None
        if python := os.environ.get("LADING_TEST_ENGINES"):
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            self._other = subprocess.Popen(
                [python, "-m", "tests.tables.engines"], cwd=ROOT, text=True, env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip

    def read(self, form: str, table: Path, columns: Sequence[str]) -> list[list[Any]]:
        """Return the rows of a table, which all engines see alike."""
        if self._other is None:
            rows = read_rows(form, str(table), columns)
        else:
            assert self._other.stdin is not None and self._other.stdout is not None
            print(json.dumps([form, str(table), columns]), file=self._other.stdin, flush=True)
            rows = json.loads(self._other.stdout.readline())
        assert len(rows) >= 2
        first, *others = rows.items()
        for name, held in others:
            assert held == first[1], f"{name} and {first[0]} see other rows in {table}"
        self.seen |= {f"{form} by {name}" for name in rows}
        return first[1]

    def close(self) -> None:
        """End the process of the other Python."""
        if self._other is not None:
            assert self._other.stdin is not None
            self._other.stdin.close()
            self._other.wait(30)


@contextmanager
def open_engines() -> Iterator[Engines]:
    """Keep engines ready until the block ends."""
    engines = Engines()
    try:
        yield engines
    finally:
        engines.close()


def main() -> None:
    """Take tables on standard input; the rows of each are a line on standard output."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        form, table, columns = json.loads(line)
        print(json.dumps(read_rows(form, table, columns)), file=output, flush=True)


if __name__ == "__main__":
    main()
