"""Refusal of invalid arguments of the Python API; each error names the nearest argument that exists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from ..model.errors import LocalError, SettingError
from ..model.message import EPOCH
from ..transports.interface import Transport
from ..transports.open import open_transport, option_names

_URLS: Final = "such as 'lading://127.0.0.1:7070' or 'kafka://127.0.0.1:9092'"
_MEANT: Final[Mapping[str, tuple[str, ...]]] = {
    "group_id": ("group",), "consumer_group": ("group",), "group_name": ("group",),
    "topic": ("topics",), "topic_name": ("topics", "topic"),
    "auto_offset_reset": ("start",), "offset": ("start",), "from_offset": ("start",), "starting_offset": ("start",),
    "enable_auto_commit": ("auto_commit",),
    "consumer_timeout_ms": ("timeout_s",), "timeout": ("timeout_s",), "timeout_ms": ("timeout_s",),
    "request_timeout_ms": ("timeout_s",), "filter": ("where",), "state": ("states",),
    "linger": ("linger_ms",), "batch_size": ("batch_bytes",), "compression_type": ("compression",),
    "num_partitions": ("partitions",), "max_batch_size": ("batch_bytes",), "schema": ("columns",),
    "auto_create_topics": ("create_topics",), "max_poll_interval_ms": ("reading_timeout_s",),
    "session_timeout_ms": ("session_timeout_s",), "max_partition_fetch_bytes": ("max_bytes",),
    "sasl_plain_username": ("username",), "sasl_plain_password": ("password",), "ssl_cafile": ("ca_file",),
    "security_protocol": ("tls",), "max_in_flight": ("in_flight",), "n": ("limit",),
}  # fmt: skip
"""Argument names of other clients, in lower case, and ours; the first one that exists is suggested."""
_SENTENCES: Final = {
    "bootstrap_servers": "the first argument is the address: 'kafka://host:9092'",
    "nsqd_tcp_addresses": "the first argument is the address: 'nsq://host:4150'",
    "lookupd_http_addresses": "the first argument is the address: 'nsq://host:4161'",
    "max_poll_records": "give it to each call: poll(max_messages=500)",
    "isolation_level": "reading is read_committed, always",
    "acks": "sending waits for all replicas, always",
    "enable_idempotence": "sending is idempotent, always",
    "key": "it belongs to each message: send(topic, payload, key=...)",
    "headers": "they belong to each message: send(topic, payload, headers=...)",
}
ID_BYTES: Final = 16
_SINGLE_VALUE = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def open_for(caller: Callable[..., Any], url: object, options: Mapping[str, Any]) -> Transport:
    """Open the transport of ``url`` for a class or function of the API; ``options`` are its remaining keywords.

    Raises SettingError for an invalid URL, and for an option that neither ``caller`` nor the transport has.
    """
    name = caller.__name__
    known: list[str] = []
    if url is None:
        wrong = next((option for option in options if option.lower() in _SENTENCES), None)
        raise (
            _argument_error(caller, wrong, known, name) if wrong else SettingError(f"{name}: no URL; give one {_URLS}")
        )
    if not isinstance(url, str | Path):
        if not hasattr(url, "topics") or isinstance(url, Mapping):
            raise SettingError(_not_a_url(name, url))
        transport: Any = url
        if options:
            raise _argument_error(caller, next(iter(options)), known, f"{name} with an open transport")
        return transport  # type: ignore[no-any-return]
    known = option_names(url)
    if unknown := next((option for option in options if option not in known), None):
        raise _argument_error(caller, unknown, known, f"{name}({str(url)!r})")
    return open_transport(url, **options)


def _not_a_url(name: str, url: object) -> str:
    servers = url.get("bootstrap.servers", url.get("bootstrap_servers")) if isinstance(url, Mapping) else None
    if servers is not None:
        return (
            f"{name}: the first argument, url, is a {type(url).__name__}, not a text; "
            f"write {name}('kafka://{servers}', ...), settings are keyword arguments"
        )
    return f"{name}: the first argument, url, is a {type(url).__name__}, not a text; give a URL {_URLS}"


def _argument_error(caller: Callable[..., Any], option: str, transport_options: list[str], shown: str) -> SettingError:
    own = [
        one.name for one in signature(caller).parameters.values() if one.kind in _SINGLE_VALUE and one.name != "self"
    ]
    known = [*own[1:], *transport_options]
    plain = option.lower()
    if plain in _SENTENCES:
        return SettingError(f"{shown} has no argument or transport option {option!r}; {_SENTENCES[plain]}")
    meant = next((name for name in _MEANT.get(plain, ()) if name in known), None)
    near = [meant] if meant else get_close_matches(plain, known, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return SettingError(f"{shown} has no argument or transport option {option!r}; {hint}")


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise SettingError if the value of an argument is not one of its choices."""
    if value not in choices:
        raise SettingError(f"{name} is {' or '.join(map(repr, choices))}, not {value!r}")


def find_group(group: str | None, channel: str | None, end: object) -> str | None:
    """Return the group of a consumer by either name of the argument. Raises SettingError for both names, and for a
    group with an end.
    """
    if group is not None and channel is not None:
        raise SettingError("channel is what NSQ calls a group: name one of the two")
    group = channel if group is None else group
    if group is not None and end is not None:
        raise SettingError("a group has no end: its members read on; leave out end, or the group")
    return group


def to_message_id(id: bytes | int | UUID) -> bytes:
    """Return the 16 bytes of a message id. Raises SettingError for other bytes, numbers and types."""
    if isinstance(id, UUID):
        return id.bytes
    if isinstance(id, bytes) and len(id) == ID_BYTES:
        return id
    if isinstance(id, int) and not isinstance(id, bool) and 0 <= id < 1 << 8 * ID_BYTES:
        return id.to_bytes(ID_BYTES, "little")
    raise SettingError(f"id is {ID_BYTES} bytes, a UUID or a number of 128 bits, not {id!r}")


def to_microseconds(timestamp: datetime | int | None) -> int | None:
    """Return a timestamp as microseconds since 1970 UTC. Raises LocalError if it is not a point in time."""
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise LocalError(f"timestamp {timestamp} has no time zone; pass one, e.g. datetime.now(UTC)")
        return (timestamp - EPOCH) // timedelta(microseconds=1)
    if timestamp is not None and (
        not isinstance(timestamp, int) or isinstance(timestamp, bool) or not 0 <= timestamp < 1 << 63
    ):
        raise LocalError(
            f"timestamp {timestamp!r}: neither a datetime nor microseconds since 1970; leave it out for the append time"
        )
    return timestamp
