"""PUB commands of one pass of the event loop, from any number of connections, as one append for each line.

Most clients wait for every response, so that a connection receives one command at a time. Those commands are kept until
the end of the pass; joined they are a run, which is one append to the log. The first connection of a pass does not wait
for others: most of the time no others come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from ....dialects.nsq.errors import fault_of
from ....dialects.nsq.publishing import RUN_BYTES_MAX
from ....model.errors import LadingError
from ....runtime.metrics import Labels
from ...base.inbox import Inbox
from ...base.services import now_us
from .publication import Publication
from .publish import Publisher, PublishRoute

log = logging.getLogger(__name__)

COMMAND_BYTES_MAX: Final = 16 << 10
"""A longer command is appended by itself: copying it would cost more than the shared append saves."""
_FAILURE: Final = "E_PUB_FAILED"


class GatheredPublisher(Protocol):
    """A client whose command waits for the end of the pass."""

    def abort(self) -> None:
        """Close the client's connection at once."""

    def wait_for_disk(self) -> None:
        """Take no more commands of the client until the disk has caught up."""


class GatheredCommands:
    """Commands with the same line that wait for the end of the pass, and the publication that they become."""

    __slots__ = ("commands", "publication", "publishers", "size_bytes")

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.publishers: list[GatheredPublisher] = []
        self.commands: list[bytearray] = []
        self.size_bytes = 0


class PublishCoalescer:
    """The gathered commands of this pass; one for all connections of an endpoint."""

    def __init__(
        self,
        publisher: Publisher,
        endpoint_name: str,
        requests: dict[Labels, float],
        at_end_of_pass: Callable[[Callable[[], None]], None],
        served: Callable[[], None],
    ) -> None:
        """``served`` is called when clients that wait for every response get theirs."""
        self._publisher = publisher
        self._endpoint_name = endpoint_name
        self._success_labels = (endpoint_name, "PUB", "OK")
        self._requests = requests
        self._at_end_of_pass = at_end_of_pass
        self.served = served
        self._answered = Publication(_FAILURE)
        self._answered.done = True
        self._gathered: dict[bytes, GatheredCommands] = {}
        self._alone: object = None
        """The only publisher since the last flush: its object ``who``, or None."""

    def publish(
        self,
        route: PublishRoute,
        line: bytes,
        line_bytes: int,
        inbox: Inbox,
        size_bytes: int,
        who: GatheredPublisher,
        received_us: int,
    ) -> Publication:
        """Publish the PUB command in the first ``size_bytes`` of ``inbox``, with this ``line``, in this pass.

        ``who`` is as in ``Appender.append``: one object for all messages of a client, so that a lone client is
        recognised.
        """
        if self._alone is None or self._alone is who:
            self._alone = who
            try:
                source = inbox.array[:size_bytes]
                append = self._publisher.publish_alike(route, source, 1, line_bytes, who, received_us)
            except LadingError as error:
                return self._refuse(error, Publication(_FAILURE, on_answered=self.served), 1)
            self._requests[self._success_labels] += 1
            if append.done:
                self.served()
                return self._answered
            publication = Publication(_FAILURE, on_answered=self.served)
            append.add_done_callback(publication.settle)
            if self._publisher.is_congested:
                who.wait_for_disk()
            return publication
        gathered = self._gathered.get(line)
        if gathered is None or gathered.size_bytes > RUN_BYTES_MAX - COMMAND_BYTES_MAX:
            if gathered is not None:
                self.flush()
            elif not self._gathered:
                self._at_end_of_pass(self.flush)
            gathered = self._gathered[line] = GatheredCommands(Publication(_FAILURE, on_answered=self.served))
        gathered.publishers.append(who)
        gathered.commands.append(inbox.data[:size_bytes])
        gathered.size_bytes += size_bytes
        return gathered.publication

    @property
    def waiting(self) -> bool:
        """Whether there are gathered commands that are not appended yet."""
        return bool(self._gathered)

    def flush(self) -> None:
        """Append the gathered commands."""
        gathered, self._gathered, self._alone = self._gathered, {}, None
        for line, each in gathered.items():
            try:
                self._append(line, each)
            except Exception:
                # the clients of other lines still wait for theirs
                log.exception("publications that were gathered could not be appended")

    def _append(self, line: bytes, gathered: GatheredCommands) -> None:
        publication, count = gathered.publication, len(gathered.commands)
        source = np.frombuffer(b"".join(gathered.commands) if count > 1 else gathered.commands[0], np.uint8)
        try:
            # the topic may have been deleted since the commands came
            route = self._publisher.routes.get(line) or self._publisher.find_route(line)
            append = self._publisher.publish_alike(route, source, count, len(line), self, now_us())
        except LadingError as error:
            self._refuse(error, publication, count)
            return
        except BaseException:
            # no response would be certain: disconnect the clients, as the loop does if a connection's own work fails
            for publisher in gathered.publishers:
                publisher.abort()
            raise
        self._requests[self._success_labels] += count
        append.add_done_callback(publication.settle)
        if not append.done and self._publisher.is_congested:
            for publisher in gathered.publishers:
                publisher.wait_for_disk()

    def _refuse(self, error: LadingError, publication: Publication, count: int) -> Publication:
        fault = fault_of(error, _FAILURE)
        self._requests[self._endpoint_name, "refused", fault.code] += count
        publication.finish(fault)
        return publication
