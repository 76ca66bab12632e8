"""Files of a certificate and its private key: which one is wrong if OpenSSL refuses both, and keys others may read."""

from __future__ import annotations

import logging
import ssl
import stat
from pathlib import Path
from typing import Final

LOG = logging.getLogger(__name__)

_PARTS: Final = ((b"-----BEGIN CERTIFICATE-----", "certificate"), (b"PRIVATE KEY-----", "private key"))
_PASSWORDS: Final = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


def explain_refused_pair(certificate: Path, key: Path | None, error: Exception) -> str:
    """Return what is wrong with a certificate and its key that raised ``error``, naming the file at fault.

    OpenSSL says "not PEM" or "no certificate assigned" and names neither. Its words if the files look right.
    """
    for file, (mark, part) in zip((certificate, key or certificate), _PARTS, strict=True):
        try:
            content = file.read_bytes()
        except OSError as failure:
            return f"{file}: {failure.strerror}"
        if mark not in content:
            return f"{file} has no {part} in PEM"
    if any(mark in content for mark in _PASSWORDS):
        return "the key has a password"
    reason = (error.reason or "not PEM") if isinstance(error, ssl.SSLError) else str(error)
    if reason == "KEY_VALUES_MISMATCH":
        return "the key is that of another certificate"
    return reason.replace("_", " ").lower()


def warn_of_open_key(file: Path) -> None:
    """Warn if users outside of the file's group may read a private key."""
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & stat.S_IROTH:
        LOG.warning("private key %s: every user may read it (mode %04o); close it with chmod 600 %s", file, mode, file)
