"""One simulated life with clients that do a work in a native transaction, die, and do the same work again.

A client sends blocks in a transaction and commits it under the key of the work. It dies after it sent anything, aborts,
or never learns that its commit succeeded, and its next life sends the same again, in another transaction: under the
same writer id in some works, as clients do that make it of what they do, and under a new one in others. Each work has
to be there once in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from lading.broker.core.pending_append import Append
from lading.model.errors import Refusal
from tests.broker.room import block
from tests.simulation.history import SentTransaction
from tests.simulation.world import World

WORKS_FROM: Final = 5_000_000
"""Seeds from here on do works, and have Kafka's transactions too."""
TIMEOUTS_US: Final = (1_000_000, 600_000_000)
CLOCK_JUMP_US_MAX: Final = 2 * 10**10
STEPS_TO_FINISH_MAX: Final = 200


@dataclass(slots=True)
class Attempt:
    """One life of a client: its transaction, and how many blocks are acknowledged."""

    transaction_id: int
    writer_id: bytes
    acknowledged: int = 0
    pending: Append | None = None


@dataclass(slots=True)
class Work:
    """Blocks that become visible together under one key; ``writer_id`` is that of every life, None for new ones."""

    number: int
    writer_id: bytes | None
    blocks: list[list[bytes]]
    record: SentTransaction = field(default_factory=SentTransaction)
    attempt: Attempt | None = None

    @property
    def key(self) -> str:
        """The key that it is committed under."""
        return f"work {self.number}"


class WorkWorld(World):
    """A broker, the clients of ``World``, and one that works in transactions and dies."""

    def __init__(self, seed: int, data: Path) -> None:
        self.attempts = self.deaths = self.finished = 0
        super().__init__(seed, data)
        self.work = self._make_work()

    def lose_connections(self) -> None:
        super().lose_connections()
        if self.work.attempt is not None:
            # half of them survive the broker and send again what was not acknowledged
            self.work.attempt.pending = None
            if self.random.random() < 0.5:
                self._die()

    def transact(self) -> None:
        if self.random.random() < 0.3:
            super().transact()
            return
        for _ in range(self.random.randint(1, 4)):
            self._step()

    def finish_clients(self) -> None:
        super().finish_clients()
        last = self.work
        for _ in range(STEPS_TO_FINISH_MAX):
            if self.work is not last:
                break
            self._step()
            self.settle()
        assert self.work is not last, f"{last.key} was not finished in {STEPS_TO_FINISH_MAX} steps"
        # what a life left open is aborted, so that readers get past it, however the clock was set before a restart
        self.now_us += max(TIMEOUTS_US) + CLOCK_JUMP_US_MAX
        self.settle()

    def _make_work(self) -> Work:
        number = self.finished
        is_named = self.random.random() < 0.7
        writer_id = (1 << 100 | number).to_bytes(16, "big") if is_named else None
        blocks = [
            [self.make_payload() for _ in range(self.random.randint(1, 3))] for _ in range(self.random.randint(1, 4))
        ]
        work = Work(number, writer_id, blocks, SentTransaction([*chain(*blocks)], begun_step=self.step))
        self.history.transactions.append(work.record)
        return work

    def _step(self) -> None:
        work, attempt = self.work, self.work.attempt
        chance = self.random.random()
        try:
            if attempt is None:
                self._begin()
            elif chance < 0.08:
                self._die()
            elif attempt.acknowledged < len(work.blocks):
                self._send(attempt)
            elif chance < 0.2:
                self.broker.native_transactions.abort([attempt.transaction_id], now_us=self.now_us)
                self._die()
            else:
                self._commit(attempt, is_told=chance < 0.8)
        except Refusal:
            self._die()

    def _begin(self) -> None:
        transaction_id = self.broker.native_transactions.begin(
            scope=self.work.key if self.random.random() < 0.5 else "",
            timeout_us=self.random.choice(TIMEOUTS_US),
            now_us=self.now_us,
        )
        self.attempts += 1
        writer_id = self.work.writer_id or self.random.getrandbits(127).to_bytes(16, "big")
        self.work.attempt = Attempt(transaction_id, writer_id)

    def _send(self, attempt: Attempt) -> None:
        if attempt.pending is not None and self.random.random() < 0.8:
            # it waits for the answer; now and then it sends the same again before it came
            return
        number = attempt.acknowledged
        header = {"writer": attempt.writer_id, "sequence": number, "transaction": attempt.transaction_id}
        data = block(*self.work.blocks[number], **header)  # type: ignore[arg-type]
        pending = attempt.pending = self.broker.native_appender.append(
            self.partition, memoryview(data), now_us=self.now_us
        )

        def on_done(done: Append) -> None:
            if attempt.pending is pending:
                attempt.pending = None
                if done.error is None:
                    attempt.acknowledged = max(attempt.acknowledged, number + 1)

        pending.add_done_callback(on_done)

    def _commit(self, attempt: Attempt, *, is_told: bool) -> None:
        self.broker.native_transactions.commit(self.work.key, [attempt.transaction_id], now_us=self.now_us)
        if not is_told:
            self._die()
            return
        self.work.record.is_committed, self.work.record.ended_step = True, self.step
        self.finished += 1
        self.work = self._make_work()

    def _die(self) -> None:
        self.deaths += 1
        self.work.attempt = None
