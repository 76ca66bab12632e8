"""Certificates that are made here: the broker's own, and those of an authority for a development machine.

Keys are on the curve P-256, which every client of Kafka, NSQ and Iggy takes (docs/reference/protocols/iggy.md#quic).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

CLOCK_DAYS: Final = 1
"""Certificates are valid from this many days before their creation: clocks of other machines may be slow."""
_USES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Certificate(NamedTuple):
    """A certificate with its key."""

    shown: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def to_pem(self) -> bytes:
        """Return the certificate as PEM."""
        return self.shown.public_bytes(serialization.Encoding.PEM)

    def key_to_pem(self) -> bytes:
        """Return the key as PEM, without a password."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def read_names(path: Path) -> list[str]:
    """Return the DNS names of the first certificate in a PEM file. Raises ValueError if it has none."""
    (first, *_) = x509.load_pem_x509_certificates(path.read_bytes())
    try:
        names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def own_names() -> tuple[str, ...]:
    """Return the names and addresses by which this machine calls itself."""
    return tuple(dict.fromkeys(("localhost", socket.gethostname(), "127.0.0.1", "::1")))


def make_authority(name: str, days: int) -> Certificate:
    """Return a new authority, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _begin(name, key, days)
        .issuer_name(_name(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Certificate(builder.sign(key, hashes.SHA256()), key)


def make_certificate(name: str, names: Sequence[str], days: int, authority: Certificate | None = None) -> Certificate:
    """Return a new certificate for these names and addresses, signed by ``authority``, or by itself.

    It is good for a server and for a client.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _begin(name, key, days)
        .issuer_name(_name(name) if authority is None else authority.shown.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USES), critical=False)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_to_alternative_name(each) for each in names]), False
        )
    if authority is not None:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
    return Certificate(builder.sign((authority.key if authority is not None else key), hashes.SHA256()), key)


def _begin(name: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=CLOCK_DAYS))
        .not_valid_after(now + timedelta(days=days))
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _to_alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
