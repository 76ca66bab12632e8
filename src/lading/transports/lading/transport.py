"""``lading://``: the client side of Lading's own admin endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...chunk.runs import runs
from ...dialects.native.protocol import SENT
from ...model.errors import LadingError, LocalError, MalformedMessage, Reason, Refusal, RemoteError, SettingError
from ...model.names import spellings
from ...model.state import STATE_BY_WORD, State
from ..client_tls import parse_tls
from ..fetched import FetchResult, States, missing
from ..interface import PartitionMeta, Queried, SendResult, TopicMeta
from ..open import address
from ..secrets import read_secret
from ..topics import split_new_name, unknown_topic_error
from .blocks import BlockWriter, Compression
from .group import LadingMembership
from .http import AdminHttp, HttpResponse, reading_document, require_fields
from .users import UserAdministration

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_FOUND = (
    Reason.STREAM_NAME_NOT_FOUND,
    Reason.TOPIC_NAME_NOT_FOUND,
    Reason.STREAM_ID_NOT_FOUND,
    Reason.TOPIC_ID_NOT_FOUND,
)


class LadingLogin(NamedTuple):
    """The user whose rights requests have: the user logs in with a password, or an administrator acts for the user.

    Without a password the token of the transport has to be an administrator's.
    """

    name: str
    password: str | None = None

    def __repr__(self) -> str:
        return f"LadingLogin({self.name!r})"


class LadingTransport(UserAdministration):
    """The admin endpoint of one broker.

    Options: ``timeout_s`` one response may take; ``retries`` of requests that may be repeated (reads, and sends: they
    are idempotent); ``token`` or ``token_file`` if the endpoint requires one; ``tls`` for HTTPS, with ``ca_file`` (a
    file of certificates to trust besides the system's), ``certificate_file`` and ``key_file`` (the client's own
    certificate); ``login`` in place of the token, in a process that has users of its own, never in a URL.
    """

    idempotent = True
    capabilities = SENT

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        retries: int = 6,
        token: str | None = None,
        token_file: str | None = None,
        tls: bool | str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        login: LadingLogin | None = None,
    ) -> None:
        self.url = url
        token = read_secret("token", token, token_file)
        encryption = parse_tls(tls, ca_file, certificate_file, key_file)
        host, port = address(url, "lading")
        super().__init__(AdminHttp(host, port, timeout_s=timeout_s, retries=retries, token=token, tls=encryption))
        if isinstance(login, LadingLogin):
            if login.password is None:
                self.act_for(login.name)
            else:
                self.log_in(login.name, login.password)
        elif login is not None:
            raise SettingError(f"{url}: login does not belong in a URL; give a token in token_file")
        self._places: dict[str, tuple[str, str]] = {}
        self._turns: dict[str, int] = {}
        self._writer = self.writer()

    # topics

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return all topics with their partitions, or those whose flat name is wanted."""
        try:
            rows = self._http.get("topics").json()
        except RemoteError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            raise self._other_server_error() from None
        # an nsqlookupd has a page of this name, too
        if not isinstance(rows, list):
            raise self._other_server_error()
        return [read_topic(row) for row in map(require_fields, rows) if wanted is None or wanted(row["name"])]

    def _other_server_error(self) -> LocalError:
        return LocalError(
            f"the server at {self._http.place} is not Lading's admin endpoint, but another one that speaks HTTP; "
            "Lading prints the address as admin when it starts"
        )

    def topic(self, name: str) -> TopicMeta:
        """Return the topic as it is now. Raises LocalError with near names if it does not exist."""
        tried = [self._places[name]] if name in self._places else []
        for stream, topic in [*tried, *spellings(name)]:
            try:
                meta = read_topic(self._http.get("topics", stream, topic).fields())
            except Refusal as error:
                if error.reason not in _NOT_FOUND:
                    raise
                continue
            except RemoteError as error:
                # a name that the path of a request cannot have, such as an empty one
                if error.code == HTTPStatus.UPGRADE_REQUIRED:
                    raise self._other_server_error() from None
                if error.code != HTTPStatus.NOT_FOUND:
                    raise
                continue
            self._places[name] = (meta.stream, meta.topic)
            return meta
        self._places.pop(name, None)
        raise unknown_topic_error(name, (meta.name for meta in self.topics()), self.url)

    def create_topic(self, name: str, partitions: int = 1, settings: dict[str, Any] | None = None) -> TopicMeta:
        """Create ``stream.topic``; a name without a dot is in stream ``default``. Raises Refusal TOPIC_NAME_EXISTS."""
        body = {"partitions": partitions, "settings": settings or {}}
        self._http.request("POST", "topics", *split_new_name(name), again=False, document=body)
        return self.topic(name)

    def create_extended_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create a topic that NSQ clients read with ext headers only."""
        return self.create_topic(name, partitions, {"header_form": "extended"})

    def extend_topic(self, name: str) -> None:
        """Make a topic one that NSQ clients read with ext headers only."""
        self.alter_topic(name, {"header_form": "extended"})

    def delete_topic(self, name: str) -> None:
        """Delete the topic with all its messages."""
        self._http.request("DELETE", "topics", *self._place_of(name), again=False)
        self._places.pop(name, None)

    def empty_topic(self, name: str) -> int:
        """Delete all messages of the topic and keep the topic; return how many offsets they had."""
        response = self._http.request("POST", "topics", *self._place_of(name), "empty", again=True).json()
        return int(response["deleted"])

    def streams(self) -> list[dict[str, Any]]:
        """Return the ``id``, ``name``, number of ``topics``, ``size_bytes`` and ``messages`` of each stream."""
        rows: list[dict[str, Any]] = self._http.get("streams").rows()
        return rows

    def create_stream(self, name: str, stream_id: int | None = None) -> None:
        """Create a stream; its id is the next free one unless given."""
        self._http.request("POST", "streams", name, again=False, document={"id": stream_id})

    def delete_stream(self, name: str) -> None:
        """Delete the stream with all its topics."""
        self._http.request("DELETE", "streams", name, again=False)
        self._places.clear()

    # reading

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_messages: int | None = None,
        wait_ms: int = 0,
    ) -> FetchResult:
        """Return raw chunks, each with its CRC checked; a wrong one is requested once more before MalformedMessage is
        raised.

        ``max_messages`` has no effect: chunks are fetched whole.
        """
        ask = partial(
            self._partition_get, topic, partition, "chunks", wait_ms=wait_ms, offset=offset, max_bytes=max_bytes
        )
        try:
            return read_fetched(topic, partition, offset, ask())
        except MalformedMessage:
            return read_fetched(topic, partition, offset, ask())

    def query(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        end: int | None = None,
        where: str | None = None,
        states: States = "available",
        columns: str | None = None,
        headers_only: bool = False,
        max_rows: int | None = None,
    ) -> Queried:
        """Return batches filtered and projected by the broker, and the offset at which to continue."""
        import pyarrow as pa

        answer = self._partition_get(
            topic,
            partition,
            "batches",
            offset=offset,
            end=end,
            where=where,
            states=states,
            columns=columns,
            headers_only="true" if headers_only else None,
            max_rows=max_rows,
        )
        with pa.ipc.open_stream(answer.content) as reader:
            facts = read_facts(answer)
            return Queried(
                list(reader),
                facts.end_offset,
                facts.first_offset,
                facts.topic_id,
                facts.epoch,
                facts.epochs,
                read_pairs(answer, "lading-damaged"),
            )

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after ``timestamp_us``."""
        return int(self._partition_get(topic, partition, "offset", timestamp_us=timestamp_us).fields()["offset"])

    def states(
        self, topic: str, partition: int, *, first: int = 0, end: int | None = None
    ) -> list[tuple[int, int, State]]:
        """Return ranges (first, end, state) of messages that are not available."""
        rows = self._partition_get(topic, partition, "states", first=first, end=end).rows()
        return [(row["first"], row["end"], STATE_BY_WORD[row["state"]]) for row in rows]

    # writing

    def send(
        self,
        topic: str,
        partition: int | None,
        batch: pa.RecordBatch,
        *,
        strict: bool = False,
        compression: Compression = None,
    ) -> SendResult:
        """Append as native blocks, idempotent; ``strict`` has no effect, as native blocks hold everything."""
        if partition is None:
            turn = self._turns.get(topic, 0)
            partition = turn % len(self.topic(topic).partitions)
            self._turns[topic] = turn + 1
        return self._writer.send(topic, partition, batch, compression)

    def find_acknowledged(self, topic: str, partition: int, batch: pa.RecordBatch) -> SendResult | None:
        """Return the result of the last batch sent to the partition, if it was this object and is acknowledged."""
        return self._writer.find_acknowledged(topic, partition, batch)

    def writer(self, writer_id: bytes | None = None, epoch: int = 0, transaction_id: int = 0) -> BlockWriter:
        """Return a writer with its own numbering, such as for one attempt of a task inside its own transaction."""
        return BlockWriter(self._post, writer_id, epoch, transaction_id)

    def set_state(
        self, topic: str, partition: int, first: int, end: int, state: State, reason: str | None = None
    ) -> None:
        """Set the state of offsets from ``first`` up to, not including, ``end``; dead letters contain the
        ``reason``.
        """
        self.put_states(topic, {"first": first, "end": end, "state": State(state).word, "reason": reason}, partition)

    def put_states(self, topic: str, document: dict[str, Any], partition: int | None = None) -> dict[str, Any]:
        """Set states in one partition, or in all, as ``document`` says, and return the response.

        See docs/reference/http-states.
        """
        path = ("topics", *self._place_of(topic)) if partition is None else self._path_of(topic, partition)
        answer: dict[str, Any] = self._http.request("PUT", *path, "states", again=True, document=document).fields()
        return answer

    def state_counts(self, topic: str) -> list[dict[str, Any]]:
        """Return for each ``partition`` its ``first_offset``, ``next_offset`` and ``states``: word -> number of
        messages.
        """
        rows: list[dict[str, Any]] = self._http.get("topics", *self._place_of(topic), "states").rows()
        return rows

    def retention(self, topic: str, within_ms: int) -> dict[str, Any]:
        """Return what retention will delete within this time, and by which rule (docs/reference/admin-api)."""
        document: dict[str, Any] = self._http.get(
            "topics", *self._place_of(topic), "retention", within_ms=within_ms
        ).fields()
        return document

    def alter_topic(self, name: str, settings: dict[str, Any]) -> TopicMeta:
        """Change the named settings of a topic; None resets a setting."""
        path = ("topics", *self._place_of(name), "settings")
        return read_topic(self._http.request("PUT", *path, again=True, document=settings).fields())

    def begin(self, scope: str = "") -> int:
        """Open a transaction; blocks that name its id stay unread until it is committed.

        Transactions of one ``scope`` are attempts at the same work: a commit aborts those that it does not name.
        """
        answer = self._http.request("POST", "transactions", again=True, document={"scope": scope})
        return int(answer.fields()["transaction_id"])

    def commit(self, key: str, transactions: Sequence[int]) -> None:
        """Commit the transactions under ``key``; if the key was committed before, nothing happens."""
        body = {"key": key, "transactions": list(transactions)}
        self._http.request("POST", "transactions", "commit", again=True, document=body)

    def abort(self, transactions: Sequence[int]) -> None:
        """Abort the transactions: their messages are never read."""
        body = {"transactions": list(transactions)}
        self._http.request("POST", "transactions", "abort", again=True, document=body)

    # groups

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups of all protocols: ``protocol``, ``group``, ``state``, ``generation``,
        ``members``, ``lag``.
        """
        rows: list[dict[str, Any]] = self._http.get("groups").rows()
        return rows

    def group(self, protocol: str, name: str) -> dict[str, Any]:
        """Return one group as ``groups`` describes it, with the names of its ``members`` and its ``partitions``."""
        group: dict[str, Any] = self._http.get("groups", protocol, name).fields()
        return group

    def describe_groups(self, limit: int) -> list[dict[str, Any]]:
        """Return the first ``limit`` groups, each as ``group`` describes it."""
        found = []
        for row in self.groups()[:limit]:
            # it may have been deleted since the list was made
            with suppress(LadingError):
                found.append(self.group(row["protocol"], row["group"]))
        return found

    def reset_group(self, protocol: str, name: str, positions: Sequence[tuple[str, int, int]]) -> None:
        """Set the positions of a group without members to (topic, partition, next offset); either all are
        set, or none.
        """
        rows = [{"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in positions]
        self._http.request("PUT", "groups", protocol, name, "positions", again=True, document={"positions": rows})

    def find_group_filter(self, protocol: str, name: str) -> dict[str, Any] | None:
        """Return the filter of a group as ``group`` does, or None; a Kafka group need not have had members."""
        found: dict[str, Any] = self._http.get("groups", protocol, name, "filter").fields()
        return found.get("filter")

    def set_group_filter(self, protocol: str, name: str, where: str, client_ids: Sequence[str]) -> dict[str, Any]:
        """Set a condition on the messages that members of a group get; return the filter."""
        document = {"where": where, "client_ids": list(client_ids)}
        response = self._http.request("PUT", "groups", protocol, name, "filter", again=True, document=document)
        found: dict[str, Any] = response.fields()["filter"]
        return found

    def remove_group_filter(self, protocol: str, name: str) -> None:
        """Remove a group's filter, so that its members get all messages."""
        self._http.request("DELETE", "groups", protocol, name, "filter", again=False)

    def preview_group_filter(
        self, protocol: str, name: str, where: str, topics: Sequence[str], messages: int
    ) -> list[dict[str, Any]]:
        """Return for each partition how many of its next messages a filter would select."""
        document = {"where": where, "topics": list(topics), "messages": messages}
        path = ("groups", protocol, name, "filter", "preview")
        response = self._http.request("POST", *path, again=True, document=document)
        rows: list[dict[str, Any]] = response.rows()
        return rows

    def delete_group(self, protocol: str, name: str) -> None:
        """Delete a group without members, with its positions."""
        self._http.request("DELETE", "groups", protocol, name, again=False)

    def join(self, group: str, topics: Sequence[str]) -> LadingMembership:
        """Become a member of the native group."""
        return LadingMembership(self._http, self._position_path, group, [self.topic(name).name for name in topics])

    def health(self) -> dict[str, Any]:
        """Return the ``status``.

        If the caller may see them, also ``refusing`` and ``damaged`` partitions, and problems.
        """
        document: dict[str, Any] = self._http.get("health").fields()
        return document

    def overview(self) -> dict[str, Any]:
        """Return uptime, disk, totals since the start, and when certificates expire, for callers who may
        ``describe``.
        """
        document: dict[str, Any] = self._http.get("overview").fields()
        return document

    # tests

    def set_faults(self, *, appends_to_refuse: int | None = None, disk_is_full: bool | None = None) -> None:
        """Make a broker that was started with ``--test-faults`` refuse this many appends, or act as on a full disk."""
        document = {"appends_to_refuse": appends_to_refuse, "disk_is_full": disk_is_full}
        self._http.request("PUT", "faults", again=True, document=document)

    def close(self) -> None:
        """Close the kept connections."""
        self._http.close()

    def _position_path(self, group: str, topic: str, partition: int) -> tuple[str | int, ...]:
        """Return the path of a group's position."""
        return ("groups", group, "positions", *self._place_of(topic), partition)

    def _place_of(self, name: str) -> tuple[str, str]:
        if name not in self._places:
            self.topic(name)
        return self._places[name]

    def _path_of(self, topic: str, partition: int) -> tuple[str | int, ...]:
        return ("topics", *self._place_of(topic), partition)

    def _partition_get(self, topic: str, partition: int, what: str, *, wait_ms: int = 0, **query: Any) -> HttpResponse:
        if wait_ms:
            query["wait_ms"] = wait_ms
        try:
            return self._http.request(
                "GET", *self._path_of(topic, partition), what, again=True, query=query, wait_ms=wait_ms
            )
        except Refusal as error:
            if error.reason not in _NOT_FOUND:
                raise
            # it may have been deleted, or created again elsewhere: request it by name
            self.topic(topic)
            raise

    def _post(self, topic: str, partition: int, block: bytes) -> SendResult:
        answer = self._http.request(
            "POST", *self._path_of(topic, partition), "chunks", again=True, content=block
        ).fields()
        return SendResult(answer["count"], answer["base_offset"], answer["duplicate"])


