"""One subscribed client: deliveries become frames, and its FIN, REQ and TOUCH commands reach the channel."""

from __future__ import annotations

import logging
from asyncio import Future
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....broker.channels import Channel, Delivery, HeaderFilter, Page, Subscriber
from ....broker.core.callbacks import ignore
from ....dialects import codes, registry
from ....dialects.nsq import delivery, encode, limits
from ....dialects.nsq.delivery import Records
from ....dialects.nsq.errors import (
    INVALID_ID,
    NOT_IN_FLIGHT,
    UPSTREAM_NOT_IN_FLIGHT,
    UPSTREAM_NOT_OWNED,
    NsqProtocolError,
    id_text,
)
from ....dialects.nsq.protocol import DELIVERED
from ....model.batch import FIELDS_WITH_ORIGIN
from ....model.errors import FilterError, MalformedMessage, Reason, Refusal
from ....model.scan_request import ScanRequest
from ....runtime.log_lines import origin
from ...base.carrying import Carrying, Fit
from ...base.services import Services, now_us
from ...base.session import ConnectionHandle
from ..fork import YOUZAN

if TYPE_CHECKING:
    from ....dialects.nsq.identify import Identity

log = logging.getLogger(__name__)

MEMORY_RETRY_US: Final = 1_000_000
_FIN_BYTES: Final = 21
_ID_AT: Final = 4
_MS_US: Final = 1_000

Bytes = NDArray[np.uint8]


