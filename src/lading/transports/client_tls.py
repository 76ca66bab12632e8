"""TLS of the client side: the options that all transports to servers share, and errors with a remedy."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..model.errors import SettingError
from ..runtime.pem_files import explain_refused_pair
from .option_values import parse_option

_PLAIN_SERVER: Final = "the server has no TLS there; leave out tls, or name its encrypted address"
NAME_CA_FILE: Final = "give the certificate that signed it as ca_file (in the URL, or LADING_CA_FILE)"
_NO_CERTIFICATE: Final = "the server requires a certificate; set certificate_file and key_file"
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
_ADVICE: Final[Mapping[str, str]] = {
    **dict.fromkeys(_NO_TLS, _PLAIN_SERVER),
    "UNEXPECTED_EOF_WHILE_READING": f"perhaps {_PLAIN_SERVER}",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _NO_CERTIFICATE,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _NO_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not know who signed certificate_file; use one that it trusts",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate in certificate_file has expired; renew it",
}
_UNKNOWN_SIGNERS: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's X509_V_ERR codes: self-signed, self-signed in the chain, issuer not found, chain not complete."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Certificates: those that servers are checked with, and the client's own."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def make_context(self) -> ssl.SSLContext:
        """Return the context that checks a server's certificate by the system's authorities and those of ``ca_file``.

        Raises SettingError for a file that cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as failure:
            raise SettingError(
                f"ca_file {self.ca_file!r}: {explain_failure(failure)}; name a PEM file of certificates"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate_file is not None:
            try:
                context.load_cert_chain(self.certificate_file, self.key_file, password="")
            except (OSError, ValueError) as failure:
                key = f" and key_file {self.key_file!r}" if self.key_file is not None else ""
                raise SettingError(
                    f"certificate_file {self.certificate_file!r}{key}: {self._explain_own(failure)}; "
                    "name PEM files of a certificate and its key, the key without a password"
                ) from None
        return context

    def _explain_own(self, failure: Exception) -> str:
        key = None if self.key_file is None else Path(self.key_file)
        return explain_refused_pair(Path(self.certificate_file or ""), key, failure)


def parse_tls(
    tls: bool | str | None, ca_file: str | None, certificate_file: str | None, key_file: str | None
) -> ClientTls | None:
    """Return the TLS that the options of a transport describe, or None for a plain connection.

    Without the option ``tls``, any of the files implies TLS. Raises SettingError for a key without a certificate, and
    for files that cannot be used.
    """
    if key_file is not None and certificate_file is None:
        raise SettingError("key_file is given without certificate_file; give both, or neither")
    given = ca_file is not None or certificate_file is not None
    if not (given if tls is None else parse_option("tls", str(tls))):
        return None
    found = ClientTls(ca_file, certificate_file, key_file)
    # checked now, not at the first request; each connection makes its own context, as files may be renewed
    found.make_context()
    return found


def has_no_tls(failure: ssl.SSLError) -> bool:
    """Return whether a server's first bytes were those of another protocol."""
    return failure.reason in _NO_TLS


def explain_failure(failure: BaseException) -> str:
    """Return the reason in lower case and without numbers, such as "connection refused"; for TLS with a remedy."""
    if isinstance(failure, ssl.SSLCertVerificationError):
        why = failure.verify_message.rstrip(".") or "it cannot be checked"
        if failure.verify_code in _UNKNOWN_SIGNERS:
            why += f"; {NAME_CA_FILE}"
        return f"the server's certificate is refused: {_begin_lower_case(why)}"
    if isinstance(failure, ssl.SSLError) and failure.reason:
        advice = _ADVICE.get(failure.reason)
        return failure.reason.replace("_", " ").lower() + (f"; {advice}" if advice else "")
    if isinstance(failure, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        # a plain server closes the connection after a TLS hello; OpenSSL reports that in one of several ways
        return f"the server closed the connection in the handshake; perhaps {_PLAIN_SERVER}"
    text = (failure.strerror if isinstance(failure, OSError) else "") or str(failure) or type(failure).__name__
    return _begin_lower_case(text)


def _begin_lower_case(sentence: str) -> str:
    """Return a sentence as part of another one; if it begins with an acronym, such as "IP", unchanged."""
    return sentence if sentence[:2].isupper() else sentence[:1].lower() + sentence[1:]
