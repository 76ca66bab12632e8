"""A broker that an endpoint's clients reach both with TLS and without, and the table of what TLS costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from lading import testing
from tests.endpoints.authority import Authority

LISTENER: Final = "encrypted"
BY_LISTENER: Final = {f"listeners.{LISTENER}.address": testing.FREE_PORT, f"listeners.{LISTENER}.tls.enabled": True}
"""Settings of an endpoint that gets a listener with TLS, ``endpoints[f"{endpoint}.encrypted"]``."""
BY_UPGRADE: Final = {"tls.enabled": True, "tls.required": False}
"""Settings of NSQ's, whose clients change to TLS on the one address, or stay plain."""


@contextmanager
def encrypting_broker(
    endpoint: str, how: Mapping[str, Any], authority: Authority, durability: str = "os"
) -> Iterator[testing.BrokerProcess]:
    """A broker with TLS on an endpoint, and a certificate of an authority."""
    certificate = authority.sign("server")
    settings = {f"endpoints.{endpoint}.{name}": value for name, value in how.items()}
    settings |= {
        f"{name.removesuffix('enabled')}certificate": certificate for name in settings if name.endswith("tls.enabled")
    }
    with testing.broker(durability=durability, settings=settings) as broker:
        yield broker


class TlsTable:
    """Rows of what TLS leaves: two servers, ours first, each plain and with TLS."""

    def __init__(self, sides: Sequence[str], other: str) -> None:
        """``sides`` names our server plain, with TLS, then ``other`` plain, with TLS."""
        self.rows: list[dict[str, Any]] = []
        self._sides, self._other = sides, other

    def add(self, what: str, figures: Sequence[float], digits: int) -> None:
        """Add a row of the figures of all four sides, with their ratios."""
        ours, ours_tls, theirs, theirs_tls = figures
        other = self._other
        self.rows.append(
            {"what": what}
            | {side: round(figure, digits) for side, figure in zip(self._sides, figures, strict=True)}
            | {"lading, TLS ÷ plain": round(ours_tls / ours, 2), f"{other}, TLS ÷ plain": round(theirs_tls / theirs, 2)}
            | {f"lading ÷ {other}": round(ours / theirs, 2), f"lading ÷ {other}, TLS": round(ours_tls / theirs_tls, 2)}
        )
