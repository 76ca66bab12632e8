"""A topic at a server as one text: ``kafka://host:port/topic``, with the options of its transport after ``?``."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ..dialects.protocols import SCHEMES
from ..model.errors import SettingError
from ..model.names import DEFAULT_STREAM
from .open import find_scheme

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class TopicAddress(NamedTuple):
    """A topic, and the URL of its server, with the options that follow ``?``."""

    server: str
    topic: str

    @classmethod
    def parse(cls, text: str) -> TopicAddress:
        """Return the address that ``text`` is. Raises SettingError for an unknown scheme, or without a topic."""
        url, mark, query = text.partition("?")
        scheme = find_scheme(url)
        if scheme.port is None:
            known = ", ".join(f"{name}://" for name, row in SCHEMES.items() if row.port is not None)
            raise SettingError(
                f"{text!r} is not a server: messages are sent to one of {known}, followed by host:port/topic"
            )
        lead, _, rest = url.partition("://")
        host, _, name = rest.partition("/")
        topic = unquote(name.strip("/"))
        if not host or not topic:
            raise SettingError(f"{text!r} names no topic; write for example {scheme.example}/flights")
        if "/" in topic:
            raise SettingError(f"{text!r}: {topic!r} has a '/'; a topic in a stream is written STREAM.TOPIC")
        return cls(f"{lead.lower()}://{host}{mark}{query}", topic)

    @property
    def url(self) -> str:
        """The address without options."""
        return f"{self.server.partition('?')[0]}/{self.topic}"

    def is_same(self, other: TopicAddress) -> bool:
        """Return whether both are one topic, as far as their texts say."""
        return _place_of(self) == _place_of(other)


def is_url(text: str) -> bool:
    """Return whether a target is written as a URL, and so can only be a topic."""
    return "://" in text


def _place_of(address: TopicAddress) -> tuple[str, str | None, int | None, str]:
    parts = urlsplit(address.server.partition("?")[0])
    row = SCHEMES.get(parts.scheme.lower())
    try:
        port = parts.port or (None if row is None else row.port)
    except ValueError:
        port = None
    host = "localhost" if parts.hostname in LOCAL_HOSTS else parts.hostname
    return parts.scheme.lower(), host, port, address.topic.removeprefix(f"{DEFAULT_STREAM}.")
