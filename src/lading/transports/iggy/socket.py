"""One connection to an Iggy server of the classic generation: frames out and in, retries, errors as sentences."""

from __future__ import annotations

import random
import select
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic.command_table import RESPONSE_HEAD
from ...dialects.iggy.classic.commands import Command
from ...dialects.iggy.classic.later_commands import LoginUser
from ...dialects.iggy.classic.releases import UNTOLD, Release
from ...dialects.iggy.current.commands import SyncGroup
from ...model.errors import CorruptError, MalformedMessage, Reason, Refusal, RemoteError, SettingError, Unreachable
from ...model.limits import REQUEST_BYTES_MAX
from ..client_tls import ClientTls, explain_failure
from ..network import IGGY_TCP, connect, receive_exactly, recognise_protocol
from .current import CURRENT, PROBE_S, CurrentFrames, speaks_current
from .server_release import GETTING, LOGGING_IN, describe_status, reason_of, release_of_lading, release_of_stats

UNAUTHENTICATED: Final = 40
"""The error of a server with users before a login."""
_MISSING: Final = {
    c.GetStream: Reason.STREAM_NAME_NOT_FOUND,
    c.GetTopic: Reason.TOPIC_NAME_NOT_FOUND,
    c.GetGroup: Reason.GROUP_NOT_FOUND,
    c.GetClient: Reason.CLIENT_NOT_FOUND,
}
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
ANSWER_BYTES_MAX: Final = REQUEST_BYTES_MAX
"""A longer response is refused without allocating memory for it."""


class AnswerTooLarge(RemoteError):
    """The server announced a response beyond ANSWER_BYTES_MAX; the connection was given up."""


class ConnectionBroken(Unreachable):
    """The connection to a server that had responded broke; the fate of the request is unknown."""


class CurrentServer(RemoteError):
    """The server waits for more bytes of a classic request: it uses the current framing, and has done nothing."""


class IggyRefusal(RemoteError, Refusal):
    """The server responded with a status for which there is a Reason; ``code`` is the status."""

    def __init__(self, message: str, reason: Reason, code: int) -> None:
        Exception.__init__(self, message)
        self.reason = reason
        self.code = code


class ReleaseChanged(Exception):
    """The server restarted as one of another release; nothing of the request was sent."""


Request = Command | SyncGroup
Asked = Request | Callable[[Release], Request]
"""A request, or a function that returns the request for a server of a release."""


