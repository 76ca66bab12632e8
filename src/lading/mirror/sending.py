"""The writing side of a mirror: works that become visible once, as far as the target can promise it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ..client.delivery import AtLeastOnce, DeliveryTarget, Task, choose_commit_protocol
from ..model.errors import LimitExceeded, LocalError
from ..model.scan_request import ScanRequest
from ..transports.fitting import find_unholdable, reduce_to_target
from ..transports.interface import HeaderAwareTransport, TransactionalTransport, Transport
from .settings import MirrorSettings
from .source import Stretch
from .state import Range, Work

if TYPE_CHECKING:
    import pyarrow as pa

KEY_PREFIX: Final = "mirror/"
COMPARED: Final = ("key", "headers", "payload")


class TopicTarget:
    """One topic of the target."""

    def __init__(
        self, transport: Transport, topic: str, settings: MirrorSettings, mirror: str, *, is_queue: bool
    ) -> None:
        """``mirror`` is the id of the mirror, under which a target knows its works again."""
        self.topic = topic
        self._transport = transport
        self._settings = settings
        self._is_queue = is_queue
        self._mirror = mirror
        id_ = f"lading-mirror-{mirror}-{topic}" if isinstance(transport, TransactionalTransport) else None
        self._protocol = choose_commit_protocol(transport, DeliveryTarget(settings.target, topic, KEY_PREFIX, id_))
        self._attempts = 0
        self._takes_headers = not isinstance(transport, HeaderAwareTransport) or transport.takes_headers(topic)
        if settings.carrier == "off" and not transport.capabilities.order:
            raise LocalError(
                f"{settings.target}: without carriers the order of headers is lost where the server shuffles them; "
                "mirror with --carrier on, or leave out keeps_order=false"
            )

    @property
    def is_exact(self) -> bool:
        """Whether a work that is repeated becomes visible once, whatever was sent of it before."""
        return not isinstance(self._protocol, AtLeastOnce)

    @property
    def promise(self) -> str:
        """Return in words how often a message arrives."""
        if self.is_exact:
            return "exactly once"
        return "at least once" if self._is_queue else "once (after a crash some twice, if others write there too)"

    def show(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what a plain reader of the target sees of messages."""
        return reduce_to_target(batch, self._transport.capabilities, headers=self._takes_headers)

    def split_refused(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, list[str]]:
        """Return the messages that the target can hold, those that it cannot, and why."""
        import numpy as np
        import pyarrow as pa

        refused = find_unholdable(batch, self._transport.capabilities)
        keep = np.ones(batch.num_rows, np.bool_)
        keep[[row for row, _ in refused]] = False
        return batch.filter(pa.array(keep)), batch.filter(pa.array(~keep)), [sentence for _, sentence in refused]

    def send(self, work: Work, stretches: Sequence[Stretch], *, is_repeated: bool) -> None:
        """Send a work; ``is_repeated`` says that some of it may have been sent before."""
        if self._is_queue and (sentence := self._find_refused(stretches)):
            # what a queue has taken of a work it cannot give back, so nothing of it is sent
            raise LimitExceeded(sentence)
        name = f"{self._mirror}/{work.number}"
        self._attempts += 1
        parts = self._parts(work, stretches, is_repeated and not self.is_exact and not self._is_queue)
        try:
            sent = self._protocol.write(parts, Task(name, 0, self._attempts))
        except LimitExceeded as error:
            raise self._explain(error, stretches) from None
        self._protocol.commit(name, [sent])

    def _parts(self, work: Work, stretches: Sequence[Stretch], look_back: bool) -> Iterator[tuple[int, pa.RecordBatch]]:
        ranges = {one.partition: one for one in work.ranges}
        for stretch in stretches:
            done = self._count_arrived(ranges[stretch.partition], stretch) if look_back else 0
            for batch in stretch.batches:
                left = batch.slice(min(done, batch.num_rows))
                done -= batch.num_rows - left.num_rows
                if left.num_rows:
                    yield 0 if self._is_queue else stretch.partition, left

    def _count_arrived(self, one: Range, stretch: Stretch) -> int:
        """Return how many messages of a stretch are at the target already: those that begin what was added since."""
        if one.target_end is None:
            return 0
        arrived = self._read_back(one.partition, one.target_end, stretch.count)
        wanted = (row for batch in stretch.batches for row in batch.select(COMPARED).to_pylist())
        count = 0
        for row, there in zip(wanted, arrived, strict=False):
            if row != there:
                break
            count += 1
        return count

    def _read_back(self, partition: int, first: int, count: int) -> Iterator[dict[str, object]]:
        at = first
        while count > 0:
            fetched = self._transport.fetch(self.topic, partition, at)
            for part in fetched.decode(ScanRequest(at, fields=frozenset(COMPARED)), states="all"):
                columns = [part.columns[name].to_pylist() for name in COMPARED]
                for values in zip(*columns, strict=True):
                    yield dict(zip(COMPARED, values, strict=True))
                count -= part.count
            if fetched.end_offset <= at:
                return
            at = fetched.end_offset

    def _explain(self, error: LimitExceeded, stretches: Sequence[Stretch]) -> LimitExceeded:
        """Return the error with the place of the message at the source."""
        sentence = self._find_refused(stretches)
        if sentence is not None:
            return LimitExceeded(sentence)
        places = ", ".join(f"partition {one.partition} from offset {one.first}" for one in stretches)
        return LimitExceeded(
            f"{self._settings.target}, topic {self.topic!r}: {error} (read from {places}); raise the limit there"
        )

    def _find_refused(self, stretches: Sequence[Stretch]) -> str | None:
        """Return a sentence about the first message that the target cannot hold, None if it can hold all."""
        for stretch in stretches:
            for batch in stretch.batches:
                for row, sentence in find_unholdable(batch, self._transport.capabilities)[:1]:
                    offset = batch.column("offset")[row].as_py()
                    return (
                        f"{self._settings.target}, topic {self.topic!r}: cannot take partition {stretch.partition}, "
                        f"offset {offset} of the source: {sentence}; mirror the others with --on-refused skip"
                    )
        return None
