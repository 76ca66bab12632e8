"""The certificate of an encrypted listener: the one that the settings name, or the broker's own.

The broker's own is made when a listener first needs one, lies in the data directory and stays the same, so that
clients can be told to trust it. It is signed by itself, with a key on the curve P-256: QUIC clients of Iggy that do not
check certificates take no other kind (docs/reference/protocols/iggy.md#quic).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from ...endpoint_settings import CertificateSettings
from ...model.errors import LocalError

log = logging.getLogger(__name__)

OWN_FILE: Final = "certificate.pem"
"""Certificate and key of the broker's own, in the data directory."""
VALID_DAYS: Final = 3_650
FILE_MODE: Final = 0o600


class CertificateFiles(NamedTuple):
    """Where certificate and key are, in PEM; they may stand in one file."""

    certificate: Path
    key: Path | None


def find_certificate(settings: CertificateSettings, data: Path) -> CertificateFiles:
    """Return the files of a listener's certificate; LocalError if the broker's own is missing and cannot be made."""
    if settings.certificate is not None:
        return CertificateFiles(settings.certificate, settings.key)
    own = data / OWN_FILE
    if not own.exists():
        try:
            _write(own, _make_own())
        except OSError as error:
            raise LocalError(f"certificate {own}: cannot be made: {error.strerror}") from None
        log.info("made a certificate of this broker's own: %s", own)
    return CertificateFiles(own, None)


def _make_own() -> bytes:
    """Return a new key and a certificate for it, for all names of this machine, as PEM."""
    # takes 45 ms and 17 MB that brokers without a certificate of their own spare themselves
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lading")])
    names = dict.fromkeys(("localhost", socket.gethostname()))
    addresses = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # clocks of clients may be behind this one
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(
            x509.SubjectAlternativeName([*map(x509.DNSName, names), *map(x509.IPAddress, addresses)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private


def _write(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, for its owner alone."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
    fresh.replace(path)
