"""A Kafka cluster as its clients know it: brokers, the leader of each partition, and retries when that changes."""

from __future__ import annotations

import math
import random
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from ...dialects.kafka import errors
from ...model.errors import Refusal, RemoteError, Unreachable
from ..client_tls import explain_failure
from .socket import KafkaSecurity, KafkaSocket

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
SHORT_PAUSE_S: Final = 0.5
"""The longest pause of a client with little patience, so that it soon notices when a cluster is back."""
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators: the kinds of keys that FindCoordinator takes."""
T = TypeVar("T")
Address = tuple[str, int]


class KafkaError(RemoteError):
    """A broker responded with an error; ``code`` is Kafka's."""


class KafkaRefusal(KafkaError, Refusal):
    """A refusal of Kafka for which there is a Reason."""

    def __init__(self, message: str, code: int) -> None:
        Exception.__init__(self, message)
        self.reason = errors.REASON_OF[code]
        self.code = code


def kafka_error(what: str, code: int, message: str | None = None) -> KafkaError:
    """Return the error for a code; ``message`` is the broker's own message."""
    sentence = f"{what}: {errors.name_of(code)}" + (f", {message}" if message else "")
    if code in errors.LACKS_RIGHT_TO:
        sentence += f"; this login lacks a right to the {errors.LACKS_RIGHT_TO[code]}: grant it, or log in as another"
    return KafkaRefusal(sentence, code) if code in errors.REASON_OF else KafkaError(sentence, code=code)


class Retriable(Exception):
    """The broker asks to try again later or elsewhere; ``error`` is what to raise when that does not help."""

    def __init__(self, error: RemoteError) -> None:
        super().__init__(str(error))
        self.error = error


def raise_for_code(what: str, code: int, message: str | None = None) -> None:
    """Raise Retriable or an error that names ``what`` for a code that is not 0."""
    if code:
        error = kafka_error(what, code, message)
        raise Retriable(error) if code in errors.RETRIABLE else error


