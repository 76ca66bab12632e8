"""Which test files one process runs: those that share a Spark session, whose start takes ten seconds, stay together.

So do those that parse all sources, which takes five.

Two processes share two cores. A third runs only files whose tests wait for most of their time, for other people's
servers, for time-outs and for disks: three that all compute leave those with too little room.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

ROOMS = {
    "tests/cli/test_ingest.py": "spark",
    "tests/docs/": "pages",
    "tests/house/test_error_remedies.py": "house",
    "tests/house/test_names.py": "house",
    "tests/house/test_rooms.py": "house",
    "tests/house/test_words.py": "house",
    "tests/spark/": "spark",
    "tests/pipeline/test_figures.py": "spark",
    "tests/pipeline/test_spark.py": "spark",
    "tests/pipeline/test_sql.py": "spark",
    "tests/properties/test_filter_everywhere.py": "spark",
}
"""By how their paths begin."""

WAITING_PROCESS = "gw2"
WAITING = frozenset(
    {
        "pages",
        "tests/behaviours/test_errors.py",
        "tests/behaviours/test_groups.py",
        "tests/behaviours/test_headers.py",
        "tests/behaviours/test_offsets.py",
        "tests/behaviours/test_send_and_read.py",
        "tests/behaviours/test_visibility.py",
        "tests/client/test_aio.py",
        "tests/client/test_patience.py",
        "tests/console/test_team_command.py",
        "tests/endpoints/test_carriers.py",
        "tests/endpoints/test_clock_set.py",
        "tests/endpoints/test_gate.py",
        "tests/endpoints/test_http_connections.py",
        "tests/endpoints/test_iggy_tcp_bad_input.py",
        "tests/endpoints/test_kafka_client_metrics.py",
        "tests/endpoints/test_kafka_consumer_groups.py",
        "tests/endpoints/test_kafka_users.py",
        "tests/endpoints/test_listeners_fuzz.py",
        "tests/endpoints/test_nsqd_tcp.py",
        "tests/endpoints/test_quic_certificates.py",
        "tests/endpoints/test_quic_hostile.py",
        "tests/endpoints/test_quotas.py",
        "tests/endpoints/test_rights_that_go.py",
        "tests/endpoints/test_schema_registry.py",
        "tests/endpoints/test_testing.py",
        "tests/endpoints/test_tls.py",
        "tests/endpoints/test_tls_listeners.py",
        "tests/endpoints/test_token_issuer.py",
        "tests/endpoints/test_written_at_once.py",
        "tests/faults/test_channel_kill.py",
        "tests/faults/test_kafka_kill.py",
        "tests/faults/test_kafka_transactions_mended.py",
        "tests/faults/test_memory_returns.py",
        "tests/faults/test_nsq_kill.py",
        "tests/interop/test_compaction_clients.py",
        "tests/interop/test_endpoint_groups.py",
        "tests/interop/test_franz_go.py",
        "tests/interop/test_iggy_newest_wheel.py",
        "tests/interop/test_kafka_groups.py",
        "tests/interop/test_kafka_java.py",
        "tests/interop/test_kafka_store.py",
        "tests/interop/test_kafka_store_groups.py",
        "tests/interop/test_kafka_store_nsq.py",
        "tests/interop/test_kafka_transactions.py",
        "tests/interop/test_kcat.py",
        "tests/interop/test_login_clients.py",
        "tests/interop/test_mirror.py",
        "tests/interop/test_nsq_captures.py",
        "tests/interop/test_real_kafka.py",
        "tests/interop/test_rust_client.py",
        "tests/interop/test_tls_clients.py",
        "tests/interop/test_topic_targets.py",
        "tests/kafka_log/test_cuts.py",
        "tests/mirror/test_kill.py",
        "tests/mirror/test_routes.py",
        "tests/pipeline/test_follow.py",
        "tests/registry/test_client.py",
        "tests/spool/test_ingest.py",
        "tests/tables/test_local.py",
        "tests/tables/test_spooling.py",
        "tests/topic_tables/test_command.py",
        "tests/transports/test_iggy_releases.py",
        "tests/transports/test_nsq.py",
        "tests/transports/test_open.py",
    }
)
"""Files and rooms that take at least six seconds and compute for less than half of them."""


class Together(LoadFileScheduling):  # type: ignore[misc]
    """Hands out files, and those of a room at once."""

    def _split_scope(self, nodeid: str) -> str:
        rooms = (room for path, room in ROOMS.items() if nodeid.startswith(path))
        return next(rooms, super()._split_scope(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        fits = (scope for scope in self.workqueue if (scope in WAITING) == _waits(node))
        if (scope := next(fits, None)) is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        if not _waits(node) or any(scope in WAITING for scope in self.workqueue):
            super()._reschedule(node)
        elif not node.shutting_down:
            node.shutdown()


def _waits(node: Any) -> bool:
    return bool(node.gateway.id == WAITING_PROCESS)
