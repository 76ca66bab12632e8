"""Counters of the broker, for the metrics endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field


def count_of(help: str) -> int:
    """Return the field of a counter, with what metrics and their reference say of it."""
    return field(default=0, metadata={"help": help})


@dataclass(slots=True)
class Counters:
    """Plain totals since start; bytes are those of message bodies as stored."""

    messages_in: int = count_of("Messages appended.")
    bytes_in: int = count_of("Bytes of messages appended.")
    appends: int = count_of("Appends: requests, or what a request has for one partition.")
    messages_out: int = count_of("Messages read.")
    bytes_out: int = count_of("Bytes of messages read.")
    reads: int = count_of("Reads of a partition.")
    duplicate_blocks: int = count_of("Blocks and batches that were sent again and are in the log once.")
    damaged_messages: int = count_of(
        "Messages a reader was not given because their bytes are damaged; counted at every read."
    )
    failed_appends: int = count_of("Appends that had begun and that the disk refused.")
    unsynced_bytes: int = count_of("Bytes that are not on disk yet.")
    transactions_open: int = count_of("Native transactions that are open.")
    positions_written: int = count_of("Positions of groups written to the catalog.")
    failed_maintenance: int = count_of("Parts of the broker's own work that the disk refused; each is tried again.")
    states_set: int = count_of("Messages whose state was changed by a request.")
    retention_marked_messages: int = count_of("Messages that retention marked for deletion.")
    retention_deleted_offsets: int = count_of("Offsets that retention deleted.")
    compaction_runs: int = count_of("Cleanings of partitions of compacted topics.")
    compaction_read_bytes: int = count_of("Bytes that compaction has read.")
    compaction_removed_bytes: int = count_of("Bytes by which compaction has made segments smaller.")
    compaction_removed_messages: int = count_of("Messages and control records that compaction has removed.")
    failed_compactions: int = count_of("Cleanings that the disk or a fault refused; each is tried again.")
    exhausted_messages: int = count_of("Messages that a channel delivered as often as their topic allows.")
    dead_letters: int = count_of("Messages copied to a dead letter topic.")
    dead_letters_waiting: int = count_of("Messages still to be copied to a dead letter topic.")
