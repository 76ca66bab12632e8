"""PUB commands of lent sockets: the lines that they begin with, and one append for all commands of a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ....dialects.nsq import publishing
from ....kernels import engine
from ....kernels.arrays import Bytes, Longs
from ....kernels.lent_layout import LINE_BYTES_MAX
from ....model.errors import LadingError
from ....runtime.metrics import Labels
from ...base.route_cache import RouteCache
from ...io.lent_sockets import PassBuffers
from .publication import Publication
from .publish import Publisher, PublishRoute

LINES_MAX: Final = 4096
"""At most this many different lines of lent sockets at a time; sockets with other lines are not lent."""
_FAILURE: Final = "E_PUB_FAILED"

Routes = RouteCache[bytes, PublishRoute]
LineKey = tuple[bytes, Routes]


class LentLine:
    """A PUB line with its route for one user, and the number of lent sockets whose requests begin with it."""

    __slots__ = ("key", "line_bytes", "route", "sockets_count", "version")

    def __init__(self, key: LineKey, line_bytes: int) -> None:
        self.key, self.line_bytes = key, line_bytes
        self.sockets_count = 0
        self.version = -1
        """The version of the topology for which the route is valid."""
        self.route: PublishRoute


class LentPublications:
    """The lines of one endpoint's lent sockets; see ``lent_sockets.LentProtocol``."""

    def __init__(
        self,
        publisher: Publisher,
        endpoint_name: str,
        requests: dict[Labels, float],
        on_answered: Callable[[], None],
    ) -> None:
        self.on_answered = on_answered
        self._publisher = publisher
        self._topology = publisher.routes.topology
        self._labels = (endpoint_name, "PUB", "OK")
        self._requests = requests
        self._answered = Publication(_FAILURE)
        self._answered.done = True
        self._numbers: dict[LineKey, int] = {}
        self._lines: list[LentLine | None] = []
        self._free: list[int] = []
        self._text: Bytes = np.zeros(0, np.uint8)
        self._sizes: Longs = np.zeros(0, np.int64)
        self._kernel: Any = None

    @property
    def is_ready(self) -> bool:
        """Whether the kernels are loaded. If they are not, it starts loading them."""
        kernels = engine.get_loaded(publishing.LENT_KERNEL_MODULE)
        if kernels is None or engine.get_loaded(publishing.KERNEL_MODULE) is None:
            return False
        self._kernel = kernels.receive_publications
        return True

    def add(self, line: bytes, route: PublishRoute, routes: Routes, version: int) -> int | None:
        """Return the number of a line for one more socket; None if there are too many lines, or this one is too long.

        The route comes from ``routes``, a user's, and is valid for ``version`` of the topology.
        """
        key = (line, routes)
        number = self._numbers.get(key)
        if number is None:
            if len(line) > LINE_BYTES_MAX or len(self._numbers) >= LINES_MAX:
                return None
            number = self._numbers[key] = self._add(key, line)
        lent = self._lines[number]
        assert lent is not None
        lent.sockets_count += 1
        lent.route, lent.version = route, version
        return number

    def _add(self, key: LineKey, line: bytes) -> int:
        if not self._free:
            begun = len(self._lines)
            count = max(2 * begun, 64)
            self._lines += [None] * (count - begun)
            self._free += range(count - 1, begun - 1, -1)
            self._text = np.concatenate((self._text, np.zeros((count - begun) * LINE_BYTES_MAX, np.uint8)))
            self._sizes = np.concatenate((self._sizes, np.zeros(count - begun, np.int64)))
        number = self._free.pop()
        at = number * LINE_BYTES_MAX
        self._lines[number] = LentLine(key, len(line))
        self._text[at : at + len(line)] = np.frombuffer(line, np.uint8)
        self._sizes[number] = len(line)
        return number

    def release(self, line: int) -> None:
        """Note that a socket with this line has been taken back."""
        lent = self._lines[line]
        assert lent is not None
        lent.sockets_count -= 1
        if not lent.sockets_count:
            self._lines[line] = None
            self._sizes[line] = 0
            del self._numbers[lent.key]
            self._free.append(line)

    def receive(self, epoll: int, buffers: PassBuffers, now_us: int) -> tuple[int, int, int, int, int]:
        """Read the sockets that are ready; see ``lent_fallback.receive_publications``."""
        result: tuple[int, int, int, int, int] = self._kernel(
            epoll, buffers.events, buffers.rows, self._text, self._sizes, buffers.scratch, buffers.files,
            buffers.spans, buffers.others, now_us,
        )  # fmt: skip
        return result

    def begin(self, line: int, source: Bytes, count: int, now_us: int) -> Publication | None:
        """Publish the ``count`` commands in ``source``, all with this line; return None if that is refused.

        Nothing is appended then: each client's own session gets its command, and sends the refusal.
        """
        lent = self._lines[line]
        # since then the topic may have been deleted, or created again under that name, or the right to publish revoked
        if lent is None or lent.version != self._topology.version:
            return None
        try:
            append = self._publisher.publish_alike(lent.route, source, count, lent.line_bytes, self, now_us)
        except LadingError:
            return None
        self._requests[self._labels] += count
        if append.done and append.error is None:
            self.on_answered()
            return self._answered
        publication = Publication(_FAILURE, on_answered=self.on_answered)
        append.add_done_callback(publication.settle)
        return publication
