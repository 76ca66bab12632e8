"""One simulated life of a broker, from one seed: clients, clocks that jump, a slow, full, failing or cut off disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

from lading.broker.core.pending_append import Append
from lading.broker.core.pending_result import PendingResult
from lading.broker.core.topics import namespace
from lading.broker.core.topology import Partition
from lading.broker.iggy.poll import Next
from lading.broker.kafka.transactional_producer import Caller
from lading.dialects.native import protocol as native_row
from lading.model.errors import Refusal
from tests.broker.kafka_batches import produce
from tests.broker.room import CONSUMER, append, block, read, rows
from tests.simulation.history import History, SeenMessages, SentMessages, SentTransaction
from tests.simulation.life import SimulatedLife

STEPS = 70
SEGMENT_BYTES = 2_000
FAST = Path("/dev/shm")
PRODUCER_IDS = 1_000
TRANSACTION_US = 600_000_000
TRANSACTIONS_FROM = 1_000_000
"""Seeds from here on have transactions too, so that those below, some of which found something, stay what they were."""


@dataclass(slots=True)
class Writer:
    """A client that sends one append at a time; one that numbers them sends again until it knows."""

    name: str
    send: Callable[[Partition, SentMessages, int], Append]
    repeats: bool
    sequence: int = 0
    waiting: SentMessages | None = None
    pending: Append | None = None


@dataclass(slots=True)
class Bank:
    """A client of Kafka's transactions: one at a time, ended when all of it is acknowledged."""

    caller: Caller | None = None
    transaction: SentTransaction | None = None
    sequence: int = 0
    appends: list[Append] = field(default_factory=list)
    ending: PendingResult[None] | None = None


