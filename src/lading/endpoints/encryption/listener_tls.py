"""The TLS context of one listener for its new connections, built again when its files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ...model.errors import LocalError
from ...runtime.pem_files import explain_refused_pair, warn_of_open_key
from ...settings.endpoints import endpoint_key
from ...settings.sections import TlsEndpointSection, TlsSettings
from ..base.services import Services
from .certificates import find_certificate
from .renewal import CertificateRenewal

VERIFY_MODES: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL}
"""By ``client_certificates`` in the settings."""


def _ignore() -> None:
    """Do nothing: the callback of a listener that wants no notice."""


class RenewedTls:
    """TLS that is made of files. Connections that are open keep what they began with."""

    def __init__(self, settings: TlsSettings, key: str, data: Path) -> None:
        """Raises LocalError in one sentence that names the setting below ``key`` at fault."""
        self._settings, self._key, self._data = settings, key, data
        self.on_renewed: Callable[[], None] = _ignore
        """Called, maybe in a worker, when files that can be used were read again."""
        self.renew()

    def files(self) -> Sequence[Path]:
        """Return the files that it is made of."""
        settings = self._settings
        files = (*find_certificate(settings, self._data), settings.client_ca)
        return tuple(file for file in files if file is not None)

    def renew(self) -> None:
        """Read the files. Raises LocalError in one sentence, and changes nothing, if they cannot be used."""
        self.context = make_context(self._settings, self._key, self._data)
        self.on_renewed()


class ListenerTls(RenewedTls):
    """The TLS of one listener of a broker."""

    def __init__(self, services: Services, name: str, settings: TlsSettings) -> None:
        """Raises LocalError in one sentence that names the setting at fault."""
        super().__init__(settings, f"{endpoint_key(name)}.tls", services.settings.data)
        CertificateRenewal.of(services).add(name, self.files, self.renew)

    @property
    def names_clients(self) -> bool:
        """Whether a client's certificate says who it is."""
        return self._settings.client_user is not None


def find_tls(services: Services, name: str, section: TlsEndpointSection) -> ListenerTls | None:
    """Return the TLS of the endpoint ``name``, or None if its settings say that it is plain."""
    return ListenerTls(services, name, section.tls) if section.tls.enabled else None


def make_context(tls: TlsSettings, key: str, data: Path) -> ssl.SSLContext:
    """Return a server's TLS context; LocalError in one sentence that names the setting below ``key`` at fault."""
    files = find_certificate(tls, data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # a key with a password is refused: the broker must not wait until it is typed
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError) as error:
        where = f"{files.certificate}" + (f" and {files.key}" if files.key is not None else "")
        remedy = f"set {key}.key" if files.key is None else "the key without a password"
        problem = explain_refused_pair(files.certificate, files.key, error)
        raise LocalError(
            f"setting {key}.certificate: {where} cannot be used: {problem}; "
            f"give a certificate and its key as PEM, {remedy}"
        ) from None
    warn_of_open_key(files.key or files.certificate)
    if tls.client_ca is not None:
        context.verify_mode = VERIFY_MODES[tls.client_certificates]
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ValueError) as error:
            raise LocalError(
                f"setting {key}.client_ca: {tls.client_ca} cannot be used: {find_reason(error)}; "
                "give certificates as PEM"
            ) from None
    return context


def find_reason(error: Exception) -> str:
    """Return why files or a handshake are not what they should be, in OpenSSL's words."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        return f"{(error.reason or '').replace('_', ' ').lower()}: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error)


_PLAIN_CLIENT: Final = "a plain client came to a port with TLS; switch TLS on in the client"
_NOT_TRUSTED: Final = "the client does not trust the certificate of this listener; give it the one that signed it"
_ADVICE: Final = {
    "WRONG_VERSION_NUMBER": _PLAIN_CLIENT,
    "HTTP_REQUEST": _PLAIN_CLIENT,
    "HTTPS_PROXY_REQUEST": _PLAIN_CLIENT,
    "UNKNOWN_PROTOCOL": _PLAIN_CLIENT,
    "RECORD_LAYER_FAILURE": _PLAIN_CLIENT,
    "UNSUPPORTED_PROTOCOL": "the client speaks no TLS of version 1.2 or later",
    "NO_PROTOCOLS_AVAILABLE": "the client speaks no TLS of version 1.2 or later",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "this listener requires a client certificate (tls.client_ca)",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is not one that tls.client_ca allows",
    "TLSV1_ALERT_UNKNOWN_CA": _NOT_TRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NOT_TRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": _NOT_TRUSTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate of this listener has expired; renew it",
}


def explain_failure(error: ssl.SSLError) -> str:
    """Return a sentence for the log: why a client's TLS failed, and the remedy if it is known."""
    advice = _ADVICE.get(error.reason or "")
    return f"TLS failed: {find_reason(error)}" + (f"; {advice}" if advice else "")
