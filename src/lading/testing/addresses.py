"""The addresses of a broker by the names that tests use."""

from __future__ import annotations

from abc import ABC, abstractmethod


class BrokerAddresses(ABC):
    """Each endpoint's ``host:port`` as a property."""

    @abstractmethod
    def address(self, endpoint: str) -> str:
        """Return the address of an endpoint, by its name in the settings."""

    @property
    def kafka(self) -> str:
        """The ``bootstrap.servers`` of Kafka clients."""
        return self.address("kafka")

    @property
    def iggy_tcp(self) -> str:
        """Address for Iggy clients over TCP."""
        return self.address("iggy_tcp")

    @property
    def iggy_quic(self) -> str:
        """Address for Iggy clients over QUIC."""
        return self.address("iggy_quic")

    @property
    def iggy_websocket(self) -> str:
        """Address for Iggy clients over WebSocket."""
        return self.address("iggy_websocket")

    @property
    def iggy_http(self) -> str:
        """Address for Iggy clients over HTTP."""
        return self.address("iggy_http")

    @property
    def nsqd_tcp(self) -> str:
        """Address at which NSQ clients publish and subscribe."""
        return self.address("nsqd_tcp")

    @property
    def nsqd_http(self) -> str:
        """Address at which NSQ clients publish over HTTP."""
        return self.address("nsqd_http")

    @property
    def nsqlookupd_tcp(self) -> str:
        """Address at which nsqd nodes register."""
        return self.address("nsqlookupd_tcp")

    @property
    def nsqlookupd_http(self) -> str:
        """Address at which NSQ consumers look up topics."""
        return self.address("nsqlookupd_http")

    @property
    def schema_registry(self) -> str:
        """Address for serialisers with a schema registry."""
        return self.address("schema_registry")

    @property
    def admin(self) -> str:
        """Address for the command line, ``Producer`` and ``Consumer``."""
        return self.address("admin")

    @property
    def url(self) -> str:
        """``lading://host:port`` for ``Producer``, ``Consumer`` and the command line."""
        return f"lading://{self.admin}"
