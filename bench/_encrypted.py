"""A broker that an endpoint's clients reach both with TLS and without, for benches of what TLS costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
