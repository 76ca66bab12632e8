"""Connections to servers: TCP or TLS over it, and what an operating system says of one that fails, as words."""

from __future__ import annotations

import socket
import ssl

from ..model.errors import SettingError


def make_tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return what checks a server's certificate: by the system's authorities, and those of ``ca_file``.

    SettingError for a file that cannot be read or holds none.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as failure:
        raise SettingError(
            f"ca_file {ca_file!r}: {describe_failure(failure)}; name a PEM file of certificates"
        ) from None


def connect(address: tuple[str, int], timeout_s: float, context: ssl.SSLContext | None = None) -> socket.socket:
    """Return a connection without Nagle's delay, encrypted if there is a ``context``; OSError where there is none."""
    connection = socket.create_connection(address, timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection if context is None else context.wrap_socket(connection, server_hostname=address[0])
    except BaseException:
        connection.close()
        raise


def describe_failure(failure: BaseException) -> str:
    """Return the reason in lower case and without numbers, such as "connection refused"."""
    text = (failure.strerror if isinstance(failure, OSError) else "") or str(failure) or type(failure).__name__
    if isinstance(failure, ssl.SSLCertVerificationError):
        text = failure.verify_message
    return text[:1].lower() + text[1:]
