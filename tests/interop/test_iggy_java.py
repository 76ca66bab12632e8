"""Apache Iggy's SDK for Java, which has the server's version numbers, over TCP and HTTP against our broker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lading import Consumer, testing
from lading.model.kinds import Kind
from tests.interop import maven

CONVERSATION = Path(__file__).with_name("iggy_java") / "Conversation.java"
JARS = ("org.apache.iggy:iggy:0.8.0", "org.slf4j:slf4j-nop:2.0.17")
TIMEOUT_S = 110

pytestmark = [pytest.mark.interop, pytest.mark.timeout(2 * TIMEOUT_S + 60)]


@pytest.mark.turns(2, part=1)
def test_typed_headers_pass_between_its_transports_and_to_lading(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("the SDK's program needs a JDK (javac)")
    try:
        jars = f"{maven.fetched('iggy-java-0.8.0', JARS)}/*"
    except maven.Unavailable as reason:
        pytest.skip(str(reason))
    quick = ["-J-XX:TieredStopAtLevel=1", "-proc:none"]
    subprocess.run(
        ["javac", *quick, "-cp", jars, "-d", str(tmp_path), str(CONVERSATION)], timeout=TIMEOUT_S, check=True
    )
    with testing.broker() as broker:
        ports = [broker.endpoints[name].rpartition(":")[2] for name in ("iggy_tcp", "iggy_http")]
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{tmp_path}:{jars}", CONVERSATION.stem, *ports, "java"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
        assert done.stdout.splitlines() == [
            "tcp to tcp: one all two 0",
            "tcp to http: one all two 0",
            "http to tcp: one all two 0",
            "http to http: one all two 0",
            "group: 2",
            "tcp: nothing",
            "renamed: renamed 2",
            "over-http: over-http 2",
            "missing: false",
            "streams: 1 1",
        ]
        for topic in ("tcp", "http"):
            first, _ = Consumer(broker.url, f"java.{topic}", timeout_s=0)
            assert sorted((header.key, header.kind, header.value) for header in first.headers) == [
                ("carrier", Kind.STRING, "żółw".encode()),
                ("delay", Kind.INT32, (-5).to_bytes(4, "little", signed=True)),
                ("late", Kind.BOOL, b"\1"),
                ("load", Kind.FLOAT64, bytes.fromhex("000000000000f83f")),
                ("seats", Kind.UINT32, (4_000_000_000).to_bytes(4, "little")),
                ("trace", Kind.RAW, b"\0\xff"),
            ]
