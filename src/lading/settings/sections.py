"""Settings that tables of endpoints have in common: an address, TLS, a token, and listeners of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    StringConstraints,
    model_validator,
)

from ..model.address import Address, parse_address

Listen = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str, return_type=str)]


def parse_names(value: object) -> object:
    """Return the words of a text that separates them by commas; anything else as it is."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(parse_names)]


class Section(BaseModel):
    """A table of settings; keys it does not declare are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)


DEFAULTS: Any = Field(default={}, validate_default=True)
"""The default of a nested table: an empty table, in which each key has its own default. An instance as the default
would need a validator besides that of the whole settings: 20 of them took a tenth of each start."""


class CertificateSettings(Section):
    """The certificate of a listener that is always encrypted."""

    certificate: Path | None = None
    """PEM file of the certificate, followed by the certificates that signed it; unset: one of the broker's own,
    ``certificate.pem`` in the data directory. Clients of Iggy over QUIC that do not check it accept only a key on the
    curve P-256."""
    key: Path | None = None
    """PEM file of its key, without a password; unset: the key is in the file of the certificate."""

    @model_validator(mode="after")
    def _require_certificate(self) -> Self:
        if self.key is not None and self.certificate is None:
            raise ValueError("key is set without certificate; set both, or neither")
        return self


class ClientCertificateSettings(CertificateSettings):
    """The certificate of a listener, and those that its clients show."""

    client_ca: Path | None = None
    """PEM file: clients show a certificate that one of these has signed; with ``client_certificates = "required"`` the
    address may lie beyond loopback."""
    client_certificates: Literal["required", "optional"] = "required"
    """``required``: clients without a certificate are refused. ``optional``: they may connect too; one that is shown
    must be signed all the same."""
    client_user: Literal["common_name"] | None = None
    """``common_name``: a client that shows a certificate is logged in as the user named by the common name of its
    subject. Not over HTTP, which logs in with each request."""

    @model_validator(mode="after")
    def _require_client_ca(self) -> Self:
        if self.client_ca is None and self.client_certificates == "optional":
            raise ValueError("client_certificates is optional without client_ca; set both, or neither")
        if self.client_ca is None and self.client_user is not None:
            raise ValueError("client_user is set without client_ca; set both, or neither")
        return self

    @property
    def demands_certificate(self) -> bool:
        """Whether every client has shown a certificate before anything else."""
        return self.client_ca is not None and self.client_certificates == "required"


class TlsSettings(ClientCertificateSettings):
    """TLS of a listener that may be plain."""

    enabled: bool = False
    """TLS 1.2 or later: HTTPS instead of HTTP, ``wss`` instead of ``ws``."""

    @model_validator(mode="after")
    def _require_enabled(self) -> Self:
        if not self.enabled and (self.certificate is not None or self.client_ca is not None):
            raise ValueError("certificates are set, but TLS is off; set tls.enabled=true, or leave them out")
        return self


class EndpointSection(Section):
    """Settings of every endpoint. ``remedy`` is the setting that makes a bind beyond loopback acceptable."""

    is_left_out_if_taken: ClassVar[bool] = False
    """Whether the broker starts without the endpoint if another program uses its default address."""
    remedy: ClassVar[str]
    checks_users: ClassVar[bool] = False
    """Whether the endpoint requires a login once users are set up, and may then listen beyond loopback."""
    enabled: bool = True
    """Whether the endpoint listens."""
    address: Listen
    """The address to listen on; port 0 takes a free port."""
    connections_max: int = Field(default=4096, ge=1)
    """Further connections are closed."""

    @property
    def demands_certificate(self) -> bool:
        """Whether only clients with a certificate may connect."""
        return False

    @property
    def secured(self) -> bool:
        """Whether it may listen beyond loopback."""
        raise NotImplementedError


class TlsEndpointSection(EndpointSection):
    """An endpoint that may be encrypted."""

    tls: TlsSettings = DEFAULTS

    @property
    def demands_certificate(self) -> bool:
        return self.tls.demands_certificate


class UnauthenticatedEndpoint(EndpointSection):
    """An endpoint whose protocol has no credentials: beyond loopback it must be allowed by name."""

    remedy: ClassVar[str] = "allow_unauthenticated=true"
    allow_unauthenticated: bool = False
    """Needed to listen beyond loopback while no users are set up. With users it lets strangers in all the same, as the
    user ``ANONYMOUS``."""

    @property
    def secured(self) -> bool:
        return self.allow_unauthenticated or self.demands_certificate


class TokenSettings(TlsEndpointSection):
    """An endpoint that takes a bearer token, by value or in a file that holds nothing else."""

    checks_users: ClassVar[bool] = True
    token: SecretStr | None = Field(default=None, min_length=1)
    """Bearer token for requests that delete or administrate, by default that of admin; there for every request but
    ``/health``, ``/live`` and ``/ready``, and needed to listen beyond loopback. See tokens."""
    token_file: Path | None = None
    """A file that holds that token and nothing else; for admin also ``--token-file``."""

    @model_validator(mode="after")
    def _refuse_certificate_user(self) -> Self:
        if self.tls.client_user is not None:
            raise ValueError("tls.client_user is for protocols over connections; HTTP logs in with each request")
        return self


class WithoutLogin(TokenSettings, UnauthenticatedEndpoint):
    """HTTP without a login: requests that delete or administrate need ``token``, by default that of admin."""


ListenerName = Annotated[str, StringConstraints(pattern="^[a-z0-9_-]+$")]


class WithListeners(EndpointSection):
    """An endpoint that may listen on more addresses, each with settings of its own.

    A subclass has ``listeners``, by name. A listener inherits unset settings, except addresses, from its endpoint.
    """

    @model_validator(mode="before")
    @classmethod
    def _complete_listeners(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or not isinstance(values.get("listeners"), Mapping):
            return values
        own = {name: value for name, value in values.items() if name not in ("listeners", "address", "advertised")}
        listeners = {
            name: merge_tables(own, given) if isinstance(given, Mapping) else given
            for name, given in values["listeners"].items()
        }
        return {**values, "listeners": listeners}


def merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of both tables, merged at all levels; if both have a key, ``above`` wins."""
    merged = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
            merged[name] = merge_tables(below[name], above[name])
    return merged
