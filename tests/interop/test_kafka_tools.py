"""Apache Kafka's command line tools do the same work on both brokers: each prints what an administrator looks for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tests.interop import kafka_broker, maven

JARS = (f"org.apache.kafka:kafka-tools:{kafka_broker.VERSION}", *kafka_broker.JARS)
TIMEOUT_S = 60
TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "write": "org.apache.kafka.tools.ConsoleProducer",
    "read": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "directories": "org.apache.kafka.tools.LogDirsCommand",
    "rules": "org.apache.kafka.tools.AclCommand",
    "elect": "org.apache.kafka.tools.LeaderElectionCommand",
    "move": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "measure": "org.apache.kafka.tools.ProducerPerformance",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verify-writing": "org.apache.kafka.tools.VerifiableProducer",
    "verify-reading": "org.apache.kafka.tools.VerifiableConsumer",
}

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
_names = count(1)


@dataclass(frozen=True, slots=True)
class Step:
    """A tool, its arguments, what it reads, and patterns that its output must have; T and G stand for names."""

    tool: str
    arguments: str
    prints: Sequence[str]
    reads: str = ""


PRINTED = "--formatter-property print.headers=true --formatter-property print.key=true"
STEPS = (
    Step("topics", "--create --topic T --partitions 2 --config retention.ms=100000000", [r"^Created topic T\.$"]),
    Step("topics", "--create --topic T", [r"TopicExistsException"]),
    Step("topics", "--alter --topic T --partitions 3", []),
    Step(
        "topics",
        "--describe --topic T",
        [r"PartitionCount: 3\t.*retention\.ms=100000000", r"Partition: 2\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \t"],
    ),
    Step(
        "configs",
        "--alter --entity-type topics --entity-name T --add-config retention.ms=200000000,segment.bytes=50000000",
        [r"^Completed updating config for topic T\.$"],
    ),
    Step(
        "configs",
        "--describe --entity-type topics --entity-name T",
        [r"retention\.ms=200000000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention\.ms=200000000"],
    ),
    Step("configs", "--describe --entity-type users", []),
    Step(
        "write",
        "--topic T --compression-codec zstd --reader-property parse.key=true --reader-property parse.headers=true",
        [],
        "h:one,h:two\tk\tfirst\nempty:\tk\tsecond\n",
    ),
    Step(
        "read",
        f"--topic T --from-beginning --max-messages 2 --timeout-ms 20000 --group G {PRINTED}",
        [r"^h:one,h:two\tk\tfirst$", r"^empty:\tk\tsecond$", r"Processed a total of 2 messages"],
    ),
    Step("groups", "--list --state", [r"^G\s+Empty"]),
    Step("groups", "--describe --group G", [r"^G\s+T\s+\d\s+2\s+2\s+0\s+-"]),
    Step("groups", "--group G --reset-offsets --to-earliest --topic T --execute", [r"^G\s+T\s+0\s+0\s"]),
    Step("groups", "--group G --delete-offsets --topic T:1", [r"^T\s+1\s+Successful"]),
    Step("groups", "--delete --group G", [r"Deletion of requested consumer groups \('G'\) was successful"]),
    Step("groups", "--describe --group G", [r"GroupIdNotFoundException"]),
    Step("offsets", "--topic T", [r"^T:\d:2$", r"^T:\d:0$"]),
    Step("delete-records", "--offset-json-file FILE", [r"^partition: T-0\tlow_watermark: 0$"]),
    Step("directories", "--describe --topic-list T", [r'"partition":"T-0","size":\d+,"offsetLag":0,"isFuture":false']),
    Step("rules", "--list", [r"SecurityDisabledException"]),
    Step("elect", "--election-type preferred --topic T --partition 0", [r"Valid replica already elected.*T-0"]),
    Step("move", "--list", [r"^No partition reassignments found\.$"]),
    Step(
        "measure",
        "--topic T --num-records 500 --record-size 100 --throughput -1 --transactional-id G-writer "
        "--transaction-duration-ms 100",
        [r"^500 records sent"],
    ),
    Step("transactions", "describe --transactional-id G-writer", [r"G-writer.*CompleteCommit\s+60000"]),
    Step("transactions", "list", [r"G-writer.*CompleteCommit"]),
    Step("transactions", "describe-producers --topic T --partition 0", [r"ProducerId.*CurrentTransactionStartOffset"]),
    Step("transactions", "abort --topic T --partition 0 --producer-id 99 --producer-epoch 0 --coordinator-epoch 0", []),
    Step("transactions", "find-hanging --broker-id 1", [r"^Topic\s+Partition\s+ProducerId.*\n?$"]),
    Step("verify-writing", "--topic T-verified --max-messages 10", [r'"sent":10,"acked":10']),
    Step(
        "verify-reading",
        "--topic T-verified --group-id G-reader --max-messages 10",
        [r'"records_consumed","count":10', r'"offsets_committed".*"offset":10.*"success":true'],
    ),
    Step("topics", "--delete --topic T", []),
    Step("topics", "--describe --topic T", [r"Topic 'T' does not exist as expected"]),
)


def printed(step: Step, address: str, directory: Path, topic: str, group: str) -> str:
    """What a tool prints on both outputs."""
    named = re.sub(r"\bT\b", topic, re.sub(r"\bG\b", group, step.arguments)).replace("FILE", str(directory / "file"))
    (directory / "file").write_text(f'{{"partitions":[{{"topic":"{topic}","partition":0,"offset":0}}],"version":1}}')
    words = named.split()
    # this one takes its command first
    at = 1 if step.tool == "transactions" else 0
    place = ["--bootstrap-server", address]
    words = [*place, *words] if at else [*words, *place]
    settings = f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
    (directory / "log4j2.properties").write_text(kafka_broker.LOGGING.replace("info", "error"))
    jars = maven.fetched(f"kafka-tools-{kafka_broker.VERSION}", JARS)
    memory = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = ["nice", "java", *memory, settings, "-cp", f"{jars}/*", TOOLS[step.tool], *words]
    done = subprocess.run(command, input=step.reads, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True)
def test_tools(kafka: kafka_broker.RunningKafka, tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("30 Java processes for each broker: with LADING_TEST_FULL=1")
    number = next(_names)
    topic, group = f"tools{number}", f"tooling{number}"
    try:
        maven.fetched(f"kafka-tools-{kafka_broker.VERSION}", JARS)
    except maven.Unavailable as reason:
        pytest.skip(str(reason))
    missing = []
    for step in STEPS:
        found = printed(step, kafka.address, tmp_path, topic, group)
        for pattern in step.prints:
            wanted = re.sub(r"\bT\b", topic, re.sub(r"\bG\b", group, pattern))
            if not re.search(wanted, found, re.MULTILINE):
                missing.append((step.tool, step.arguments, wanted, found[-1500:]))
        if not step.prints and re.search(r"Exception|Error", found):
            missing.append((step.tool, step.arguments, "no error", found[-1500:]))
    assert missing == []
