"""The suites: the module of each, its version, the server that it asks for, and what of it is not run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NONE: Final[Mapping[str, str]] = MappingProxyType({})


class GoSuite(NamedTuple):
    """The tests of one package of a Go module."""

    name: str
    module: str
    version: str
    server: str
    """The row of ``servers.SERVERS`` against which it runs."""
    package: str = "."
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = NONE
    not_run: Mapping[str, str] = NONE
    """Tests that say nothing about a server, each with the reason."""
    timeout_s: int = 1_200


SUITES: Final = (
    GoSuite(
        "franz-go", "github.com/twmb/franz-go", "v1.22.3", "kafka", package="pkg/kgo",
        environment={
            "KGO_SEEDS": "127.0.0.1:9092", "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "10000", "KGO_LOG_LEVEL": "none",
        },
    ),
    GoSuite("go-nsq", "github.com/nsqio/go-nsq", "v1.1.0", "nsq", timeout_s=300),
    GoSuite(
        "youzan-go-nsq", "github.com/youzan/go-nsq", "v1.7.2-HA", "youzan", timeout_s=900,
        not_run={"TestTopicProducerMgrPubShouldFailed": "fails without a server that is down, whatever else runs"},
    ),
)  # fmt: skip
