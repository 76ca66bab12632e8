"""The requests of one QUIC connection before its session has them: half ones by stream, whole ones in their order."""

from __future__ import annotations

from collections import deque


class ArrivingRequest:
    """The bytes received on a stream."""

    __slots__ = ("parts", "size_bytes")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size_bytes = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.parts.append(data)
        self.size_bytes += len(data)


class StreamRequests:
    """Requests by the ids of their streams, and the memory they take."""

    def __init__(self) -> None:
        self.arriving: dict[int, ArrivingRequest] = {}
        """Incomplete requests, by the id of their stream."""
        self.whole: deque[tuple[int, ArrivingRequest]] = deque()
        """Requests that wait for the session, by stream."""
        self.held_bytes = 0
        """Memory of incomplete and complete requests."""
        self.whole_bytes = 0

    def add(self, stream_id: int, data: bytes) -> int:
        """Add what was received on a stream; return how many bytes it holds."""
        request = self.arriving.get(stream_id)
        if request is None:
            request = self.arriving[stream_id] = ArrivingRequest()
        request.add(data)
        self.held_bytes += len(data)
        return request.size_bytes

    def complete(self, stream_id: int) -> None:
        """Note that the stream has ended, so that its request is complete."""
        request = self.arriving.pop(stream_id)
        self.whole.append((stream_id, request))
        self.whole_bytes += request.size_bytes

    def drop(self, stream_id: int) -> bool:
        """Drop the request on a stream. Return whether an incomplete one was there."""
        request = self.arriving.pop(stream_id, None)
        if request is None:
            return False
        self.held_bytes -= request.size_bytes
        return True

    def take(self) -> tuple[int, bytes]:
        """Remove the request that has been whole for longest; return its stream and its bytes."""
        stream_id, request = self.whole.popleft()
        self.held_bytes -= request.size_bytes
        self.whole_bytes -= request.size_bytes
        return stream_id, b"".join(request.parts)

    def find_longest(self) -> int:
        """Return the stream on which most has arrived of those that have not ended; there must be one."""
        return max(self.arriving, key=lambda stream_id: self.arriving[stream_id].size_bytes)

    def clear(self) -> None:
        """Drop the requests of all streams, because the connection has ended."""
        self.arriving.clear()
        self.whole.clear()
