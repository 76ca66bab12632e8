"""Lading carries message headers, exact and typed, from Iggy, Kafka and NSQ clients into Spark tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .model.version import __version__

if TYPE_CHECKING:
    from .client.admin import Admin
    from .client.bulk import read_arrow, read_batches, write_arrow
    from .client.consumer import Consumer
    from .client.producer import Producer
    from .client.scan import TopicScan, scan
    from .client.states import set_state
    from .model.headers import Header, Headers
    from .model.kinds import Kind
    from .model.message import Message
    from .model.state import State
    from .model.values import (
        HeaderValue,
        boolean,
        f32,
        f64,
        i8,
        i16,
        i32,
        i64,
        i128,
        raw,
        string,
        u8,
        u16,
        u32,
        u64,
        u128,
    )  # fmt: skip

_HOMES = {
    "client.admin": ("Admin",),
    "client.bulk": ("read_arrow", "read_batches", "write_arrow"),
    "client.consumer": ("Consumer",),
    "client.producer": ("Producer",),
    "client.scan": ("TopicScan", "scan"),
    "client.states": ("set_state",),
    "model.headers": ("Header", "Headers"),
    "model.kinds": ("Kind",),
    "model.values": (
        "HeaderValue", "boolean", "f32", "f64", "i8", "i16", "i32", "i64", "i128",
        "raw", "string", "u8", "u16", "u32", "u64", "u128",
    ),
    "model.message": ("Message",),
    "model.state": ("State",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Admin",
    "Consumer",
    "Header",
    "HeaderValue",
    "Headers",
    "Kind",
    "Message",
    "Producer",
    "State",
    "TopicScan",
    "__version__",
    "boolean",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "raw",
    "read_arrow",
    "read_batches",
    "scan",
    "set_state",
    "string",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "write_arrow",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that ``import lading`` needs neither pyarrow nor Spark."""
    if name in _HOME_OF:
        from importlib import import_module

        value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
