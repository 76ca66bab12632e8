"""The certificate of an encrypted listener: the one that the settings name, or the broker's own.

The broker's own is created when a listener first needs one, is stored in the data directory and stays the same, so that
clients can be set to trust it. It is signed by itself, with a key on the curve P-256: QUIC clients of Iggy that do not
check certificates take no other kind (docs/reference/protocols/iggy.md#quic).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, NamedTuple

from ...model.errors import LocalError
from ...runtime.private_files import write_private_file
from ...settings.sections import CertificateSettings

log = logging.getLogger(__name__)

OWN_FILE: Final = "certificate.pem"
"""Certificate and key of the broker's own, in the data directory."""
VALID_DAYS: Final = 3_650


class CertificateFiles(NamedTuple):
    """Paths of certificate and key, in PEM; they may be in one file."""

    certificate: Path
    key: Path | None


def find_certificate(settings: CertificateSettings, data: Path) -> CertificateFiles:
    """Return the files of a listener's certificate; LocalError if the broker's own is missing and cannot be made."""
    if settings.certificate is not None:
        return CertificateFiles(settings.certificate, settings.key)
    own = data / OWN_FILE
    if not own.exists():
        # takes 45 ms and 17 MB that brokers without a certificate of their own spare themselves
        from .authority import make_certificate, own_names

        try:
            made = make_certificate("lading", own_names(), VALID_DAYS)
            write_private_file(own, made.to_pem() + made.key_to_pem())
        except OSError as error:
            raise LocalError(
                f"certificate {own}: cannot be created: {error.strerror}; check space and rights of its directory"
            ) from None
        log.info("created a certificate of this broker's own: %s", own)
    return CertificateFiles(own, None)
