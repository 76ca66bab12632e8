"""One connection to an nsqd: the greeting, commands out, frames in, responses to heartbeats."""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from ...dialects.nsq.commands import ERROR, HEARTBEAT, MAGIC, MESSAGE, RESPONSE, read_frame, write
from ...model.errors import MalformedMessage, RemoteError, SettingError, Unreachable
from ..client_tls import ClientTls, explain_failure
from ..network import reading_response, recognise_protocol
from .compressed import DEFLATE_LEVEL, ClientCompression, CompressedStream

log = logging.getLogger(__name__)

RECEIVE_BYTES: Final = 1 << 18
COMPRESSED_RECEIVE_BYTES: Final = 1 << 14
"""The same for a compressed connection: deflate makes up to a thousand times as many of them."""
_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = 8
MESSAGES_BYTES_MAX: Final = 512 << 20
"""Size of messages that may arrive before the response to a command."""
READY_MAX: Final = 2_500
"""The limit assumed for an nsqd that does not report one: nsqd's default."""
NAME_NSQD: Final = (
    "name the address of an nsqd or nsqlookupd (Lading prints nsqd_tcp and nsqlookupd_http when it starts)"
)
END_S: Final = 2.0
"""Time that a server has to stop."""
USER_AGENT: Final = "lading"
WITH_EXT: Final = "HA"
"""The part of the version by which servers with ext headers are recognised (nsq.md 5.3)."""


@dataclass(frozen=True, slots=True)
class IdentifyOptions:
    """Members of IDENTIFY (nsq.md 1.5) besides name and agent."""

    extend_support: bool = False
    tag: str = ""
    timeout_ms: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    def document(self, *, tls: bool = False, compression: ClientCompression | None = None) -> bytes:
        """Return the body of IDENTIFY; ``tls`` and ``compression`` request the change to them after its response."""
        name = f"{socket.gethostname()}-{os.getpid()}"
        said: dict[str, Any] = {
            "client_id": name,
            "hostname": socket.gethostname(),
            "user_agent": USER_AGENT,
            "feature_negotiation": True,
            **self.more,
        }
        if tls:
            said["tls_v1"] = True
        if compression is not None:
            said |= compression.to_identify()
        if self.extend_support:
            said["extend_support"] = True
        # sent even if empty: it shows Lading's nodes that ids may be binary, with the trace id
        said["desired_tag"] = self.tag
        if self.timeout_ms:
            said["msg_timeout"] = self.timeout_ms
        return json.dumps(said).encode()


class NsqRefusal(RemoteError):
    """nsqd responded with an error frame; ``word`` is its code, e.g. ``E_BAD_TOPIC``."""

    def __init__(self, place: str, text: str) -> None:
        self.word = text.partition(" ")[0]
        super().__init__(f"nsqd at {place} refused it: {text.strip()}")


