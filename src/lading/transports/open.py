"""Which transport a URL means: one row a scheme."""

from __future__ import annotations

from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from threading import Lock
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ..dialects.protocols import SCHEMES
from ..model.errors import SettingError
from ..model.protocol import Capabilities, Scheme
from .interface import Transport
from .option_values import parse_option
from .secrets import FILE, PREFIX, TRANSPORT_SECRETS, add_environment, read_references, reference_names, secret_of

CLIENT_CERTIFICATE: Final = "certificate_file"
"""An option that logs in too, at servers that take the user from the certificate of a client."""
_IMPORTING: Final = Lock()


def open_transport(url: str | Path | Transport, **options: Any) -> Transport:
    """Open the server or directory that ``url`` names; a text without ``://`` is a directory; a transport is returned.

    ``options`` go to the transport, e.g. ``timeout_s``; those of a server may also follow ``?`` in its URL, and some
    have a default in the environment (``secrets.FROM_ENVIRONMENT``). Raises SettingError for an unknown scheme or
    option, or a URL that cannot be one; a server that is down is noticed at the first request.
    """
    if not isinstance(url, str | Path):
        return url
    text, written = _split_options(str(url))
    options = written | options
    made = _transport_class(text)
    known = option_names(text)
    if unknown := next((name for name in options if name not in known), None):
        near = get_close_matches(unknown, known, 1, 0.5)
        there = f"there are {', '.join(known)}" if known else "it takes none"
        hint = f"did you mean {near[0]}?" if near else there
        raise SettingError(f"{text} has no transport option {unknown!r}; {hint}")
    taken = list(signature(made).parameters)[1:]
    transport: Transport = made(text, **read_references(add_environment(options, known), taken))
    return transport


def option_names(url: str | Path) -> list[str]:
    """Return the options that the transport of a URL takes, including those that refer to a secret.

    Raises SettingError for an unknown scheme.
    """
    taken = list(signature(_transport_class(str(url))).parameters)[1:]
    return [*taken, *reference_names(taken)]


def _split_options(url: str) -> tuple[str, dict[str, Any]]:
    """Return a server's URL without its query, and the options in that; a directory's name is left as it is."""
    text, mark, query = url.partition("?")
    if not mark or "://" not in text or find_scheme(text).port is None:
        return url, {}
    options: dict[str, Any] = {}
    for part in query.split("&"):
        name, is_given, value = part.partition("=")
        if not is_given or name in options:
            fault = "stands twice" if name in options else "has no value"
            raise SettingError(f"{text}: option {name!r} in the URL {fault}; write NAME=VALUE&NAME=VALUE after '?'")
        if name in TRANSPORT_SECRETS:
            raise SettingError(
                f"{text}: {name} does not belong in a URL; put it into a file ({name}_file=…) or the environment "
                f"({PREFIX}{name.upper()}, or {name}_env=VARIABLE)"
            )
        options[name] = parse_option(name, unquote(value))
    return text, options


def _transport_class(text: str) -> Any:
    row = SCHEMES["file"] if "://" not in text else find_scheme(text)
    # threads that import packages of each other at once may see a half of one (Python breaks what would be a deadlock)
    with _IMPORTING:
        return resolve_name(row.transport)


def capabilities_of(url: str) -> Capabilities:
    """Return what a message keeps at a server without a carrier. Raises SettingError for an invalid URL."""
    transport = open_transport(url)
    try:
        return transport.capabilities
    finally:
        transport.close()


def is_queue(url: str | Path) -> bool:
    """Return whether a URL names a queue. Raises SettingError for an unknown scheme."""
    return "://" in str(url) and find_scheme(str(url)).is_queue


def without_options(url: str) -> str:
    """Return a URL without what follows ``?`` in it; the name of a directory as it is."""
    return url.partition("?")[0] if "://" in url else url


def holds_secret(url: str) -> bool:
    """Return whether requests to a URL log in, by an option of it or one of the environment."""
    text = without_options(url)
    given = {part.partition("=")[0]: "" for part in url.removeprefix(text).removeprefix("?").split("&")}
    known = option_names(text)
    options = add_environment(given, known).keys() & known
    return any(secret_of(name) is not None or name == CLIENT_CERTIFICATE for name in options)


def place_files(url: str, base: Path) -> str:
    """Return a URL whose options that name files (``token_file=…``) are relative to the directory ``base``.

    A directory is relative to it as well.
    """
    if "://" not in url:
        return str(base / url)
    text, mark, query = url.partition("?")
    parts = (part.partition("=") for part in query.split("&"))
    placed = [
        f"{name}={quote(str(base / unquote(value)))}" if name.endswith(FILE) and value else f"{name}{is_}{value}"
        for name, is_, value in parts
    ]
    return text + mark + "&".join(placed)


def find_scheme(url: str) -> Scheme:
    """Return what the scheme of a URL means. Raises SettingError for an unknown one."""
    scheme = url.partition("://")[0].lower()
    if scheme in SCHEMES:
        return SCHEMES[scheme]
    if scheme in ("http", "https"):
        tls = "?tls=true" if scheme == "https" else ""
        place = urlsplit(url).netloc
        raise SettingError(
            f"{url!r}: {scheme!r} URLs are not supported; write lading://{place}{tls} for a broker's admin endpoint"
        )
    near = get_close_matches(scheme, SCHEMES, 1, 0.5)
    meant = f"did you mean {near[0]}://? " if near else ""
    raise SettingError(
        f"{url!r}: {scheme!r} URLs are not supported; {meant}"
        f"use one of {', '.join(row.example for row in SCHEMES.values())}"
    )


def address(url: str, scheme: str) -> tuple[str, int]:
    """Host and port of a server URL, the scheme's own port when it names none; SettingError for anything else."""
    row = SCHEMES[scheme]
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port or row.port
    except ValueError as error:
        raise SettingError(f"{url!r} is not an address ({error}); write it like {row.example}") from None
    if parts.scheme.lower() != scheme or not parts.hostname or port is None:
        raise SettingError(f"invalid URL {url!r}; expected for example {row.example}")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise SettingError(f"{url!r} has more than host and port; pass the topic as an argument of its own")
    return parts.hostname, port
