"""Not served of Iggy's protocols, and why; the releases are those of the protocol, oldest first."""

from __future__ import annotations

from typing import Final

from ..not_served import NotServed

NOT_SERVED: Final = (
    NotServed(
        "`get_metadata_changes` (17, since 0.11)",
        "refused with error 5: the broker keeps no log of changes to streams, topics and users; clients send it "
        "only if their program asks for it",
        "the lists, read again",
    ),
    NotServed(
        "polls that wait up to 600 s, for a number of messages (0.12)",
        "responses of a connection are in the order of its requests, so that a long wait would hold those after it",
        "they wait 0.5 s at most, for the first message; poll again",
    ),
    NotServed(
        "more connections of one session (`bind_session`, 0.12)",
        "a session is a connection's; it is refused with 40",
        "each connection logs in, as clients then do",
    ),
    NotServed(
        "the producer in the head of polled batches (0.12)",
        "every release reads every topic, and those before refuse such a head",
        "",
    ),
    NotServed(
        "several nodes and replicas, in every release", "the broker is alone", "[`lading mirror`](../how-to/mirror.md)"
    ),
    NotServed(
        "`durability`, `compression_algorithm`, `segment_size`, `enforce_fsync` and such options of a topic",
        "the broker's own settings hold for all topics; options are kept with the topic, as clients compare them",
        "[settings](settings.md)",
    ),
    NotServed("statistics of caches", "reads come from the page cache of the system", ""),
)