class NsqConnection:
    """It connects and greets when created. If it breaks, it raises Unreachable, and keeps that in ``broken``.

    It does not wait for messages by itself: ``pump`` receives frames, ``take_messages`` returns those with messages.
    """

    def __init__(
        self,
        host: str,
        port: int,
        identity: IdentifyOptions,
        *,
        timeout_s: float,
        tls: ClientTls | None = None,
        auth_secret: str | None = None,
        compression: ClientCompression | None = None,
    ) -> None:
        """With ``tls`` the connection changes to TLS by IDENTIFY. Raises RemoteError if the server refuses that.

        With ``compression`` both directions are compressed if the server offers that. ``auth_secret`` is sent to a
        server that requires one.
        """
        self.place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._messages: list[bytes] = []
        self._messages_bytes = 0
        self.errors: list[str] = []
        """Errors that belong to no request, such as for a FIN that came too late."""
        self.broken = False
        self.extend_support = identity.extend_support
        self._timeout_s = timeout_s
        self._buffer = bytearray()
        self._answers: deque[tuple[int, bytes]] = deque()
        self._stream: CompressedStream | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as failure:
            raise Unreachable(
                f"no nsqd is reachable at {self.place} ({explain_failure(failure)}); check that one is listening there "
                "(Lading prints its address as nsqd_tcp when it starts)"
            ) from None
        try:
            document = identity.document(tls=tls is not None, compression=compression)
            answer = self._ask_alone(MAGIC + write("IDENTIFY", body=document))
            with reading_response(NAME_NSQD):
                self.facts: dict[str, Any] = json.loads(answer) if answer.startswith(b"{") else {}
                self.ready_max = int(self.facts.get("max_rdy_count") or READY_MAX)
                """The largest number of messages that may be in flight."""
            if tls is not None:
                self._start_tls(tls, host)
            if compression is not None:
                self._start_compression(compression)
            if self.facts.get("auth_required"):
                self._authenticate(auth_secret)
        except (ValueError, RemoteError, MalformedMessage, SettingError):
            self.close()
            raise

    def _start_tls(self, tls: ClientTls, host: str) -> None:
        if not self.facts.get("tls_v1"):
            raise RemoteError(f"nsqd at {self.place} offers no TLS (tls_v1); leave out tls, or switch it on there")
        try:
            self._socket = tls.make_context().wrap_socket(self._socket, server_hostname=host)
        except OSError as failure:
            raise self._broken_error(failure) from None
        # the server sends OK once more, encrypted
        self._ask_alone(b"")

    def _start_compression(self, compression: ClientCompression) -> None:
        if not self.facts.get(compression.name):
            log.warning(
                "nsqd at %s offers no %s: nothing is compressed; leave out connection_compression, or start it without "
                "-%s=false",
                self.place, compression.name, compression.name,
            )  # fmt: skip
            return
        level = self.facts.get("deflate_level")
        self._stream = CompressedStream(compression, level if type(level) is int and 0 < level < 10 else DEFLATE_LEVEL)
        # the server sends OK once more, compressed
        self.ask(b"")

    def _ask_alone(self, data: bytes) -> bytes:
        """Send ``data`` and return the response, without reading a byte after it: later bytes may be encrypted or
        compressed.
        """
        self.send(data)
        until = time.monotonic() + self._timeout_s
        head = self._receive_exactly(_HEAD_BYTES, until)
        try:
            # refuse a length or type that no nsqd writes, before waiting for that many bytes
            read_frame(head, 0, len(head))
        except MalformedMessage as failure:
            found = recognise_protocol(head)
            said = f"does not speak NSQ ({failure})" if found is None else f"speaks {found}, not NSQ"
            raise Unreachable(f"the server at {self.place} {said}; {NAME_NSQD}") from None
        rest_bytes = int.from_bytes(head[:_SIZE_BYTES]) - (_HEAD_BYTES - _SIZE_BYTES)
        frame = read_frame(whole := head + self._receive_exactly(rest_bytes, until), 0, len(whole))
        assert frame is not None
        if frame.kind == ERROR:
            raise NsqRefusal(self.place, bytes(frame.data).decode(errors="replace"))
        return bytes(frame.data)

    def _receive_exactly(self, size_bytes: int, until: float) -> bytes:
        """Return the next bytes of the connection. Raises Unreachable if they have not arrived by ``until``."""
        received = bytearray()
        try:
            while len(received) < size_bytes:
                self._socket.settimeout(max(until - time.monotonic(), 0.001))
                data = self._socket.recv(size_bytes - len(received))
                if not data:
                    raise ConnectionError(
                        "it closed the connection when it was greeted, as a server of another protocol does, such as a "
                        f"Kafka broker, or one for TLS only; {NAME_NSQD}"
                    )
                received += data
        except TimeoutError:
            raise self._broken_error(TimeoutError(f"no answer within {self._timeout_s:g} s")) from None
        except OSError as failure:
            raise self._broken_error(failure) from None
        finally:
            if not self.broken:
                self._socket.settimeout(self._timeout_s)
        return bytes(received)

    def _authenticate(self, secret: str | None) -> None:
        if secret is None:
            raise RemoteError(f"nsqd at {self.place} asks for a secret; give the option auth_secret_file")
        self.ask(write("AUTH", body=secret.encode()))

    @property
    def knows_ext(self) -> bool:
        """Whether the server knows ext headers."""
        return WITH_EXT in str(self.facts.get("version", ""))

    def fileno(self) -> int:
        """Return the descriptor by which to wait for bytes."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send commands that have no response."""
        try:
            self._socket.sendall(data if self._stream is None else self._stream.compress(data))
        except OSError as failure:
            raise self._broken_error(failure) from None

    def ask(self, data: bytes, *, timeout_s: float | None = None) -> bytes:
        """Send a command and wait for its response; NsqRefusal for an error frame, Unreachable if none comes."""
        self.send(data)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        until = time.monotonic() + timeout_s
        while not self._answers:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise self._broken_error(TimeoutError(f"no answer within {timeout_s:g} s"))
            if self.errors:
                raise NsqRefusal(self.place, self.errors.pop(0))
            self.pump(left_s, awaiting=True)
            if self._messages_bytes > MESSAGES_BYTES_MAX:
                raise self._broken_error(
                    ConnectionError("it sends messages that it was not asked for, and no response")
                )
        kind, answer = self._answers.popleft()
        if kind == ERROR:
            raise NsqRefusal(self.place, answer.decode(errors="replace"))
        return answer

    def take_messages(self) -> list[bytes]:
        """Return the messages that have arrived since the last call."""
        messages, self._messages, self._messages_bytes = self._messages, [], 0
        return messages

    def drop_responses(self) -> None:
        """Drop responses and errors that no command waits for."""
        self.errors.clear()
        self._answers.clear()

    def pump(self, wait_s: float = 0.0, *, awaiting: bool = False) -> None:
        """Receive frames, after a wait of up to ``wait_s``; ``awaiting``: a command waits for its response.

        An error frame is then the response to the command.
        """
        try:
            if not select.select([self._socket], [], [], wait_s)[0]:
                return
            data = self._receive()
            if data is None:
                return
        except (OSError, ValueError) as failure:
            raise self._broken_error(failure) from None
        if not data:
            said = f", after it said: {self.errors[-1].strip()}" if self.errors else ""
            raise self._broken_error(ConnectionError(f"it closed the connection{said}"))
        try:
            self._buffer += data if self._stream is None else self._stream.decompress(data)
            self._take(awaiting)
        except MalformedMessage as failure:
            self.close()
            raise MalformedMessage(f"nsqd at {self.place} sent what is not NSQ's: {failure}") from None

    def _receive(self) -> bytes | None:
        """Return received bytes, nothing at the end; None if only TLS itself sent something."""
        bytes_max = RECEIVE_BYTES if self._stream is None else COMPRESSED_RECEIVE_BYTES
        if not isinstance(self._socket, ssl.SSLSocket):
            return self._socket.recv(bytes_max)
        # read everything: select does not report bytes that TLS has decrypted already
        self._socket.settimeout(0)
        parts: list[bytes] = []
        received_bytes = 0
        try:
            while part := self._socket.recv(bytes_max):
                parts.append(part)
                received_bytes += len(part)
                # a server that sends as fast as this reads never lets it wait
                if received_bytes >= bytes_max and not self._socket.pending():
                    break
        except ssl.SSLWantReadError:
            return b"".join(parts) or None
        finally:
            self._socket.settimeout(self._timeout_s)
        return b"".join(parts)

    def _take(self, awaiting: bool) -> None:
        at, beats = 0, 0
        buffer = bytes(self._buffer)
        while (frame := read_frame(buffer, at, len(buffer))) is not None:
            at = frame.end
            data = bytes(frame.data)
            if frame.kind == MESSAGE:
                self._messages.append(data)
                self._messages_bytes += len(data)
            elif frame.kind == RESPONSE and data == HEARTBEAT:
                beats += 1
            elif frame.kind == ERROR and not awaiting:
                self.errors.append(data.decode(errors="replace"))
            else:
                self._answers.append((frame.kind, data))
        del self._buffer[:at]
        if beats:
            self.send(write("NOP") * beats)

    def _broken_error(self, failure: BaseException) -> Unreachable:
        self.close()
        return Unreachable(f"the connection to nsqd at {self.place} broke: {explain_failure(failure)}")

    def end(self) -> None:
        """Close after the server has handled all commands; no further commands are sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(END_S)
            while self._socket.recv(RECEIVE_BYTES):
                pass
        except OSError:
            pass
        self.close()

    def close(self) -> None:
        """Close the connection; nsqd delivers the messages in flight to others."""
        self.broken = True
        self._socket.close()