class World(SimulatedLife):
    """A broker, its clients of Iggy, Kafka and Lading, and what happened."""

    def __init__(self, seed: int, data: Path) -> None:
        self.history = History()
        super().__init__(seed, data)
        self.broker.at_once.create_stream(None, "s", now_us=self.now_us)
        with patch(f"{namespace.__name__}.uuid4", lambda: UUID(int=self.random.getrandbits(128), version=4)):
            self.broker.at_once.create_topic("s", None, "t", 1, now_us=self.now_us)
        self.settle()
        self.writers = [
            *(Writer(f"iggy {number}", self._send_iggy, repeats=False) for number in range(2)),
            *(Writer(f"kafka {PRODUCER_IDS + number}", self._send_kafka, repeats=True) for number in range(2)),
            *(Writer(f"native {number}", self._send_native, repeats=True) for number in range(1, 3)),
        ]
        self.bank, self.has_transactions = Bank(), seed >= TRANSACTIONS_FROM

    @property
    def partition(self) -> Partition:
        return self.broker.topology.resolve("s.t").partition(0)

    def lose_connections(self) -> None:
        for writer in self.writers:
            writer.pending = None
            if not writer.repeats:
                writer.waiting = None
        self.bank = Bank()

    # -- clients

    def _send_iggy(self, partition: Partition, sent: SentMessages, sequence: int) -> Append:
        return append(self.broker, partition, *sent.payloads, now_us=self.now_us)

    def _send_kafka(self, partition: Partition, sent: SentMessages, sequence: int) -> Append:
        producer = int(sent.writer.split()[1])
        return produce(self.broker, partition, *sent.payloads, producer=producer, sequence=sequence, flush=False)

    def _send_native(self, partition: Partition, sent: SentMessages, sequence: int) -> Append:
        identity = int(sent.writer.split()[1]).to_bytes(16, "big")
        data = block(*sent.payloads, writer=identity, sequence=sequence)
        return self.broker.native_appender.append(partition, memoryview(data), now_us=self.now_us)

    def send(self) -> None:
        writer = self.random.choice(self.writers)
        if writer.pending is not None:
            return
        if writer.waiting is None:
            payloads = [self.make_payload() for _ in range(self.random.randint(1, 3))]
            writer.waiting = SentMessages(writer.name, payloads, self.step)
            self.history.sent.append(writer.waiting)
        sent = writer.waiting
        try:
            pending = writer.send(self.partition, sent, writer.sequence)
        except Refusal:
            # nothing of it was taken; whoever numbers sends it again, the others give it up
            if not writer.repeats:
                writer.waiting = None
            return
        writer.pending = pending
        pending.add_done_callback(lambda done: self._on_done(writer, sent, done))

    def _on_done(self, writer: Writer, sent: SentMessages, done: Append) -> None:
        if writer.waiting is not sent:
            return
        writer.pending = None
        if done.error is None:
            sent.acknowledged_step, sent.base_offset = self.step, done.base_offset
            writer.sequence += len(sent.payloads) if writer.name.startswith("kafka") else 1
            writer.waiting = None
        elif not writer.repeats:
            writer.waiting = None

    def transact(self) -> None:
        """Take the next step of a transaction; what is refused ends it, and its outcome is unknown."""
        bank = self.bank
        try:
            if bank.caller is None:
                found = self.broker.producers.init_producer_id("bank", TRANSACTION_US, None, now_us=self.now_us)
                if found.done:
                    # otherwise what the client before left open is being aborted, and this one asks again
                    self.bank = Bank(Caller("bank", found.value.producer_id, found.value.epoch))
            elif bank.transaction is None:
                self.broker.producers.add_partitions(bank.caller, [self.partition], now_us=self.now_us)
                bank.transaction = SentTransaction(begun_step=self.step)
                self.history.transactions.append(bank.transaction)
            elif bank.ending is not None:
                # it waits to be told the end
                return
            elif len(bank.appends) < 3 and self.random.random() < 0.6:
                self._produce_in(bank.caller, bank.transaction)
            elif all(one.done for one in bank.appends):
                self._end(bank.caller, bank.transaction)
        except Refusal:
            self.bank = Bank()

    def _produce_in(self, caller: Caller, transaction: SentTransaction) -> None:
        bank, payloads = self.bank, [self.make_payload() for _ in range(self.random.randint(1, 2))]
        transaction.payloads += payloads
        bank.appends.append(
            produce(
                self.broker, self.partition, *payloads, producer=caller.producer_id, epoch=caller.epoch,
                sequence=bank.sequence, transactional=True, flush=False,
            )
        )  # fmt: skip
        bank.sequence += len(payloads)

    def _end(self, caller: Caller, transaction: SentTransaction) -> None:
        is_whole = all(one.error is None for one in self.bank.appends)
        is_committed = is_whole and self.random.random() < 0.7
        bank = self.bank
        bank.ending = self.broker.producers.end(caller, is_committed, now_us=self.now_us)

        def on_ended(ended: PendingResult[None]) -> None:
            if ended.error is None:
                transaction.is_committed, transaction.ended_step = is_committed, self.step
            if self.bank is bank:
                self.bank = Bank(caller, sequence=bank.sequence) if ended.error is None and is_whole else Bank()

        bank.ending.add_done_callback(on_ended)

    def read(self) -> None:
        first = self.random.randint(0, self.partition.log.high_watermark)
        found = rows(read(self.broker, self.partition, first, reader=native_row.ALL_STATES))
        self.history.seen.append(SeenMessages(self.step, first, self.partition.log.last_stable_offset, found))

    def poll(self) -> None:
        polled = self.broker.poller.poll(
            self.partition.topic, CONSUMER, None, 0, Next(), 5, True, max_bytes=1 << 20, now_us=self.now_us
        )
        self.history.polled.append([offset for offset, _ in rows(polled.reading)] if polled.reading else [])

    def finish_clients(self) -> None:
        """End what clients left open: it is aborted when the next one takes its name."""
        while self.has_transactions and self.bank.caller is None:
            World.transact(self)
            self.settle()

    # -- what happens

    def happen(self) -> None:
        """One step."""
        self.step += 1
        chance = self.random.random()
        if chance < 0.12 and self.has_transactions:
            self.transact()
        elif chance < 0.42:
            self.send()
        elif chance < 0.56:
            self.broker.appender.flush()
        elif chance < 0.72:
            self.commit.complete()
        elif chance < 0.80:
            self.read()
        elif chance < 0.86:
            self.poll()
        elif chance < 0.93:
            self.now_us += self.random.choice((1_000, 50_000, 2_000_000))
            if self.random.random() < 0.2:
                self.set_clock()
            self.tick()
        elif chance < 0.96:
            self.fail_disk()
        else:
            self.disk.failure = None
            self.crash(power_is_cut=self.random.random() < 0.6)

    def run(self) -> None:
        for _ in range(STEPS):
            self.happen()
        self.disk.failure = None
        self.crash(power_is_cut=True)
        for _ in range(3):
            # who numbers what it sends learns what became of it
            for _ in range(3 * len(self.writers)):
                self.step += 1
                self.send()
            self.settle()
        self.finish_clients()
        self.step += 1
        self.poll()
        found = rows(read(self.broker, self.partition, reader=native_row.ALL_STATES))
        self.history.last = SeenMessages(self.step, 0, self.partition.log.last_stable_offset, found)
        faults = self.history.faults(dict(found))
        if faults:
            raise AssertionError("; ".join(faults[:4]))