class IggySocket:
    """A connection that is made when first used and made again after it broke.

    A request that may safely be repeated (``again=True``) is repeated ``retries`` times with doubling, jittered pauses
    when the connection breaks; a server that never responded at all is Unreachable at once. ``connections`` counts how
    often it was made: group membership ends with each.

    ``release`` is the server's. If it is None it is determined for each connection, since a server may restart with
    another release: it is 0.0.40 until the server requires a login, or says that it is Lading and which release it
    serves. With a later release the connection logs in as ``user`` when it is made. With ``tls`` it is encrypted.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = 30.0,
        retries: int = 6,
        release: Release | None = None,
        user: tuple[str, str] = ("iggy", "iggy"),
        tls: ClientTls | None = None,
    ) -> None:
        if timeout_s <= 0:
            raise SettingError(f"timeout_s is a number of seconds above 0, not {timeout_s!r}")
        if retries < 0:
            raise SettingError(f"retries is 0 or more, not {retries!r}")
        self.place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.connections = 0
        self._address = (host, port)
        self._timeout_s = timeout_s
        self._retries = retries
        self._answered = False
        self._socket: socket.socket | None = None
        self.release = release or UNTOLD
        self._is_given = release is not None
        """Whether the release was given, and is not determined."""
        self._user = user
        self._tls = tls
        self._framing = CurrentFrames() if release is CURRENT else None
        """The frames of the current generation; None for classic ones."""

    def request(self, asked: Asked, *, again: bool) -> bytearray:
        """Send a request and return the body of the response, in the form of ``release`` as it is then.

        Raises IggyRefusal or RemoteError for an error status, Unreachable if no response comes.
        """
        return self._request(asked, again)[1]

    def _request(self, asked: Asked, again: bool) -> tuple[Request, bytearray]:
        """Return the body of the response, and the request that was sent in the end."""
        sent: list[Request] = []

        def encode(release: Release) -> bytes:
            sent[:] = [asked(release) if callable(asked) else asked]
            return release.commands.encode_request(sent[0])

        def name() -> str:
            return self.release.commands.row_by_request[type(sent[0])].name

        try:
            body = self._request_body(name, encode, again)
        except IggyRefusal as refusal:
            if refusal.code != UNAUTHENTICATED or self._is_given:
                raise
            # users were set up after it connected, and nothing was done: the next connection logs in
            self.close()
            body = self._request_body(name, encode, again)
        return sent[0], body

    def request_frame(self, name: str, frame: bytes, release: Release, *, again: bool) -> bytearray:
        """Send a request that is encoded as a frame for ``release`` and return the body of the response.

        Errors use ``name`` for it. Raises ReleaseChanged if the server has another release by now, otherwise as
        ``request`` does.
        """

        def encode(now: Release) -> bytes:
            if now is not release:
                raise ReleaseChanged
            return frame

        return self._request_body(lambda: name, encode, again)

    def _request_body(self, name: Callable[[], str], encode: Callable[[Release], bytes], again: bool) -> bytearray:
        status, body = self._ask_with_retries(encode, again)
        if status:
            raise self._refusal_error(name(), status)
        return body

    def _refusal_error(self, name: str, status: int) -> RemoteError:
        """Return the error for a status other than 0."""
        if status == UNAUTHENTICATED:
            return IggyRefusal(f"the Iggy server at {self.place} asks for a login", Reason.UNAUTHENTICATED, status)
        meaning = describe_status(status, self.release)
        sentence = f"the Iggy server at {self.place} refused {name}: {meaning} ({status})"
        reason = reason_of(status, self.release)
        return RemoteError(sentence, code=status) if reason is None else IggyRefusal(sentence, reason, status)

    def ask(self, asked: Asked, *, again: bool = True) -> Any:
        """Send a request and return its parsed response (see ``CommandTable.parse_response``).

        Raises as ``request`` does, and IggyRefusal for an empty response, which means that the object does not exist.
        """
        command, body = self._request(asked, again)
        if not body and self.release.is_missing_empty and isinstance(command, GETTING):
            raise IggyRefusal(f"the Iggy server at {self.place} does not have it", _MISSING[type(command)], 0)
        return self.release.commands.parse_response(command, body)

    def _connect_known(self) -> socket.socket:
        """Return a new connection that is ready for requests: the release is known, and the user is logged in."""
        if self._is_given:
            connection = self._open()
            if self.release.has_names:
                self._log_in(connection, self.release)
            return connection
        if self._framing is not None:
            # it was of the current generation, which does not respond to classic requests
            connection = self._open()
            connection.settimeout(min(PROBE_S, self._timeout_s))
            try:
                self._log_in(connection, CURRENT)
                connection.settimeout(self._timeout_s)
                return connection
            except (OSError, MalformedMessage):
                self._framing, self.release = None, UNTOLD
        try:
            return self._ask_release(self._open())
        except CurrentServer:
            self.release, self._framing = CURRENT, CurrentFrames()
            connection = self._open()
            self._log_in(connection, CURRENT)
            return connection

    def _ask_release(self, connection: socket.socket) -> socket.socket:
        """Find out the server's release, and log in if it requires that. Raises RemoteError if the release cannot be
        found.
        """
        connection.sendall(UNTOLD.commands.encode_request(c.Stats()))
        status, body = self._receive_response(connection, self._probe(connection))
        if status == UNAUTHENTICATED:
            # nothing was done: log in, and repeat the request in the server's layout
            self._log_in(connection, LOGGING_IN)
            status, body = self._exchange(connection, LOGGING_IN.commands.encode_request(c.Stats()))
            found = None if status else release_of_stats(body)
            if found is None:
                raise RemoteError(
                    f"the Iggy server at {self.place} does not say its release; "
                    "name it by the option release, such as '0.9'"
                )
            self.release = found
            return connection
        self.release = UNTOLD
        if status:
            raise self._refusal_error("stats", status)
        # a listener of Lading may be set to a release with other bytes, and requires no login
        self.release = release_of_lading(body) or UNTOLD
        return connection

    def _probe(self, connection: socket.socket) -> bytes:
        """Return the first byte of the server's first response, or nothing if that takes long.

        Raises CurrentServer if it does not respond to a classic request, but to the current framing.
        """
        wait_s = min(PROBE_S, self._timeout_s)
        connection.settimeout(wait_s)
        try:
            # readable bytes on an encrypted connection need not be a response
            first = connection.recv(1)
        except TimeoutError:
            first = b""
            if speaks_current(self._connect, wait_s):
                # Lading supports both framings; if it was busy or just starting, it has responded to both by now
                connection.settimeout(wait_s / 10)
                try:
                    first = connection.recv(1)
                except TimeoutError:
                    raise CurrentServer(f"the Iggy server at {self.place} is of the current generation") from None
                if not first:
                    raise ConnectionResetError("the server closed the connection") from None
        else:
            if not first:
                raise ConnectionResetError("the server closed the connection")
        connection.settimeout(self._timeout_s)
        return first

    def _connect(self, timeout_s: float) -> socket.socket:
        return connect(self._address, timeout_s, None if self._tls is None else self._tls.make_context())

    def _log_in(self, connection: socket.socket, release: Release) -> None:
        name, password = self._user
        if self._framing is not None:
            self._framing = CurrentFrames()
            connection.sendall(self._framing.register(self._user))
            status, body = self._receive_response(connection)
            if status:
                meaning = describe_status(status, release)
                raise RemoteError(f"the Iggy server at {self.place} refused the login of {name!r} ({meaning})")
            self._framing.accept(body)
            return
        version = ".".join(map(str, (*release.version, 0, 0)[:3])) if release.version else None
        login = release.commands.encode_request(LoginUser(name, password, version))
        status, _ = self._exchange(connection, login)
        if status:
            raise RemoteError(
                f"the Iggy server at {self.place} refused the login of {name!r} ({describe_status(status, release)}); "
                "set the options username and password",
                code=status,
            )

    def _exchange(self, connection: socket.socket, frame: bytes) -> tuple[int, bytearray]:
        connection.sendall(frame)
        return self._receive_response(connection)

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask_with_retries(self, encode: Callable[[Release], bytes], again: bool) -> tuple[int, bytearray]:
        pause_s = FIRST_PAUSE_S
        for left in range(self._retries, -1, -1):
            sent = False
            try:
                connection = self._require_connection()
                frame = encode(self.release)
                if len(frame) > REQUEST_BYTES_MAX:
                    raise RemoteError(
                        f"a request of {len(frame)} bytes is larger than {REQUEST_BYTES_MAX}; send less at once"
                    )
                sent = True
                connection.sendall(frame if self._framing is None else self._framing.wrap(frame))
                return self._receive_response(connection)
            except OSError as failure:
                self.close()
                if not self._answered or not left or (sent and not again):
                    raise self._unreachable_error(failure, again) from None
            except BaseException:
                if sent:
                    # half a response may still be on the connection
                    self.close()
                raise
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def _require_connection(self) -> socket.socket:
        """Return the connection, made anew if the server has closed it since the last request."""
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()
        if self._socket is not None:
            return self._socket
        try:
            return self._connect_known()
        except BaseException:
            # a connection without its login must not be used
            self.close()
            raise

    def _open(self) -> socket.socket:
        """Make the connection anew."""
        self.close()
        self._socket = self._connect(self._timeout_s)
        self.connections += 1
        return self._socket

    def _receive_response(self, connection: socket.socket, first: bytes = b"") -> tuple[int, bytearray]:
        if self._framing is not None:
            answer = self._framing.receive(partial(_receive_bytes, connection), ANSWER_BYTES_MAX)
            self._answered = True
            return answer
        head = first + _receive_bytes(connection, RESPONSE_HEAD.size - len(first))
        found = None if self._answered else recognise_protocol(bytes(head))
        if found not in (None, IGGY_TCP):
            self.close()
            raise CorruptError(
                f"the server at {self.place} speaks {found}, not Iggy's TCP; name the address of an Iggy server "
                "(Lading prints it as iggy_tcp when it starts)"
            )
        status, size_bytes = RESPONSE_HEAD.unpack(head)
        self._answered = True
        if size_bytes > ANSWER_BYTES_MAX:
            raise AnswerTooLarge(
                f"the server at {self.place} announced a response of {size_bytes} bytes; "
                f"the limit is {ANSWER_BYTES_MAX}"
            )
        return status, _receive_bytes(connection, size_bytes)

    def _unreachable_error(self, failure: OSError, again: bool) -> Unreachable:
        cause = explain_failure(failure)
        if isinstance(failure, ssl.SSLError):
            return Unreachable(f"the Iggy server at {self.place}: TLS failed: {cause}")
        if not self._answered:
            return Unreachable(
                f"no Iggy server answers at {self.place} ({cause}); see that one listens there for TCP "
                f"(Lading prints its address as iggy_tcp when it starts){self._tls_advice(failure)}"
            )
        if isinstance(failure, TimeoutError):
            return Unreachable(f"the Iggy server at {self.place} did not answer within {self._timeout_s:g} s")
        tried = f"and {self._retries} retries did not bring it back" if again else "before the answer"
        return ConnectionBroken(f"the connection to the Iggy server at {self.place} broke {tried} ({cause})")

    def _tls_advice(self, failure: OSError) -> str:
        """Return advice about a server that accepts a connection and closes it on the first request."""
        is_closed = self._tls is None and isinstance(failure, ConnectionResetError | BrokenPipeError)
        return "; if it is one for TLS, set tls or ca_file" if is_closed else ""


def _receive_bytes(connection: socket.socket, size_bytes: int) -> bytearray:
    data = bytearray(size_bytes)
    timeout_s = connection.gettimeout()
    assert timeout_s is not None
    receive_exactly(connection, memoryview(data), timeout_s)
    return data
