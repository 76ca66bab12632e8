"""The ledger of redrives: which messages were redriven or parked, so that none is sent twice."""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..model.errors import CorruptLog, LimitExceeded, LocalError
from ..runtime.private_files import open_private
from ..tables.commit.state import PipelineStateDirectory
from ..tables.storage.files import make_local_directory, read_document, write_document
from ..transports.topics import UnknownTopic
from .side_effects import NoHeadersThere, TopicSending, send_copies

if TYPE_CHECKING:
    import pyarrow as pa

MessageIdentity = tuple[str, int, int, int]
"""A quarantined message: topic, partition, offset, and when it was quarantined (microseconds since 1970 UTC), because
offsets repeat after a topic was deleted and created again."""
UNACCEPTED: Final = (UnknownTopic, NoHeadersThere, LimitExceeded)
"""Errors that mean that a topic cannot accept messages, so that none of them is in it."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One step of a redrive: messages sent to a topic under one key. Until ``done`` they may have arrived or not."""

    number: int
    key: str
    server: str
    topic: str
    messages: tuple[MessageIdentity, ...]
    done: bool

    @property
    def sending(self) -> TopicSending:
        """How Kafka has it once: by the transaction decided last under this id, as one entry is sent at a time."""
        return TopicSending(f"lading-{self.key.rpartition('/')[0].replace('/', '-')}-{self.topic}")

    def document(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        return {
            "version": VERSION, "number": self.number, "key": self.key, "server": self.server, "topic": self.topic,
            "messages": [list(one) for one in self.messages], "done": self.done,
        }  # fmt: skip

    @classmethod
    def parse(cls, path: Path) -> LedgerEntry:
        """Read the entry in a file. Raises CorruptLog if it is not one."""
        held: Mapping[str, Any] = read_document(path)
        try:
            messages = tuple((str(one[0]), int(one[1]), int(one[2]), int(one[3])) for one in held["messages"])
            return cls(held["number"], held["key"], held["server"], held["topic"], messages, held["done"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CorruptLog(f"{path} is not a valid redrive ledger entry: {error!r}") from None


class Ledger:
    """The entries of one pipeline: numbered files in its state directory."""

    def __init__(self, state: PipelineStateDirectory) -> None:
        self._directory = state.own / "redrive"
        self._pipeline = state.pipeline

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the redrive lock; LocalError if another process holds it."""
        make_local_directory(self._directory)
        with open(self._directory / "lock", "a", opener=open_private) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LocalError(f"another redrive works with the ledger in {self._directory}; wait for it") from None
            yield

    def entries(self) -> list[LedgerEntry]:
        """Return all entries, oldest first."""
        return [LedgerEntry.parse(path) for path in sorted(self._directory.glob("[0-9]*.json"))]

    def list_sent(self) -> set[MessageIdentity]:
        """Return every message that was redriven, or may have been."""
        return {one for entry in self.entries() for one in entry.messages}

    def list_parked(self) -> set[MessageIdentity]:
        """Return every message that reached the limit of redrives."""
        held = read_document(self._directory / "parked.json")
        return set() if held is None else {(row[0], row[1], row[2], row[3]) for row in held["messages"]}

    def park(self, messages: Iterable[MessageIdentity]) -> None:
        """Record that these messages were redriven too often."""
        every = sorted(self.list_parked() | set(messages))
        write_document(self._directory / "parked.json", {"version": VERSION, "messages": [list(one) for one in every]})

    def unpark(self, messages: Iterable[MessageIdentity]) -> None:
        """Record that these messages may be redriven again, as the limit was raised."""
        every = sorted(self.list_parked() - set(messages))
        write_document(self._directory / "parked.json", {"version": VERSION, "messages": [list(one) for one in every]})

    def begin(self, server: str, topic: str, messages: Iterable[MessageIdentity]) -> LedgerEntry:
        """Record what will be sent before it is sent, so that after a crash it is sent under the same key."""
        numbers = [int(path.stem) for path in self._directory.glob("[0-9]*.json")]
        number = max(numbers, default=0) + 1
        # a ledger that is lost begins at 1 again, with a key that its server must not know
        key = f"{self._pipeline}/redrive/{number}-{secrets.token_hex(4)}"
        entry = LedgerEntry(number, key, server, topic, tuple(messages), False)
        self._write(entry)
        return entry

    def mark_done(self, entry: LedgerEntry) -> None:
        """Record that the messages of an entry were sent."""
        self._write(LedgerEntry(entry.number, entry.key, entry.server, entry.topic, entry.messages, True))

    def deliver(self, entry: LedgerEntry, parts: Iterable[pa.RecordBatch], access: Mapping[str, Any]) -> None:
        """Send the messages of an entry. If its topic cannot accept them, withdraw it: a retry would never end.

        Raises UNACCEPTED then, and the errors of the transport.
        """
        try:
            send_copies(entry.server, entry.topic, entry.key, parts, access, entry.sending)
        except UNACCEPTED as error:
            self.withdraw(entry)
            if isinstance(error, LimitExceeded):
                raise LimitExceeded(f"{error}; or leave out what is too large with --where") from None
            raise
        self.mark_done(entry)

    def withdraw(self, entry: LedgerEntry) -> None:
        """Delete an entry of which nothing was sent: its messages wait again."""
        (self._directory / f"{entry.number:08d}.json").unlink()

    def _write(self, entry: LedgerEntry) -> None:
        write_document(self._directory / f"{entry.number:08d}.json", entry.document())
