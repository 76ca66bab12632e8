"""What a program sent without ``flush`` arrives when it ends, or is told on standard error with its count."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import count

import pytest

from lading import Consumer, testing
from tests import forked_command

_numbers = count(1)
ENDS_WITHIN_S = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    """A broker on free ports."""
    with testing.broker() as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A topic name nobody used before."""
    return f"exit-{next(_numbers)}"


def run(program: str, *arguments: str, fresh: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in a process of its own, which is ``fresh`` or forked with its imports done."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    if fresh:
        return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    return forked_command.run(command, timeout=ENDS_WITHIN_S)


def payloads(broker: testing.BrokerProcess, topic: str) -> list[bytes | None]:
    return sorted((message.payload for message in Consumer(broker.url, topic, timeout_s=0)), key=lambda one: one or b"")


@pytest.mark.turns(3)
@pytest.mark.parametrize("linger", ["20", "None", "0", "3600_000"])
@pytest.mark.parametrize("scheme", ["lading", "iggy", "kafka"])
def test_five_sends_without_flush_arrive(broker: testing.BrokerProcess, topic: str, linger: str, scheme: str) -> None:
    urls = {"lading": broker.url, "iggy": f"iggy://{broker.endpoints['iggy_tcp']}",
            "kafka": f"kafka://{broker.endpoints['kafka']}"}  # fmt: skip
    program = f"""
        import sys
        from lading import Producer
        producer = Producer(sys.argv[1], linger_ms={linger})
        for number in range(5):
            producer.send(sys.argv[2], b"x" * number)
    """
    # one of each scheme also with the imports of a program that has just begun
    ended = run(program, urls[scheme], topic, fresh=linger == "3600_000")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert payloads(broker, topic) == [b"x" * number for number in range(5)]


@pytest.mark.turns(3, part=0)
def test_a_producer_that_nobody_holds_still_sends_and_an_error_of_the_program_stays_its_own(
    broker: testing.BrokerProcess, topic: str
) -> None:
    program = """
        import sys, threading
        from lading import Producer
        def send():
            producer = Producer(sys.argv[1], linger_ms=3600_000)
            producer.send(sys.argv[2], b"x")
        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        raise KeyError("the program's own")
    """
    ended = run(program, broker.url, topic)
    assert ended.returncode == 1
    assert "the program's own" in ended.stderr
    assert "not sent" not in ended.stderr
    assert payloads(broker, topic) == [b"x"] * 4


@pytest.mark.turns(3, part=0)
def test_what_cannot_be_sent_is_told_with_its_count(topic: str) -> None:
    with testing.broker() as gone:
        program = """
            import sys
            from lading import Producer
            producer = Producer(sys.argv[1], linger_ms=None, retries=1, timeout_s=1)
            producer.send(sys.argv[2], b"first")
            producer.flush()
            print("ready", flush=True)
            sys.stdin.readline()
            for _ in range(5):
                producer.send(sys.argv[2], b"x")
        """
        command = [sys.executable, "-c", textwrap.dedent(program), gone.url, topic]
        pipe = subprocess.PIPE
        child = forked_command.ForkedCommand(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        url = gone.url
        gone.kill()
        _, words = child.communicate("go\n", timeout=ENDS_WITHIN_S)
    assert child.returncode == 0
    assert words.startswith(f"lading: 5 messages to {url} not sent: ")
    assert words.count("\n") == 1


@pytest.mark.turns(3, part=1)
def test_what_the_server_refused_behind_the_back_of_the_program_is_told(
    broker: testing.BrokerProcess, topic: str
) -> None:
    program = """
        import sys, time
        from lading import Producer
        producer = Producer(sys.argv[1], linger_ms=1)
        producer.send(sys.argv[2], b"kept")
        producer.flush()
        Producer(sys.argv[1]).transport.delete_topic(sys.argv[2])
        producer.send(sys.argv[2], b"lost")
        while producer.unsent:
            time.sleep(0.01)
    """
    ended = run(program, broker.url, topic)
    assert ended.returncode == 0
    assert "lading: 1 message to" in ended.stderr


@pytest.mark.turns(3, part=1)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_leaves_the_messages_to_its_parent(broker: testing.BrokerProcess, topic: str) -> None:
    program = """
        import os, sys
        from lading import Producer
        producer = Producer(sys.argv[1], linger_ms=3600_000)
        producer.send(sys.argv[2], b"")
        child = os.fork()
        if not child:
            try:
                producer.send(sys.argv[2], b"x")
            except Exception as error:
                print(error, flush=True)
            with Producer(sys.argv[1]) as own:
                own.send(sys.argv[2], b"xx")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    ended = run(program, broker.url, topic)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "create one in each process" in ended.stdout
    assert payloads(broker, topic) == [b"", b"xx"]


@pytest.mark.turns(3, part=2)
def test_threads_may_share_a_producer(broker: testing.BrokerProcess, topic: str) -> None:
    program = """
        import sys, threading
        from lading import Producer
        producer = Producer(sys.argv[1], linger_ms=1, batch_count=7)
        def send(first):
            for number in range(first, first + 500):
                producer.send(sys.argv[2], b"%d" % number)
        threads = [threading.Thread(target=send, args=(1000 * number,)) for number in range(1, 5)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """
    ended = run(program, broker.url, topic)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = [int(message.payload or b"") for message in Consumer(broker.url, topic, timeout_s=0)]
    assert sorted(found) == [1000 * thread + number for thread in range(1, 5) for number in range(500)]
    for thread in range(1, 5):
        own = [number for number in found if number // 1000 == thread]
        assert own == sorted(own), "what one thread sends stays in its order"
