"""PUB commands of lent sockets: the lines that they begin with, and one append for all commands of a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ....dialects.nsq import publishing
from ....kernels import engine
from ....kernels.arrays import Longs
from ....kernels.lent_layout import LINE
from ....model.errors import LadingError
from ....runtime.metrics import Labels
from ...base.route_cache import RouteCache
from ...io.lent_lines import LentLines
from ...io.lent_sockets import LentRequests, PassBuffers
from .publication import Publication
from .publish import Publisher, PublishRoute

_FAILURE: Final = "E_PUB_FAILED"

Routes = RouteCache[bytes, PublishRoute]


class LentLine(NamedTuple):
    """The meaning of a PUB line for one user."""

    route: PublishRoute
    version: int
    """The version of the topology for which the route is valid."""
    line_bytes: int


class LentPublications:
    """The lines of one endpoint's lent sockets; see ``lent_sockets.LentProtocol``."""

    fact_columns = 0
    has_own_responses = False

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
        self._lines: LentLines[LentLine] = LentLines()
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
        return self._lines.add((line, routes), line, LentLine(route, version, len(line)))

    def release(self, line: int) -> None:
        """Note that a socket with this line has been taken back."""
        self._lines.release(line)

    def receive(self, epoll: int, buffers: PassBuffers, now_us: int) -> tuple[int, int, int, int, int]:
        """Read the sockets that are ready; see ``lent_fallback.receive_publications``."""
        result: tuple[int, int, int, int, int] = self._kernel(
            epoll, buffers.events, buffers.rows, self._lines.text, self._lines.sizes, buffers.scratch, buffers.files,
            buffers.spans, buffers.others, now_us,
        )  # fmt: skip
        return result

    def list_kinds(self, buffers: PassBuffers, count: int) -> Longs:
        """Return the lines of the first ``count`` requests."""
        lines: Longs = buffers.rows[buffers.files[:count], LINE]
        return lines

    def begin(self, kind: int, requests: LentRequests, now_us: int) -> Publication | None:
        """Publish commands that all have the line ``kind``; return None if that is refused.

        Nothing is appended then: each client's own session gets its command, and sends the refusal.
        """
        lent, count = self._lines.find(kind), len(requests.files)
        # since then the topic may have been deleted, or created again under that name, or the right to publish revoked
        if lent is None or lent.version != self._topology.version:
            return None
        try:
            append = self._publisher.publish_alike(lent.route, requests.join(), count, lent.line_bytes, self, now_us)
        except LadingError:
            return None
        self._requests[self._labels] += count
        if append.done and append.error is None:
            self.on_answered()
            return self._answered
        publication = Publication(_FAILURE, on_answered=self.on_answered)
        append.add_done_callback(publication.settle)
        return publication
