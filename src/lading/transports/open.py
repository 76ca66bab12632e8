"""Which transport a URL means: one row a scheme."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ..model.errors import SettingError
from .interface import Transport


class Scheme(NamedTuple):
    """Where a scheme's transport class lives (called with the URL and the options) and the port it means by default."""

    module: str
    name: str
    port: int | None
    example: str
    queue: bool = False
    """Whether reading takes: there is nothing to seek in, and nothing to read twice."""


SCHEMES: dict[str, Scheme] = {
    "lading": Scheme("lading", "LadingTransport", 7070, "lading://127.0.0.1:7070"),
    "iggy": Scheme("iggy", "IggyTransport", 8090, "iggy://127.0.0.1:8090"),
    "kafka": Scheme("kafka", "KafkaTransport", 9092, "kafka://127.0.0.1:9092"),
    "nsq": Scheme("nsq", "NsqTransport", 4161, "nsq://127.0.0.1:4161", queue=True),
    "file": Scheme("files", "FilesTransport", None, "file:///srv/lading/data or ./data"),
}


def open_transport(url: str | Path | Transport, **options: Any) -> Transport:
    """Open the server or directory behind ``url``; a text without ``://`` is a directory, a transport is itself.

    ``options`` go to the transport, e.g. ``timeout_s``. SettingError for an unknown scheme or option, or a URL that
    cannot be one; a server that does not answer is found at the first request.
    """
    if not isinstance(url, str | Path):
        return url
    text = str(url)
    made = _transport_class(text)
    known = option_names(text)
    if unknown := next((name for name in options if name not in known), None):
        near = get_close_matches(unknown, known, 1, 0.5)
        there = f"there are {', '.join(known)}" if known else "it takes none"
        hint = f"did you mean {near[0]}?" if near else there
        raise SettingError(f"{text} has no transport option {unknown!r}; {hint}")
    transport: Transport = made(text, **options)
    return transport


def option_names(url: str | Path) -> list[str]:
    """The options that the transport behind a URL takes; SettingError for an unknown scheme."""
    return list(signature(_transport_class(str(url))).parameters)[1:]


def _transport_class(text: str) -> Any:
    row = SCHEMES["file"] if "://" not in text else _scheme(text)
    return getattr(import_module(f".{row.module}", __package__), row.name)


def is_queue(url: str | Path) -> bool:
    """Whether a URL names a queue; SettingError for an unknown scheme."""
    return "://" in str(url) and _scheme(str(url)).queue


def _scheme(url: str) -> Scheme:
    scheme = url.partition("://")[0].lower()
    if scheme in SCHEMES:
        return SCHEMES[scheme]
    near = get_close_matches(scheme, SCHEMES, 1, 0.5)
    meant = f"did you mean {near[0]}://? " if near else ""
    raise SettingError(
        f"{url!r}: there is no transport for {scheme!r} URLs; {meant}"
        f"Use one of {', '.join(row.example for row in SCHEMES.values())}"
    )


def address(url: str, scheme: str) -> tuple[str, int]:
    """Host and port of a server URL, the scheme's own port when it names none; SettingError for anything else."""
    row = SCHEMES[scheme]
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port or row.port
    except ValueError as error:
        raise SettingError(f"{url!r} is no address ({error}); write it like {row.example}") from None
    if parts.scheme.lower() != scheme or not parts.hostname or port is None:
        raise SettingError(f"{url!r} is no address; write it like {row.example}")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise SettingError(f"{url!r} has more than host and port; the topic is an argument of its own")
    return parts.hostname, port
