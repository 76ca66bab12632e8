"""The writing side of a mirror: works that become visible exactly once, if the target can promise that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..client.arrived import skip_arrived
from ..client.delivery import AtLeastOnce, DeliveryTarget, Task, choose_commit_protocol, refuses_message
from ..model.errors import LadingError, LimitExceeded, LocalError, Refusal
from ..transports.fitting import (
    MessageRefused,
    capabilities_at,
    find_oversized,
    find_refused,
    find_unholdable,
    reduce_to_target,
)
from ..transports.interface import HeaderAwareTransport, Transport
from ..transports.transactions import TransactionalTransport
from .settings import MirrorSettings
from .source import Stretch
from .state import Work

if TYPE_CHECKING:
    import pyarrow as pa

KEY_PREFIX: Final = "mirror/"


class UnmirroredMessage(NamedTuple):
    """A message that the target refused, by its place at the source, and why."""

    partition: int
    offset: int
    sentence: str


class TopicTarget:
    """One topic of the target."""

    def __init__(
        self, transport: Transport, topic: str, settings: MirrorSettings, mirror: str, *, is_queue: bool
    ) -> None:
        """``mirror`` is the id of the mirror, by which a target recognises its works."""
        self.topic = topic
        self._transport = transport
        self._settings = settings
        self._is_queue = is_queue
        self._mirror = mirror
        id_ = f"lading-mirror-{mirror}-{topic}" if isinstance(transport, TransactionalTransport) else None
        self._protocol = choose_commit_protocol(transport, DeliveryTarget(settings.target, topic, KEY_PREFIX, id_))
        self._capabilities = capabilities_at(transport, topic)
        self._takes_headers = not isinstance(transport, HeaderAwareTransport) or transport.takes_headers(topic)
        if settings.carrier == "off" and not transport.capabilities.order:
            raise LocalError(
                f"{settings.target}: without carriers the order of headers is lost where the server shuffles them; "
                "mirror with --carrier on, or leave out keeps_order=false"
            )

    @property
    def is_exact(self) -> bool:
        """Whether a repeated work becomes visible only once, whatever part of it was sent before."""
        return not isinstance(self._protocol, AtLeastOnce)

    @property
    def promise(self) -> str:
        """Return in words how often a message arrives."""
        if self.is_exact:
            return "exactly once"
        return "at least once" if self._is_queue else "once (after a crash some twice, if others write there too)"

    def show(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what a plain reader of the target sees of messages."""
        return reduce_to_target(batch, self._capabilities, headers=self._takes_headers)

    def split_refused(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, list[str]]:
        """Return the messages that the target can hold, those that it cannot, and why."""
        import numpy as np
        import pyarrow as pa

        refused = find_unholdable(batch, self._capabilities)
        left = np.delete(np.arange(batch.num_rows), [row for row, _ in refused])
        if left.size and self._capabilities.bound is not None:
            rest = batch.take(left)
            # what is left out for want of a carrier takes no room
            sent = rest if self._settings.carrier == "on" else self.show(rest)
            refused += [(int(left[at]), sentence) for at, sentence in find_oversized(sent, self._capabilities)]
            refused.sort()
        keep = np.ones(batch.num_rows, np.bool_)
        keep[[row for row, _ in refused]] = False
        return batch.filter(pa.array(keep)), batch.filter(pa.array(~keep)), [sentence for _, sentence in refused]

    def send(
        self,
        work: Work,
        stretches: Sequence[Stretch],
        *,
        is_repeated: bool,
        note_refused: Callable[[Sequence[UnmirroredMessage]], None],
    ) -> list[UnmirroredMessage]:
        """Send a work; ``is_repeated`` says that some of it may have been sent before.

        Returns the messages that the target refused, which ``on_refused="skip"`` leaves out; otherwise the first of
        them is LimitExceeded, with its place at the source. ``note_refused`` is called with them before the others
        become visible.
        """
        if self._is_queue and (sentence := self._find_refused(stretches)):
            # what a queue has taken of a work it cannot give back, so nothing of it is sent
            raise LimitExceeded(sentence)
        name = f"{self._mirror}/{work.name}"
        may_look_back = not self.is_exact and not self._is_queue
        refused: list[UnmirroredMessage] = []
        try:
            sent = self._protocol.write(
                self._parts_to_send(work, stretches, is_repeated and may_look_back), Task(name, 0)
            )
        except (LimitExceeded, Refusal) as error:
            if not refuses_message(error):
                raise
            if self._settings.on_refused != "skip":
                raise self._explain(error, stretches) from None

            def leave_out(partition: int, message: pa.RecordBatch, error: LadingError) -> None:
                # a queue gets one stretch at a time, all of it as its partition 0
                origin = stretches[0].partition if self._is_queue else partition
                refused.append(UnmirroredMessage(origin, message.column("offset")[0].as_py(), str(error)))

            parts = self._parts_to_send(work, stretches, may_look_back)
            sent = self._protocol.write(parts, Task(name, 0), on_refused=leave_out)
        if refused:
            note_refused(refused)
        self._protocol.commit(name, [sent])
        return refused

    def _parts_to_send(
        self, work: Work, stretches: Sequence[Stretch], look_back: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        parts = (
            (0 if self._is_queue else stretch.partition, batch) for stretch in stretches for batch in stretch.batches
        )
        ends = {one.partition: one.target_end for one in work.ranges if one.target_end is not None}
        return skip_arrived(self._transport, self.topic, ends, parts) if look_back else parts

    def _explain(self, error: LimitExceeded | Refusal, stretches: Sequence[Stretch]) -> LimitExceeded:
        """Return the error with the place of the message at the source."""
        sentence = self._find_refused(stretches) or self._locate(error, stretches)
        if sentence is not None:
            return LimitExceeded(sentence)
        places = ", ".join(f"partition {one.partition} from offset {one.first}" for one in stretches)
        return LimitExceeded(
            f"{self._settings.target}, topic {self.topic!r}: {error} (read from {places}); raise that limit and run "
            "this again, or leave such messages out with --on-refused skip"
        )

    def _locate(self, error: LimitExceeded | Refusal, stretches: Sequence[Stretch]) -> str | None:
        """Return a sentence about the message that the target refused; None if the refusal does not name it."""
        if not isinstance(error, MessageRefused) or error.row is None:
            return None
        row = error.row
        for batch in (batch for one in stretches if one.partition == error.partition for batch in one.batches):
            if row < batch.num_rows:
                return self._describe_refused(error.partition or 0, batch.column("offset")[row].as_py(), str(error))
            row -= batch.num_rows
        return None

    def _describe_refused(self, partition: int, offset: int, sentence: str) -> str:
        return (
            f"{self._settings.target}, topic {self.topic!r}: cannot take partition {partition}, "
            f"offset {offset} of the source: {sentence}; mirror the others with --on-refused skip"
        )

    def _find_refused(self, stretches: Sequence[Stretch]) -> str | None:
        """Return a sentence about the first message that the target cannot hold, None if it can hold all."""
        for stretch in stretches:
            for batch in stretch.batches:
                for row, sentence in find_refused(batch, self._capabilities)[:1]:
                    offset = batch.column("offset")[row].as_py()
                    return self._describe_refused(stretch.partition, offset, sentence)
        return None
