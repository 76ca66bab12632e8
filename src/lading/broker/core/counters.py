"""Counters of the broker, for the metrics endpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Plain totals since start; bytes are those of message bodies as stored."""

    messages_in: int = 0
    bytes_in: int = 0
    appends: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    reads: int = 0
    duplicate_blocks: int = 0
    damaged_messages: int = 0
    """Messages a reader was not given because their bytes are damaged; counted at every read."""
    failed_appends: int = 0
    unsynced_bytes: int = 0
    transactions_open: int = 0
    positions_written: int = 0
    failed_maintenance: int = 0
    """Things the broker does by itself that the disk refused; each is tried again."""
    states_set: int = 0
    """Messages whose state was changed by a request."""
    retention_marked_messages: int = 0
    """Messages that retention marked for deletion."""
    retention_deleted_offsets: int = 0
    """Offsets that retention let go."""
    exhausted_messages: int = 0
    """Messages that a channel had delivered as often as their topic allows."""
    dead_letters: int = 0
    """Messages copied to a dead letter topic."""
    dead_letters_waiting: int = 0
    """Messages still to be copied."""
