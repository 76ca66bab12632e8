"""One connection to one Kafka broker: frames out and in, several in progress at a time, TLS and SASL."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dialects.kafka import commands, errors, fetch_by_id
from ...dialects.kafka.layout import SPARE_BYTES
from ...dialects.kafka.limits import ANSWER_BYTES_MAX
from ...dialects.kafka.scram_client import ScramLogin
from ...dialects.kafka.versions import SERVED
from ...kernels.arena import Pool
from ...model.errors import CorruptError, MalformedMessage, RemoteError
from ..client_tls import ClientTls, explain_failure
from ..network import connect, receive_exactly, recognise_protocol

CLIENT: Final = "lading"
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
RECEIVE_BUFFER_BYTES: Final = 4 << 20
JOINED_BYTES: Final = 16 << 10
"""Batches up to this size are copied to the end of their head, for one packet instead of two."""
_ANSWERS: Final = Pool(3)
"""Buffers of responses: a reader decodes one while the next arrives."""
_LENGTH: Final = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """Security of connections to brokers: TLS, and the login. No message contains the password."""

    tls: ClientTls | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: str = PLAIN
    oauth_token: Callable[[], str] | None = None
    """Returns the token for OAUTHBEARER; called for each connection."""

    def __repr__(self) -> str:
        return f"KafkaSecurity(tls={self.tls is not None}, username={self.username!r})"


class KafkaSocket:
    """A connection that is made when first used; any failure of it is an OSError, and closes it.

    Responses come in the order of requests. ``timeout_s`` bounds the wait for each (``ReadDeadline``).
    """

    def __init__(self, host: str, port: int, access: KafkaSecurity, timeout_s: float) -> None:
        self.place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._address = (host, port)
        self._access = access
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._correlation = 0
        self._waiting: deque[int] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._by_id = False
        self._is_greeted = self._is_served = False
        self._unread_until_s = 0.0
        """Time until which the broker leaves the connection unread, as a quota is exhausted (KIP-219)."""

    @property
    def open(self) -> bool:
        """Whether there is a connection now."""
        return self._socket is not None

    def ask(self, api: str, *, wait_s: float = 0.0, **fields: Any) -> Any:
        """Return the response to one of ``commands.KEYS``, in the highest version that both sides speak.

        ``wait_s`` is how long the broker may hold the response back.
        """
        self._require_socket()
        return self._ask(api, self._choose_version(api), wait_s, **fields)

    def speaks(self, api: str) -> bool:
        """Return whether the broker knows one of ``commands.KEYS`` in a version that Lading knows."""
        self._require_socket()
        version, version_min = self._find_version(api)
        return version >= version_min

    def send_fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        topic_id: bytes | None,
        leader_epoch: int,
        max_bytes: int,
        wait_ms: int,
    ) -> None:
        """Request batches of a leader of this epoch (-1: of any); the response is for ``receive_fetch``.

        If ``topic_id`` is known and the broker supports it, the topic is requested by its id.
        """
        connection = self._require_socket()
        how: Any = {"leader_epoch": leader_epoch, "max_bytes": max_bytes, "wait_ms": wait_ms}
        self._by_id = topic_id is not None and self._versions[commands.FETCH][1] >= fetch_by_id.VERSION
        if topic_id is not None and self._by_id:
            ask = fetch_by_id.encode_fetch_by_id(self._next_correlation(), CLIENT, topic_id, partition, offset, **how)
        else:
            ask = commands.encode_fetch(self._next_correlation(), CLIENT, topic, partition, offset, **how)
        connection.sendall(ask)

    def receive_fetch(self, wait_ms: int) -> tuple[commands.FetchResponse, NDArray[np.uint8]]:
        """Return the next response in order, and its buffer, which has a few spare bytes at its end."""
        answer = self._receive(wait_ms / 1000)
        parse = fetch_by_id.parse_fetch_by_id if self._by_id else commands.parse_fetch
        found = parse(answer[:-SPARE_BYTES].data)
        self._note_throttle(found.throttle_ms)
        return found, answer

    def watch(self, places: Mapping[tuple[str, int], int], *, wait_ms: int) -> int:
        """Return when the broker has something in any of these partitions from its offset on, or after ``wait_ms``.

        The response has at least a batch. Returns for how many milliseconds a quota is exhausted, 0 if it is not.
        """
        ask = commands.encode_watch(self._next_correlation(), CLIENT, places, max_bytes=1, wait_ms=wait_ms)
        self._require_socket().sendall(ask)
        throttle_ms = commands.read_fetch_throttle(self._receive(wait_ms / 1000)[:-SPARE_BYTES].data)
        self._note_throttle(throttle_ms)
        return throttle_ms

    def send_produce(
        self,
        topic: str,
        partition: int,
        batch: memoryview,
        *,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> None:
        """Send a batch; the response is for ``receive_produce``."""
        how: Any = {"timeout_ms": timeout_ms, "transactional_id": transactional_id}
        head = commands.encode_produce(self._next_correlation(), CLIENT, topic, partition, len(batch), **how)
        connection = self._require_socket()
        if len(batch) <= JOINED_BYTES:
            connection.sendall(head + batch)
        else:
            connection.sendall(head)
            connection.sendall(batch)

    def receive_produce(self) -> commands.ProduceResponse:
        """Return the next response in order."""
        found = commands.parse_produce(self._receive()[:-SPARE_BYTES].data)
        self._note_throttle(found.throttle_ms)
        return found

    def interrupt(self) -> None:
        """Interrupt another thread that waits on this connection: it gets an OSError."""
        connection = self._socket
        if connection is not None:
            # it may be closed already
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; outstanding responses are lost."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._waiting.clear()
        self._unread_until_s = 0.0

    def _next_correlation(self) -> int:
        self._require_socket()
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        self._waiting.append(self._correlation)
        return self._correlation

    def _require_socket(self) -> socket.socket:
        if self._socket is None:
            self._connect()
        assert self._socket is not None
        return self._socket

    def _connect(self) -> None:
        context = self._access.tls.make_context() if self._access.tls is not None else None
        self._socket = connect(self._address, self._timeout_s, context)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        try:
            answer = self._ask("ApiVersions", 0)
            self._is_greeted = True
            self._versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
            self._check_versions()
            if self._access.username is not None or self._access.oauth_token is not None:
                self._log_in(self._access)
        except BaseException:
            self.close()
            raise

    def _check_versions(self) -> None:
        fixed = ((commands.FETCH, commands.FETCH_VERSION), (commands.PRODUCE, commands.PRODUCE_VERSION))
        for key, version in fixed:
            low, high = self._versions.get(key, (0, -1))
            if not low <= version <= high:
                raise RemoteError(
                    f"broker {self.place} does not support API {key} version {version}; Kafka 2.4 or newer is required",
                    code=errors.UNSUPPORTED_VERSION,
                )

    def _find_version(self, api: str) -> tuple[int, int]:
        """Return the highest version that both sides may use, and the lowest; no version if the highest is
        below that.
        """
        key = commands.KEYS[api]
        asked = SERVED[key].asked
        assert asked is not None
        low, high = self._versions.get(key, (0, -1))
        return min(asked[1], high), max(asked[0], low)

    def _choose_version(self, api: str) -> int:
        version, version_min = self._find_version(api)
        if version < version_min:
            raise RemoteError(
                f"the broker at {self.place} does not speak {api} in a version that Lading knows",
                code=errors.UNSUPPORTED_VERSION,
            )
        return version

    def _log_in(self, access: KafkaSecurity) -> None:
        mechanism, name, password = access.mechanism, access.username or "", access.password or ""
        answer = self._ask("SaslHandshake", self._choose_version("SaslHandshake"), mechanism=mechanism)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "none"
            raise RemoteError(
                f"the broker at {self.place} does not accept SASL {mechanism}: {errors.name_of(answer.error_code)}; "
                f"set sasl_mechanism to one that it offers: {offered}",
                code=answer.error_code,
            )
        if access.oauth_token is not None:
            if self._authenticate(name, f"n,,\x01auth=Bearer {access.oauth_token()}\x01\x01".encode()):
                # the status of a refusal: the broker waits for another message before it sends the error (RFC 7628
                # section 3.2.3)
                self._authenticate(name, b"\x01")
        elif mechanism == PLAIN:
            self._authenticate(name, f"\0{name}\0{password}".encode())
        else:
            login = ScramLogin(mechanism, name, password)
            login.check(self._authenticate(name, login.answer(self._authenticate(name, login.first()))))

    def _authenticate(self, name: str, message: bytes) -> bytes:
        answer = self._ask("SaslAuthenticate", self._choose_version("SaslAuthenticate"), auth_bytes=message)
        if answer.error_code:
            who = f"the user {name!r}" if name else "the token"
            raise RemoteError(
                f"the broker at {self.place} refused {who}: {errors.name_of(answer.error_code)}",
                code=answer.error_code,
            )
        return bytes(answer.auth_bytes)

    def _ask(self, api: str, version: int, wait_s: float = 0.0, **fields: Any) -> Any:
        assert not self._waiting, f"{api} is requested while other responses are pending"
        frame = commands.encode_library_request(api, version, self._next_correlation(), CLIENT, **fields)
        connection = self._require_socket()
        try:
            connection.sendall(frame)
            answer = commands.parse_library_response(api, version, self._receive(wait_s)[:-SPARE_BYTES].data)
        except (ConnectionResetError, BrokenPipeError) as failure:
            self.close()
            raise ConnectionResetError(explain_failure(failure) + self._advise()) from None
        except (OSError, MalformedMessage):
            self.close()
            raise
        self._is_served = self._is_greeted
        self._note_throttle(getattr(answer, "throttle_time_ms", 0))
        return answer

    def _advise(self) -> str:
        """Return advice after a broker closed the connection: before its first response TLS may be missing, later a
        login.
        """
        if not self._is_greeted:
            return "" if self._access.tls is not None else "; if it is one for TLS, set tls or ca_file"
        has_login = self._access.username is not None or self._access.oauth_token is not None
        return "" if self._is_served or has_login else "; if it asks for a login, set username and password_file"

    def _note_throttle(self, throttle_ms: int) -> None:
        if throttle_ms > 0:
            self._unread_until_s = time.monotonic() + throttle_ms / 1000

    def _receive(self, more_s: float = 0.0) -> NDArray[np.uint8]:
        connection = self._require_socket()
        # an exhausted quota explains silence
        timeout_s = self._timeout_s + more_s + max(self._unread_until_s - time.monotonic(), 0.0)
        head = np.empty(_LENGTH.size, np.uint8)
        receive_exactly(connection, head.data, timeout_s)
        size_bytes, correlation = _LENGTH.unpack(head.data)
        if not 4 <= size_bytes <= ANSWER_BYTES_MAX:
            self.close()
            self._refuse_other_protocol(bytes(head.data))
            raise CorruptError(
                f"the broker at {self.place} announced a response of {size_bytes} bytes, not of 4 to "
                f"{ANSWER_BYTES_MAX}; is it a Kafka broker, and is the option tls right?"
            )
        if not self._waiting or correlation != self._waiting[0]:
            self.close()
            self._refuse_other_protocol(bytes(head.data))
            raise CorruptError(f"the broker at {self.place} sent a response without a request")
        self._waiting.popleft()
        answer = _ANSWERS.memory(size_bytes + SPARE_BYTES)
        answer[:4] = head[4:]
        receive_exactly(connection, answer[4:-SPARE_BYTES].data, timeout_s)
        if not self._is_greeted:
            # the type of an NSQ frame may equal the number of the request
            self._refuse_other_protocol(bytes(head.data) + bytes(answer[4:6]))
        return answer

    def _refuse_other_protocol(self, start: bytes) -> None:
        """Raise CorruptError if a response begins like one of another protocol."""
        found = recognise_protocol(start)
        if found is not None:
            self.close()
            raise CorruptError(
                f"the server at {self.place} speaks {found}, not Kafka; name the address of a Kafka broker"
            )
