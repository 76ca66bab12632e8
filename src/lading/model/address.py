"""Addresses that endpoints listen on."""

from __future__ import annotations

import ipaddress

from .lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class Address:
    """Address at which an endpoint listens; port 0 takes a free port."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: object) -> Address:
    """Parse ``host:port``, ``[v6]:port`` or ``:port`` (all interfaces). Raises ValueError, worded for people."""
    if isinstance(text, Address):
        return text
    host, colon, digits = str(text).rpartition(":")
    if not colon or not digits.isascii() or not digits.isdigit() or int(digits) > 65_535:
        raise ValueError("an address is host:port with a port from 0 to 65535, e.g. 127.0.0.1:8090")
    host = host.removeprefix("[").removesuffix("]")
    return Address(host or "0.0.0.0", int(digits))