class KafkaCluster:
    """Connections to the brokers of one cluster, found through any of ``bootstrap``.

    Requests that may be repeated are repeated ``retries`` times with doubling, jittered pauses, with leaders looked up
    anew. A cluster of which no broker ever responded is Unreachable at once.
    """

    def __init__(self, bootstrap: Sequence[Address], access: KafkaSecurity, *, timeout_s: float, retries: int) -> None:
        self.retries = self.reconnects = retries
        self.timeout_s = timeout_s
        self.patience_s = math.inf
        self._bootstrap = list(bootstrap)
        self._access = access
        self._sockets: dict[Address, KafkaSocket] = {}
        self._brokers: dict[int, Address] = {}
        self._controller = -1
        self._leaders: dict[str, dict[int, int]] = {}
        self._epochs: dict[str, dict[int, int]] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._answered = False

    def limit_patience(self, silence_s: float, patience_s: float) -> None:
        """Wait at most ``silence_s`` for each response, and repeat a request at most until ``patience_s`` are over."""
        self.timeout_s = min(self.timeout_s, silence_s)
        self.patience_s = patience_s

    def metadata(self, topics: Sequence[str] | None) -> Any:
        """Return what a broker knows about topics (None: about all), brokers and leaders; remembered for ``leader``."""
        wanted = None if topics is None else [{"name": name} for name in topics]

        def ask() -> Any:
            return self._ask_any(lambda broker: broker.ask("Metadata", topics=wanted, allow_auto_topic_creation=False))

        answer = self.retry(ask)
        self._brokers = {row.node_id: (row.host, row.port) for row in answer.brokers}
        self._controller = answer.controller_id
        for topic in answer.topics:
            self._leaders[topic.name] = {row.partition_index: row.leader_id for row in topic.partitions}
            self._epochs[topic.name] = {row.partition_index: row.leader_epoch for row in topic.partitions}
        return answer

    def ask(self, api: str, **fields: Any) -> Any:
        """Return the response of any broker."""
        return self.retry(lambda: self._ask_any(lambda broker: broker.ask(api, **fields)))

    def at_controller(self, api: str, **fields: Any) -> Any:
        """Return the response of the broker that creates and deletes topics."""

        def ask() -> Any:
            if self._controller not in self._brokers:
                self.metadata([])
            address = self._brokers.get(self._controller)
            if address is None:
                return self._ask_any(lambda broker: broker.ask(api, **fields))
            return self._ask_guarded(self._socket_of(address), lambda broker: broker.ask(api, **fields))

        return self.retry(ask)

    def ask_each(self, api: str, **fields: Any) -> Iterator[Any]:
        """Yield the response of each broker, for questions that no broker alone can respond to."""
        self.metadata([])
        for address in list(self._brokers.values()):

            def ask(address: Address = address) -> Any:
                return self._ask_guarded(self._socket_of(address), lambda broker: broker.ask(api, **fields))

            yield self.retry(ask)

    def leader(self, topic: str, partition: int) -> KafkaSocket:
        """Return the connection to the leader, looked up if unknown. Raises Retriable if it has none now."""
        if partition not in self._leaders.get(topic, {}):
            self.metadata([topic])
        node = self._leaders.get(topic, {}).get(partition, -1)
        if node not in self._brokers:
            self.forget(topic)
            what = f"topic {topic!r}, partition {partition} has no leader"
            raise Retriable(kafka_error(what, errors.LEADER_NOT_AVAILABLE))
        return self._socket_of(self._brokers[node])

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Kafka's epoch of the partition's leader; -1 if it is not known."""
        return self._epochs.get(topic, {}).get(partition, -1)

    def forget(self, topic: str) -> None:
        """Look up the leaders of a topic anew when they are next needed."""
        self._leaders.pop(topic, None)

    def at_leader(self, topic: str, partition: int, ask: Callable[[KafkaSocket], T]) -> T:
        """Return the result of ``ask`` with the connection to the leader; repeated at the next one if
        leaders change.
        """

        def once() -> T:
            try:
                return self._ask_guarded(self.leader(topic, partition), ask)
            except (OSError, Retriable):
                self.forget(topic)
                raise

        return self.retry(once)

    def coordinator(self, kind: int, key: str) -> KafkaSocket:
        """Return the connection to the coordinator of a group or a transactional id.

        Raises Retriable if it has none now.
        """
        if (kind, key) not in self._coordinators:
            answer = self._ask_any(lambda broker: broker.ask("FindCoordinator", key=key, key_type=kind))
            raise_for_code(f"the coordinator of {key!r} was not found", answer.error_code, answer.error_message)
            self._coordinators[kind, key] = answer.host, answer.port
        return self._socket_of(self._coordinators[kind, key])

    def at_coordinator(self, kind: int, key: str, ask: Callable[[KafkaSocket], T]) -> T:
        """Return the result of ``ask`` with the connection to the coordinator; repeated at the next one if
        that changes.
        """

        def once() -> T:
            try:
                return self._ask_guarded(self.coordinator(kind, key), ask)
            except (OSError, Retriable):
                self._coordinators.pop((kind, key), None)
                raise

        return self.retry(once)

    def retry(self, ask: Callable[[], T]) -> T:
        """Return the result of ``ask``, repeated after pauses while connections break or brokers report a retriable
        error.
        """
        pause_s = FIRST_PAUSE_S
        broken_left = self.reconnects
        end_s = self.begin_patience()
        for left in range(self.retries, -1, -1):
            try:
                return ask()
            except Retriable as refused:
                if not left or self.is_over(end_s):
                    raise refused.error from None
            except OSError as failure:
                if not left or not broken_left or not self._answered or self.is_over(end_s):
                    raise self.unreachable(failure) from None
                broken_left -= 1
            pause_s = self.shorten(self.pause(pause_s))
        raise AssertionError("the last attempt returns or raises")

    def begin_patience(self) -> float:
        """Return the time until which a request that begins now may be repeated, for ``is_over``."""
        return time.monotonic() + self.patience_s

    @staticmethod
    def is_over(end_s: float) -> bool:
        """Return whether that time is over."""
        return time.monotonic() >= end_s

    def shorten(self, pause_s: float) -> float:
        """Return the pause before the next attempt, shortened if this connection's patience is limited."""
        return pause_s if math.isinf(self.patience_s) else min(pause_s, SHORT_PAUSE_S)

    @staticmethod
    def pause(pause_s: float) -> float:
        """Wait for a random half to the whole of ``pause_s``; return the next pause."""
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        return min(2 * pause_s, LONGEST_PAUSE_S)

    def unreachable(self, failure: OSError) -> Unreachable:
        """Return the error for a connection that broke and could not be made again."""
        cause = explain_failure(failure)
        places = ", ".join(f"{host}:{port}" for host, port in self._bootstrap)
        if not self._answered:
            if isinstance(failure, ssl.SSLError):
                return Unreachable(f"the Kafka broker at {places}: TLS failed: {cause}")
            # a broker that closes the connection is at least listening
            advice = "" if isinstance(failure, ConnectionResetError) else "; check that one is listening there"
            return Unreachable(f"no Kafka broker reachable at {places} ({cause}){advice}")
        if isinstance(failure, TimeoutError):
            return Unreachable(f"the Kafka cluster at {places} did not answer within {self.timeout_s:g} s")
        if not math.isinf(self.patience_s):
            return Unreachable(
                f"the connection to the Kafka cluster at {places} broke and cannot be made again ({cause})"
            )
        return Unreachable(
            f"the connection to the Kafka cluster at {places} broke and {self.reconnects} retries did not bring it "
            f"back ({cause})"
        )

    def interrupt(self) -> None:
        """Interrupt another thread that waits in these connections."""
        for connection in list(self._sockets.values()):
            connection.interrupt()

    def sibling(self) -> KafkaCluster:
        """Return the same cluster over connections of its own, for another thread."""
        cluster = KafkaCluster(self._bootstrap, self._access, timeout_s=self.timeout_s, retries=self.retries)
        cluster.reconnects, cluster.patience_s = self.reconnects, self.patience_s
        return cluster

    def close(self) -> None:
        """Close all connections."""
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()

    def _socket_of(self, address: Address) -> KafkaSocket:
        if address not in self._sockets:
            self._sockets[address] = KafkaSocket(*address, self._access, self.timeout_s)
        return self._sockets[address]

    def _ask_guarded(self, broker: KafkaSocket, ask: Callable[[KafkaSocket], T]) -> T:
        try:
            answer = ask(broker)
        except (RemoteError, Refusal, Retriable):
            # the response was whole
            raise
        except BaseException:
            # half a response may be left in the connection
            broker.close()
            raise
        self._answered = True
        return answer

    def _ask_any(self, ask: Callable[[KafkaSocket], T]) -> T:
        """Return the response of the first broker that responds; brokers with a connection are tried first."""
        known = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        known.sort(key=lambda address: not (address in self._sockets and self._sockets[address].open))
        failed: OSError = ConnectionError("no address is known")
        for address in known:
            try:
                return self._ask_guarded(self._socket_of(address), ask)
            except OSError as failure:
                failed = failure
        raise failed
