"""Not served of nsqd and nsqlookupd, and of Youzan's fork of them, and why."""

from __future__ import annotations

from typing import Final

from ..not_served import NotServed

NOT_SERVED: Final = (
    NotServed(
        "servers of authorization (`-auth-http-address`)",
        "users and rights are one table for all protocols, which the broker checks itself",
        "AUTH with a token or `name:password`: [secure a broker](../how-to/secure.md)",
    ),
    NotServed(
        "options that change while nsqd runs (`PUT /config/…` is always `INVALID_OPTION`)",
        "settings hold from one start to the next; `GET /config/…` shows those that have a counterpart here",
        "[settings](settings.md)",
    ),
    NotServed(
        "percentiles of end-to-end latency (`-e2e-processing-latency-percentile`)",
        "nothing keeps them; `/stats` shows none",
        "[metrics](metrics.md) of the broker",
    ),
    NotServed(
        "statistics sent to statsd (`-statsd-address`), `/debug/pprof`, nsqlookupd's `/debug`, `memory` in `/stats`",
        "metrics are read, not sent; profiles and memory of Go have no counterpart",
        "[metrics](metrics.md)",
    ),
    NotServed(
        "of the fork: several copies of a topic, and nodes that share its partitions",
        "the broker is alone; the number of copies is checked, and there is always one",
        "[`lading mirror`](../how-to/mirror.md)",
    ),
    NotServed(
        "of the fork: `/message/get`, messages of `zan_test` that are skipped",
        "messages are read by other ways",
        "`lading message poll`; an `ext_filter` leaves messages out",
    ),
)
