"""A reverse proxy in front of the console, through which all visitors come; it may name the user of each request."""

from __future__ import annotations

import hmac
import ipaddress
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator
from starlette.requests import Request

from ...model.errors import Reason, Refusal
from ...settings.sections import Names, Section
from ...transports.secrets import read_secret

SECRET_HEADER: Final = "x-lading-proxy-secret"
"""The header in which a proxy shows the secret that it shares with the console."""
SECRET_CHARACTERS_MIN: Final = 16
NAME_CHARACTERS_MAX: Final = 255
_Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


def _require_networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        ipaddress.ip_network(text)
    return texts


def _require_header(text: str) -> str:
    if not text.replace("-", "").isalnum() or not text.isascii():
        raise ValueError("the name of a header has letters, digits and hyphens")
    return text.lower()


HeaderName = Annotated[str, AfterValidator(_require_header)]


class ProxySection(Section):
    """[proxy]: the reverse proxy, known by its addresses, by a secret, or by both."""

    addresses: Annotated[Names, AfterValidator(_require_networks)] = ()
    """Addresses or networks of the proxy, such as ``10.0.0.7`` or ``10.0.0.0/24``."""
    secret_file: Path | None = None
    """File with a secret that the proxy sends as ``X-Lading-Proxy-Secret``: if other users share the machine, an
    address proves nothing.
    """
    user_header: HeaderName | None = None
    """The header that names the user, if the proxy logs people in; unset: they log in here."""
    address_header: HeaderName = Field(default="x-forwarded-for", validate_default=True)
    """The header with the visitor's address, for audit lines; the last address in it is the one that the
    proxy added.
    """

    @model_validator(mode="after")
    def _require_proof(self) -> Self:
        if not self.addresses and self.secret_file is None:
            raise ValueError("set addresses or secret_file of [proxy], by which the proxy is known")
        return self


class TrustedProxy:
    """Decides whether a request comes from the proxy. Others are refused before anything else happens."""

    def __init__(self, settings: ProxySection) -> None:
        """Raises SettingError if a secret cannot be read."""
        self._networks: _Networks = tuple(map(ipaddress.ip_network, settings.addresses))
        secret = None if settings.secret_file is None else read_secret("secret", None, str(settings.secret_file))
        self._secret = None if secret is None else secret.encode()
        self._user_header, self._address_header = settings.user_header, settings.address_header
        self.names_users: Final = settings.user_header is not None
        """Whether the proxy names the user of each request."""

    def require(self, request: Request) -> None:
        """Raise Refusal if the proxy did not send a request."""
        if self._networks and not self._is_known(request.client.host if request.client else ""):
            raise Refusal(
                Reason.UNAUTHORIZED, "this console is reached through its reverse proxy alone; ask for its address"
            )
        if self._secret is not None:
            given = request.headers.getlist(SECRET_HEADER)
            if len(given) != 1 or not hmac.compare_digest(given[0].encode("latin-1"), self._secret):
                raise Refusal(
                    Reason.UNAUTHORIZED,
                    f"header {SECRET_HEADER}: not the secret of this console's proxy; ask for the proxy's address",
                )

    def find_user(self, request: Request) -> str:
        """Return the user that the proxy names. Raises Refusal if it names no user, or several."""
        assert self._user_header is not None
        names = request.headers.getlist(self._user_header)
        if len(names) > 1:
            raise Refusal(
                Reason.UNAUTHORIZED, f"header {self._user_header}: given more than once; have the proxy replace it"
            )
        # Starlette decodes headers as Latin-1, but proxies send UTF-8
        name = names[0].encode("latin-1").decode("utf-8", "replace") if names else ""
        if not name:
            raise Refusal(
                Reason.UNAUTHENTICATED,
                f"the reverse proxy named no user in the header {self._user_header}; log in there",
            )
        # proxies join headers of one name by commas
        if "," in name or not name.isprintable() or "\ufffd" in name or len(name) > NAME_CHARACTERS_MAX:
            raise Refusal(Reason.UNAUTHORIZED, f"header {self._user_header}: not one name; have the proxy replace it")
        return name

    def find_host(self, request: Request) -> str:
        """Return the visitor's address from the proxy's header, or else the proxy's own."""
        own = request.client.host if request.client else ""
        lines = request.headers.getlist(self._address_header)
        last = lines[-1].rpartition(",")[2].strip() if lines else ""
        try:
            return str(ipaddress.ip_address(last.partition("%")[0]))
        except ValueError:
            return own

    def _is_known(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)
