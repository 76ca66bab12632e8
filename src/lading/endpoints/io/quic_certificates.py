"""Certificates that clients show over QUIC: aioquic requests them and leaves their verification to its user.

They must meet the same conditions as in OpenSSL over TCP: signed by an authority of the listener, within their dates,
and not issued for another purpose than clients.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import datetime

from aioquic.quic.configuration import QuicConfiguration
from aioquic.tls import Alert, AlertDescription, verify_certificate
from cryptography.x509 import Certificate, ExtendedKeyUsage, ExtensionNotFound
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...broker.core.access.access import AccessControl
from ...model.errors import Refusal
from ..base.session import ProtocolSession
from ..encryption.client_certificates import find_user

_FOR_CLIENTS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


class CertificateRefused(Exception):
    """A client may not connect with its certificates; ``alert`` is the TLS alert for the reason."""

    def __init__(self, alert: AlertDescription, sentence: str) -> None:
        super().__init__(sentence)
        self.alert = alert


def check_certificates(shown: Sequence[Certificate], configuration: QuicConfiguration) -> None:
    """Raise CertificateRefused unless a client may connect that has shown these, its own first, or none."""
    if not shown:
        if configuration.verify_mode == ssl.CERT_REQUIRED:
            raise CertificateRefused(
                AlertDescription.certificate_required,
                "the client has shown no certificate; this listener requires one (tls.client_ca)",
            )
        return
    try:
        verify_certificate(shown[0], list(shown[1:]), cadata=configuration.cadata)
    except Alert as alert:
        raise CertificateRefused(
            alert.description, f"{alert}; the client's certificate is not one that tls.client_ca allows"
        ) from None
    try:
        uses = shown[0].extensions.get_extension_for_class(ExtendedKeyUsage).value
    except ExtensionNotFound:
        return
    except ValueError as error:
        raise CertificateRefused(AlertDescription.bad_certificate, f"extensions of the certificate: {error}") from None
    if _FOR_CLIENTS.isdisjoint(uses):
        raise CertificateRefused(
            AlertDescription.unsupported_certificate, "the client's certificate is not made for clients"
        )


def log_in_by_certificate(shown: Sequence[Certificate], session: ProtocolSession, access: AccessControl) -> None:
    """Let a client act for the user whom its certificate names, if it has shown one and there are users.

    Raises CertificateRefused if it names none of them.
    """
    if not shown or not access.is_enabled:
        return
    names, ends = _read_subject(shown[0])
    try:
        session.accept_certificate(find_user(access, names, ends.timestamp()))
    except Refusal as refusal:
        raise CertificateRefused(AlertDescription.access_denied, f"the certificate names no user: {refusal}") from None


def _read_subject(certificate: Certificate) -> tuple[list[str], datetime]:
    """Return the common names of a certificate's subject, and when it ends."""
    names = [str(part.value) for part in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return names, certificate.not_valid_after_utc