class NsqConsumer:
    """The reading half of a connection, from SUB on."""

    def __init__(
        self,
        services: Services,
        channel: Channel,
        identity: Identity,
        connection: ConnectionHandle,
        send: Callable[[Bytes], None],
        closed: Callable[[str], None],
        *,
        with_ext: bool,
        detail: bool,
        name: str,
    ) -> None:
        self._services = services
        self.channel = channel
        self._connection = connection
        self._send = send
        self._with_ext, self._detail = with_ext, detail
        self._strict = services.settings.nsq.compat == YOUZAN
        forked = with_ext or detail or identity.forked or self._strict
        self.has_textual_ids = not forked
        """Whether message ids are text: upstream's clients may treat them as text, and some fail at other bytes."""
        self._origin = origin(*name.split("/", 1))
        self._waiting: deque[Delivery] = deque()
        """Deliveries that wait because messages of an earlier one are still being converted."""
        self._closed = False
        self.subscriber = Subscriber(
            self._take,
            closed,
            tag=identity.desired_tag if with_ext else "",
            header_filter=filter_of(identity, self._origin) if with_ext else None,
            sample_percent=identity.sample_rate,
            timeout_us=identity.message_timeout_ms * _MS_US,
            timeout_max_us=limits.MESSAGE_TIMEOUT_MS_MAX * _MS_US,
            name=name,
        )
        self._labels = (name.partition("/")[0],)
        default = services.settings.endpoints.nsqd_tcp.carrier
        self._carrying = Carrying(services, self._labels[0], DELIVERED, default=default)
        self._messages_out = services.metrics.messages_out.values

    def close(self) -> None:
        """End the subscription: messages in flight are delivered to other subscribers."""
        if not self._closed:
            self._closed = True
            self.channel.leave(self.subscriber)
            # these refer to this consumer, which refers to the subscriber
            self.subscriber.on_delivery = self.subscriber.on_closed = ignore

    # -- deliveries

    def _take(self, given: Delivery) -> None:
        if self._waiting or (given.page.index is None and given.page.run.dialect != codes.NSQ):
            self._waiting.append(given)
            if len(self._waiting) == 1:
                self._convert(given.page)
            return
        self._deliver(given)

    def _convert(self, page: Page) -> None:
        """Convert messages of another dialect into NSQ's form, in a worker; later deliveries wait for them."""
        if page.index is not None or page.run.dialect == codes.NSQ:
            self._connection.call_soon(self._continue_deliveries)
            return
        fit = self._carrying.fit(self.channel.topic)
        self._connection.run_in_worker(partial(convert_records, page, fit), partial(self._on_converted, page))

    def _on_converted(self, page: Page, work: Future[Records]) -> None:
        error = work.exception()
        if error is None:
            page.index = work.result()
        elif isinstance(error, MemoryError):
            # the messages are valid: their client waits until there is memory for them again
            log.error("out of memory to deliver messages of %s", self.channel.topic.flat_name, extra=self._origin)
            self._connection.call_later(MEMORY_RETRY_US, self._continue_deliveries)
            return
        else:
            name = self.channel.topic.flat_name
            log.error("messages of %s cannot be converted to NSQ's form", name, exc_info=error, extra=self._origin)
            self._services.metrics.dropped.values[self._labels[0], "unreadable"] += len(page.offsets)
            page.index = Records(np.empty(0, np.uint8), *np.empty((3, 0), np.int64))
        self._continue_deliveries()

    def _continue_deliveries(self) -> None:
        while self._waiting and not self._closed:
            page = self._waiting[0].page
            if page.index is None and page.run.dialect != codes.NSQ:
                self._convert(page)
                return
            try:
                self._deliver(self._waiting.popleft())
            except Exception:
                # later deliveries are sent; this one is sent again after its time-out
                log.exception("a delivery of %s failed", self.channel.topic.flat_name)

    def _deliver(self, given: Delivery) -> None:
        page = given.page
        if page.index is None:
            try:
                page.index = delivery.survey(page.run, page.first, page.end, len(page.offsets))
            except MalformedMessage:
                log.exception("messages of %s cannot be delivered", given.partition, extra=self._origin)
                page.index = Records(np.empty(0, np.uint8), *np.empty((3, 0), np.int64))
        records: Records = page.index
        attempts = given.attempts
        if _are_equal(records.offsets, given.offsets):
            picked = np.arange(len(attempts))
        else:
            picked = np.searchsorted(records.offsets, given.offsets)
            there = picked < len(records.offsets)
            there[there] = records.offsets[picked[there]] == given.offsets[there]
            if not there.all():
                # finish unreadable messages for this channel: no subscriber could ever read them
                self.channel.finish(self.subscriber, given.partition.number, given.offsets[~there])
                picked, attempts = picked[there], attempts[there]
        if len(picked):
            self._messages_out[self._labels] += len(picked)
            self._send(
                delivery.frames(
                    records,
                    picked,
                    attempts,
                    given.partition.number,
                    ext=self._with_ext,
                    detail=self._detail,
                    textual=self.has_textual_ids,
                )
            )

    # -- the client's commands

    def finish(self, source: Bytes, start: int, end: int) -> tuple[int, list[NsqProtocolError]]:
        """Finish the run of FIN commands at ``source[start:end]``; return the position after the last handled command,
        and the faults.

        A fatal fault ends the run: it is the last fault, and the position is after its command.
        """
        stop, ids = delivery.take_fins(source, start, end, textual=self.has_textual_ids)
        count = len(ids)
        if count == 1 and self._finish_one(int(ids[0])):
            return stop, []
        faults: list[NsqProtocolError] = []
        partitions, offsets = delivery.decode_message_ids(ids)
        done = 0
        while done < count:
            same = int((partitions[done:] != partitions[done]).argmax()) or count - done
            bad = offsets[done : done + same] < 0
            good = int(bad.argmax()) if bad.any() else same
            taken = self._finish_messages(int(partitions[done]), offsets[done : done + good]) if good else 0
            done += taken
            if taken == same:
                continue
            at = start + _FIN_BYTES * done
            if offsets[done] < 0:
                if self.has_textual_ids:
                    # 16 bytes that identify no message: upstream looks them up like any other id
                    message_id = source[at + _ID_AT : at + _FIN_BYTES - 1].tobytes()
                    why = UPSTREAM_NOT_IN_FLIGHT
                    faults.append(NsqProtocolError("E_FIN_FAILED", f"FIN {self._show_id(message_id)} failed {why}"))
                    done += 1
                    continue
                faults.append(NsqProtocolError("E_INVALID", INVALID_ID))
                return at + _FIN_BYTES, faults
            message_id = source[at + _ID_AT : at + _FIN_BYTES - 1].tobytes()
            why = self._why_not_in_flight(int(partitions[done]), int(offsets[done]))
            faults.append(NsqProtocolError("E_FIN_FAILED", f"FIN {self._show_id(message_id)} failed {why}"))
            done += 1
        return stop, faults

    def _finish_one(self, ident: int) -> bool:
        partition, offset = delivery.decode_message_id(ident)
        return offset >= 0 and self._finish_messages(partition, np.array([offset], np.int64)) == 1

    def _finish_messages(self, partition: int, offsets: NDArray[np.int64]) -> int:
        try:
            return self.channel.finish(self.subscriber, partition, offsets)
        except Refusal:
            return 0

    def requeue(self, message_id: bytes, delay_ms: int) -> None:
        """Deliver a message again; raises a Fault if it is not in flight to this client."""
        partition, offset = self._place_of("REQ", message_id)
        delay_us = min(delay_ms, limits.REQUEUE_MS_MAX) * _MS_US
        try:
            self.channel.requeue(self.subscriber, partition, offset, delay_us, now_us=now_us())
        except Refusal as refusal:
            raise self._failure_error("REQ", message_id, refusal, partition, offset) from None

    def touch(self, message_id: bytes) -> None:
        """Restart a message's time-out; raises a Fault if it is not in flight to this client."""
        partition, offset = self._place_of("TOUCH", message_id)
        try:
            self.channel.touch(self.subscriber, partition, offset, now_us=now_us())
        except Refusal as refusal:
            raise self._failure_error("TOUCH", message_id, refusal, partition, offset) from None

    def _place_of(self, verb: str, message_id: bytes) -> tuple[int, int]:
        partition, offset = delivery.decode_message_id(delivery.internal_id(message_id, textual=self.has_textual_ids))
        if offset < 0 and not self.has_textual_ids:
            raise NsqProtocolError("E_INVALID", INVALID_ID)
        if offset < 0:
            shown = self._show_id(message_id)
            raise NsqProtocolError(f"E_{verb}_FAILED", f"{verb} {shown} failed {UPSTREAM_NOT_IN_FLIGHT}")
        return partition, offset

    def _why_not_in_flight(self, partition: int, offset: int) -> str:
        """Return why a client may not settle a message, in upstream's or the fork's words."""
        if self._strict:
            return NOT_IN_FLIGHT
        return UPSTREAM_NOT_OWNED if self.channel.is_in_flight(partition, offset) else UPSTREAM_NOT_IN_FLIGHT

    def _failure_error(
        self, verb: str, message_id: bytes, refusal: Refusal, partition: int, offset: int
    ) -> NsqProtocolError:
        if refusal.reason is Reason.TOO_MANY_DEFERRED:
            why = "Too much deferred messages in flight"
        else:
            why = self._why_not_in_flight(partition, offset)
        return NsqProtocolError(f"E_{verb}_FAILED", f"{verb} {self._show_id(message_id)} failed {why}")

    def _show_id(self, message_id: bytes) -> str:
        return message_id.decode(errors="replace") if self.has_textual_ids else id_text(message_id)


