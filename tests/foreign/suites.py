"""The suites: the package of each, its version, the server that it asks for, and what of it is not run."""

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


class PytestSuite(NamedTuple):
    """The tests in the source distribution of a Python package, run by pytest."""

    name: str
    package: str
    version: str
    server: str
    paths: tuple[str, ...]
    """What pytest is given, relative to ``directory``."""
    directory: str = "."
    needs: tuple[str, ...] = ()
    """Packages beside pytest that the tests import."""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = NONE
    added_files: Mapping[str, str] = NONE
    """Files that the distribution leaves out, by their path in ``directory``."""
    not_run: Mapping[str, str] = NONE
    timeout_s: int = 1_200


class LibrdkafkaSuite(NamedTuple):
    """The program ``test-runner`` of librdkafka, whose source is in a crate."""

    name: str
    crate: str
    crate_version: str
    version: str
    server: str
    not_run: Mapping[str, str] = NONE
    timeout_s: int = 1_500


Suite = GoSuite | PytestSuite | LibrdkafkaSuite

KAFKA_PYTHON_SERVICE: Final = '''
class ExternalService:
    """A broker that runs already; fixtures.py calls the rest of this for brokers of its own."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self): ...

    def close(self): ...

    def dump_logs(self): ...

    def wait_for(self, pattern, timeout=30): ...


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("the suite runs against one broker; this test starts one of its own")
'''
SUITES: Final[tuple[Suite, ...]] = (
    GoSuite(
        "franz-go", "github.com/twmb/franz-go", "v1.22.3", "kafka", package="pkg/kgo",
        environment={
            "KGO_SEEDS": "127.0.0.1:9092", "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "10000", "KGO_LOG_LEVEL": "none",
        },
    ),
    GoSuite(
        "kafka-go", "github.com/segmentio/kafka-go", "v0.4.51", "kafka-by-name", environment={"KAFKA_VERSION": "4.3.1"},
        timeout_s=1_200,
    ),
    LibrdkafkaSuite("librdkafka", "rdkafka-sys", "4.10.0", "2.12.1", "kafka-4"),
    PytestSuite(
        "kafka-python", "kafka-python", "3.0.12", "kafka-rights", ("test/integration",),
        needs=("pytest-mock", "python-snappy", "lz4", "zstandard", "crc32c", "py"),
        arguments=("--timeout=300",),
        environment={"KAFKA_URI": "kafka://127.0.0.1:9092", "KAFKA_VERSION": "4.3.0", "KAFKA_ROOT": "/"},
        added_files={"test/service.py": KAFKA_PYTHON_SERVICE, "test/__init__.py": ""},
    ),
    GoSuite("go-nsq", "github.com/nsqio/go-nsq", "v1.1.0", "nsq", timeout_s=300),
    GoSuite(
        "youzan-go-nsq", "github.com/youzan/go-nsq", "v1.7.2-HA", "youzan", timeout_s=900,
        not_run={"TestTopicProducerMgrPubShouldFailed": "fails without a server that is down, whatever else runs"},
    ),
    PytestSuite(
        "gnsq", "gnsq", "1.0.2", "nsqd-in-path", ("tests",), needs=("python-snappy",),
        # its marks give each test ten seconds, which starting a broker takes on a busy machine
        arguments=("-p", "no:timeout"), timeout_s=900,
    ),
    PytestSuite(
        "apache-iggy", "apache-iggy", "0.9.0", "iggy", ("tests",), directory="foreign/python",
        needs=("pytest-asyncio",),
        arguments=(
            # needs Docker
            "--ignore=tests/test_tls.py",
            "--timeout=120", "-o", "asyncio_mode=auto",
            "-o", "asyncio_default_fixture_loop_scope=session", "-o", "asyncio_default_test_loop_scope=session",
        ),
        not_run={
            "test_background_write_reconnects_after_server_restart": "starts Iggy's server from its repository's build",
        },
    ),
)  # fmt: skip
