"""Readers of tables on an S3 server that nobody here wrote: Polars, deltalake, pyiceberg."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from .object_server import REGION, ObjectServer

PLAIN = {"allow_http": "true"}


def point_to(server: ObjectServer, directory: Path, monkeypatch: pytest.MonkeyPatch, url: str | None = None) -> None:
    """Make the environment that finds a server, or what listens at ``url`` before it, and a catalog ``lake``."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    if url is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{directory}/catalog.db")
    # pyiceberg has read the environment when it was imported
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def read_parquet(table: str) -> polars.DataFrame:
    return polars.read_parquet(f"{table}/*.parquet", storage_options=PLAIN)


def read_delta(table: str) -> polars.DataFrame:
    by_deltalake: Any = polars.from_arrow(DeltaTable(table, storage_options=PLAIN).to_pyarrow_table())
    by_polars = polars.read_delta(table, storage_options=PLAIN)
    assert by_deltalake["delay"].sort().equals(by_polars["delay"].sort())
    return by_polars


def read_iceberg(table: str) -> polars.DataFrame:
    reached = {
        "s3.region": REGION,
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    catalog = load_catalog("lake", **reached)
    held: Any = catalog.load_table(("lading", table.rpartition("/")[2])).scan().to_arrow()
    return polars.DataFrame(held)


FORMS: dict[str, tuple[str, Callable[[str], polars.DataFrame]]] = {
    "parquet": ("parquet:", read_parquet),
    "delta": ("delta:", read_delta),
    "iceberg": ("iceberg:lake:", read_iceberg),
}
"""What a target begins with, and what reads the table."""