@reading_document()
def read_topic(row: dict[str, Any]) -> TopicMeta:
    """Return the topic that a row of ``GET /topics`` describes."""
    return TopicMeta(
        row["stream"], row["topic"], row["name"], bytes.fromhex(row["id"]),
        tuple(
            PartitionMeta(
                part["partition"], part["first_offset"], part["stable_end"], part["epoch"],
                tuple((epoch, first) for epoch, first in part["epochs"]), part["size_bytes"],
                part.get("compaction", {}).get("dirty_share"), _read_cleaned(part.get("compaction")),
                part.get("has_unavailable", True),
            )
            for part in row["partitions"]
        ),
        row["settings"],
    )  # fmt: skip


def _read_cleaned(compaction: dict[str, Any] | None) -> tuple[int, int] | None:
    return None if compaction is None else (compaction["end"], compaction["cleaned_us"])


class PartitionFacts(NamedTuple):
    """Facts of a partition in the headers of a response with messages."""

    end_offset: int
    first_offset: int
    last_stable_offset: int
    topic_id: bytes
    epoch: int
    epochs: tuple[tuple[int, int], ...]


@reading_document()
def read_facts(answer: HttpResponse) -> PartitionFacts:
    """Return the facts about a partition in the headers of a response."""
    headers = answer.headers
    return PartitionFacts(
        int(headers["lading-end-offset"]),
        int(headers["lading-first-offset"]),
        int(headers["lading-stable-end"]),
        bytes.fromhex(headers["lading-topic-id"]),
        int(headers["lading-epoch"]),
        tuple(read_pairs(answer, "lading-epochs")),
    )


@reading_document()
def read_pairs(answer: HttpResponse, header: str) -> list[tuple[int, int]]:
    """Return the pairs of numbers in a header, such as the ranges of aborted transactions."""
    return [(one, other) for one, other in json.loads(answer.headers[header])]


@reading_document()
def read_fetched(topic: str, partition: int, offset: int, answer: HttpResponse) -> FetchResult:
    """Return the messages that were read of a partition from ``offset`` on."""
    facts = read_facts(answer)
    region = np.frombuffer(answer.content, np.uint8)
    chunks = runs(region, 0, region.size) if region.size else []
    end = max(offset, facts.end_offset)
    return FetchResult(
        topic,
        partition,
        chunks,
        end_offset=end,
        first_offset=facts.first_offset,
        last_stable_offset=facts.last_stable_offset,
        topic_id=facts.topic_id,
        epoch=facts.epoch,
        epochs=facts.epochs,
        hidden=[(first, end, state) for first, end, state in json.loads(answer.headers["lading-hidden"])],
        aborted=read_pairs(answer, "lading-aborted"),
        damaged=missing(chunks, max(offset, facts.first_offset), end),
    )