def _are_equal(offsets: NDArray[np.int64], given: NDArray[np.int64]) -> bool:
    """Return whether two ascending sequences without gaps are equal, which their ends decide."""
    count = len(given)
    return bool(
        count == len(offsets)
        and offsets[0] == given[0]
        and offsets[-1] == given[-1]
        and offsets[-1] - offsets[0] == count - 1
    )


def convert_records(page: Page, fit: Fit) -> Records:
    """Convert messages of another dialect into the form that NSQ's readers get. Callable from any thread."""
    made: list[bytes] = []
    offsets: list[Any] = []
    for some in registry.decode(page.run, ScanRequest(page.first, page.end, FIELDS_WITH_ORIGIN)):
        batch = fit(registry.to_batch(some)).batch
        made += encode.records(batch)
        offsets += batch.column("offset").to_pylist()
    sizes = np.array([len(record) for record in made], np.int64)
    starts = np.cumsum(sizes) - sizes
    return Records(np.frombuffer(b"".join(made), np.uint8), np.array(offsets, np.int64), starts, sizes)


def filter_of(identity: Identity, client: dict[str, str]) -> HeaderFilter | None:
    """Return the filter that a client asked for, or None if it asked for none or for an impossible one (nsq.md 4.4)."""
    asked: Any = identity.ext_filter
    if not asked:
        return None
    inverse = asked.get("inverse") is True
    key, text = asked.get("filter_ext_key"), asked.get("filter_data")
    try:
        match asked.get("type"):
            case 1:
                return HeaderFilter.exact(str(key or ""), str(text or ""), inverse=inverse)
            case 2:
                return HeaderFilter.regex(str(key or ""), str(text or ""), inverse=inverse)
            case 3:
                return HeaderFilter.glob(str(key or ""), str(text or ""), inverse=inverse)
            case 4 if key in ("any", "all"):
                tests = [
                    (str(one.get("filter_ext_key") or ""), str(one.get("filter_data") or ""))
                    for one in asked.get("filter_data_list") or ()
                    if isinstance(one, dict)
                ]
                make = HeaderFilter.any if key == "any" else HeaderFilter.all
                return make(tests, inverse=inverse)
    except (FilterError, TypeError) as error:
        log.warning("an ext_filter is passed over: %s", error, extra=client)
    return None
