"""Requests and responses of the admin endpoint: the fields of bodies and queries, and refusals as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from ...model.errors import LadingError, MalformedMessage, Reason, Refusal
from ...runtime.turns import Turn, TurnCounter, Turns, finish_in_turns
from ..base.receive_budget import ReceiveBudget
from ..base.request_budget import ROW_BYTES, MemoryReservation, RequestBudget
from .http import InPieces, read_body

DOCUMENT_BYTES_MAX: Final = 1 << 20
ROWS_MAX: Final = 10_000
"""Rows of a list in a document: 10,000 numbers are checked in six milliseconds, in one turn of the loop."""
OFFSET_MAX: Final = (1 << 63) - 1

Count = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
"""An offset, a number of bytes or of rows."""
Duration = Annotated[int, Field(ge=0, le=1 << 43)]
"""Milliseconds, up to 278 years: a date that far ahead still fits what dates are kept in."""


Numbers = Annotated[list[Count], Field(max_length=ROWS_MAX), FailFast()]
"""The first that is wrong refuses them all: pydantic describes 170,000 wrong ones in six seconds."""


class RequestModel(BaseModel):
    """A request; members it does not declare are refused."""

    # each is built for its first request: none of them delays a start
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class NewTopic(RequestModel):
    """POST /topics/{stream}/{topic}"""

    partitions: Annotated[int, Field(ge=0, le=100_000)] = 1
    settings: dict[str, Any] = {}


class NewSettings(RequestModel):
    """PUT /topics/{stream}/{topic}/settings: the settings that change, null for one that is taken back."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class NewStream(RequestModel):
    """POST /streams/{stream}"""

    id: Annotated[int, Field(ge=1, le=0xFFFF_FFFF)] | None = None


class NewTransaction(RequestModel):
    """POST /transactions"""

    scope: str = ""
    timeout_ms: Annotated[Duration, Field(ge=1)] | None = None


class CommitTransactions(RequestModel):
    """POST /transactions/commit"""

    key: Annotated[str, Field(min_length=1, max_length=1024)]
    transactions: Numbers
    scope: str | None = None


class AbortTransactions(RequestModel):
    """POST /transactions/abort"""

    transactions: Numbers


class GroupMemberDocument(RequestModel):
    """POST /groups/{group}/join, heartbeat or leave; topics by flat name."""

    member: Annotated[str, Field(min_length=1, max_length=255)]
    topics: Annotated[list[str], Field(max_length=ROWS_MAX), FailFast()] = []
    generation: Count | None = None


class FaultsDocument(RequestModel):
    """PUT /faults: what is named changes."""

    appends_to_refuse: Count | None = None
    disk_is_full: bool | None = None


class NewPosition(RequestModel):
    """PUT /groups/{group}/positions/…: the next offset to read."""

    offset: Count
    epoch: Count | None = None
    generation: Count | None = None


class GroupPositionDocument(RequestModel):
    """One partition, of a topic by its flat name, and the next offset to read."""

    topic: str
    partition: Annotated[int, Field(ge=0, le=0x7FFF_FFFF)]
    offset: Count


class NewGroupPositions(RequestModel):
    """PUT /groups/{protocol}/{group}/positions"""

    positions: Annotated[list[Any], Field(min_length=1, max_length=ROWS_MAX)]
    """Each a GroupPositionDocument; see ``parse_rows``."""


class NewGroupFilter(RequestModel):
    """PUT /groups/{protocol}/{group}/filter"""

    where: Annotated[str, Field(min_length=1, max_length=4096)]
    client_ids: Annotated[list[str], Field(max_length=100), FailFast()] = []


class GroupFilterPreview(RequestModel):
    """POST /groups/{protocol}/{group}/filter/preview: of at most ``messages`` of each partition."""

    where: Annotated[str, Field(min_length=1, max_length=4096)]
    messages: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    topics: Annotated[list[str], Field(max_length=100), FailFast()] = []


class ChunksQuery(RequestModel):
    """GET …/chunks"""

    offset: Count = 0
    max_bytes: Count = 1 << 20
    wait_ms: Duration = 0


class BatchesQuery(RequestModel):
    """GET …/batches; see docs/reference for the syntax of ``where`` and ``columns``."""

    offset: Count = 0
    end: Count = OFFSET_MAX
    where: str | None = None
    columns: str | None = None
    states: Literal["available", "all"] = "available"
    headers_only: bool = False
    max_rows: Annotated[int, Field(ge=1, le=OFFSET_MAX)] | None = None


class RangeQuery(RequestModel):
    """GET …/states"""

    first: Count = 0
    end: Count = OFFSET_MAX


class RetentionQuery(RequestModel):
    """GET /topics/{stream}/{topic}/retention"""

    within_ms: Duration = 3_600_000


class TimeQuery(RequestModel):
    """GET …/offset"""

    timestamp_us: Count


D = TypeVar("D", bound=RequestModel)
T = TypeVar("T")


async def parse_body(kind: type[D], request: Request, budget: ReceiveBudget) -> D:
    """Return the document of a body, an empty one being ``{}``. Raises Refusal if it is invalid."""
    body = await read_body(request, DOCUMENT_BYTES_MAX, budget) or b"{}"
    # if it is not JSON, pydantic reports the place
    with contextlib.suppress(ValueError):
        document = from_json(body)
        require_known_members(kind, document)
        with contextlib.suppress(ValidationError):
            return kind.model_validate(document, strict=True)
        del document
        await asyncio.sleep(0)
    # a second time only to refuse it in the words of JSON: a megabyte takes ten milliseconds each time that it is read
    try:
        return kind.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise Refusal(Reason.MALFORMED, sentence(error, "the body")) from None


def require_known_members(kind: type[RequestModel], document: object, place: str = "") -> None:
    """Raise Refusal for the first member that a request does not declare.

    Pydantic makes an error of each, which takes two seconds of the event loop for a megabyte of them.
    """
    if kind.model_config.get("extra") != "forbid" or not isinstance(document, dict):
        return
    unknown = next((name for name in document if name not in kind.model_fields), None)
    if unknown is not None:
        raise Refusal(Reason.MALFORMED, f"{place}{unknown}: extra inputs are not permitted; leave it out")


async def parse_rows(kind: type[D], rows: Iterable[object], name: str) -> list[D]:
    """Return the documents of a list; others have their turn meanwhile. Raises Refusal for the first that is wrong.

    ``name`` is that of the list.
    """
    turn, parsed = Turn(), []
    for number, row in enumerate(rows):
        require_known_members(kind, row, f"{name}.{number}.")
        try:
            parsed.append(kind.model_validate(row, strict=True))
        except ValidationError as error:
            raise Refusal(Reason.MALFORMED, f"{name}.{number}.{sentence(error, 'the row')}") from None
        await turn.give_way()
    return parsed


def parse_query(kind: type[D], query: Mapping[str, str]) -> D:
    """Return what a query says. Raises Refusal if a parameter is unknown or wrong."""
    try:
        return kind.model_validate(dict(query))
    except ValidationError as error:
        raise Refusal(Reason.MALFORMED, sentence(error, "the query")) from None


def sentence(error: ValidationError, whole: str) -> str:
    """Return what is wrong with a document, in words; ``whole`` is what it is called."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or whole
    return f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def json_response(document: Any, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(json.dumps(document, separators=(",", ":")), status, media_type="application/json")


async def answer_document(document: Any) -> Response:
    """Return a JSON response of any size; others have their turn while it is built and while it is sent."""
    return InPieces(await finish_in_turns(encode_in_turns(document)), media_type="application/json")


def encode_in_turns(document: Any, *, ascii_only: bool = True) -> Turns[str]:
    """Return a document as JSON, encoded in turns: a megabyte in one piece keeps the loop for ten milliseconds."""
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=ascii_only).encode
    turn = TurnCounter()

    def encode_value(value: Any) -> Turns[str]:
        if turn.is_over():
            yield
        if isinstance(value, Mapping) and any(map(_is_nested, value.values())):
            members = []
            for name, member in value.items():
                members.append(f"{encode(str(name))}:{(yield from encode_value(member))}")
            return f"{{{','.join(members)}}}"
        if isinstance(value, (list, tuple)):
            rows = []
            for row in value:
                text = yield from encode_value(row)
                rows.append(text)
            return f"[{','.join(rows)}]"
        return encode(value)

    return (yield from encode_value(document))


def _is_nested(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple))


async def answer_rows(
    rows: Collection[T], describe: Callable[[T], Mapping[str, Any] | None], budget: RequestBudget
) -> Response:
    """Return a JSON list of what ``describe`` makes of each row; None leaves one out.

    Others have their turn while thousands are looked at and while they are sent. After its first turn a list waits
    for memory: a request of a line may list all that the broker has.
    """
    turn, documents = Turn(), []
    reservation: MemoryReservation | None = None
    try:
        for row in rows:
            if turn.is_over() and reservation is None:
                reservation = await budget.wait_for(ROW_BYTES * len(rows))
            document = describe(row)
            if document is not None:
                documents.append(json.dumps(document, separators=(",", ":")))
            await turn.give_way()
        return InPieces(f"[{','.join(documents)}]", media_type="application/json")
    finally:
        if reservation is not None:
            reservation.release()


_STATUS: Final[Mapping[Reason, int]] = {
    **{reason: 404 for reason in Reason if reason.value.endswith("not_found")},
    Reason.NO_PARTITIONS: 404,
    **{reason: 409 for reason in Reason if reason.value.endswith("exists")},
    **dict.fromkeys(
        (
            Reason.AMBIGUOUS_NAME,
            Reason.STALE_GENERATION,
            Reason.OUT_OF_SEQUENCE,
            Reason.WRITER_ID_REUSED,
            Reason.TRANSACTION_NOT_OPEN,
        ),
        409,
    ),
    **{reason: 413 for reason in Reason if reason.value.endswith("too_large")},
    Reason.UNAUTHORIZED: 403,
    Reason.LAST_ADMINISTRATOR: 409,
    **dict.fromkeys((Reason.READ_ONLY, Reason.DISK_FULL, Reason.STOPPING), 503),
}
"""HTTP status by reason; all others are 400."""


def error_response(error: LadingError) -> Response:
    """``{"reason", "message"}`` with the status of the reason."""
    reason = error.reason if isinstance(error, Refusal | MalformedMessage) else Reason.MALFORMED
    return json_response({"reason": reason.value, "message": str(error)}, _STATUS.get(reason, 400))
