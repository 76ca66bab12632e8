"""``lading message``: send, poll and tail messages with typed headers."""

from __future__ import annotations

import base64
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import randrange
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from ..client.message_json import MessageToSend, parse_lines, to_json
from ..client.units import parse_bound
from ..model.errors import LadingError, LocalError
from .message_format import MEANINGS, compile_format, indent_json
from .options import DEFAULT_SERVER, AsOutput, From, Server, States, TopicName, Where
from .output import Output, format_count, json_line, literal, meter, print_note
from .payload_options import (
    PayloadFormat,
    PayloadMessage,
    PayloadRegistry,
    PayloadSchema,
    SubjectStrategy,
    gather_payload,
)
from .topic import print_invisible

if TYPE_CHECKING:
    from ..model.message import Message
    from ..payloads.form import PayloadForm

app = typer.Typer(help="Send and read messages.", no_args_is_help=True)
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition (from 0).")]
Form = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="TEXT", help=f"What is printed of a message, e.g. '%o %k %h{{carrier}}': {MEANINGS}."
    ),
]
HeadersOnly = Annotated[bool, typer.Option("--headers-only", help="Leave the payload out.")]
QUEUE_WAIT_S = 2.0
JSON_LINE_BYTES = 80
"""A JSON payload is shown in one line up to this size, in indented lines beyond it."""
JSON_LINES = 40
"""Lines of a payload that are shown."""
HeaderOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="KEY[:KIND][=VALUE]",
        help="Add a header. May be repeated; order and duplicates are kept. Without =VALUE the value is null.",
    ),
]


@app.command()
def send(
    topic: TopicName,
    payload: Annotated[
        str | None, typer.Argument(help="Payload; '-', or a pipe or file as stdin and no payload: stdin.")
    ] = None,
    header: HeaderOptions = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", help="Message key; messages with the same key go to the same partition."),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Message id: a UUID, 32 hexadecimal digits, or a number."),
    ] = None,
    partition: Partition = None,
    lines: Annotated[bool, typer.Option("--lines", "-l", help="Send each line of stdin as one message.")] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Send each line of stdin as a message that message poll --output json wrote."),
    ] = False,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="Read the payload from a file.")
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="FILE|SUBJECT",
            help="Encode payloads, which are JSON, by a schema: an .avsc, .proto or .json file, or a subject of "
            "--registry.",
        ),
    ] = None,
    schema_message: Annotated[
        str | None,
        typer.Option(
            "--schema-message", metavar="NAME", help="The message of a .proto file. Default: its first."
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", metavar="URL",
            help="Schema registry: payloads begin with the schema's id. That of a file is registered as TOPIC-value.",
        ),
    ] = None,
    subject_strategy: SubjectStrategy = None,
    server: Server = DEFAULT_SERVER,
) -> None:  # fmt: skip
    """Send one message, or one per line of stdin.

    Examples:

        lading message send flights '{"tail":"N14228"}' -H carrier=UA -H delay:uint16=12 -H via

        date | lading message send times

        seq 1000 | lading message send numbers --lines -H source=seq

        lading message poll flights -n 100 --output json | lading message send copies --json

        lading message send orders '{"id": "A-1"}' --schema order.avsc --registry http://127.0.0.1:8081
    """
    from ..client.partitioning import FIRST_TURNS
    from ..client.producer import Producer
    from .headers_option import describe_colons, parse_headers

    if json and (header or key is not None):
        raise LocalError("--json has the headers and the key of each message; leave -H and --key out")
    if id is not None and (json or lines):
        raise LocalError("--id is the id of one message; leave out --lines and --json")
    headers = parse_headers(header or [])
    for sentence in describe_colons(header or []):
        print_note(sentence)
    message_id = None if id is None else _parse_id(id)
    encode = _make_encoder(schema, registry, topic, schema_message or "", subject_strategy)
    sent = 0
    # random, since each command is a new producer: beginning with partition 0 would put all single messages there
    made = Producer(server, first_turn=randrange(FIRST_TURNS))
    try:
        with made as producer, meter("sending", None) as progress:
            for one in _to_send(payload, file, lines, json):
                if isinstance(one, MessageToSend):
                    producer.send(topic, encode(one.payload), key=one.key, headers=one.headers, partition=partition)
                else:
                    given = key.encode() if key is not None else None
                    producer.send(
                        topic, encode(one), key=given, headers=list(headers), partition=partition, id=message_id
                    )
                sent += 1
                progress.advance(1)
    except LadingError:
        if sent > 1:
            print_note(f"sent {sent - made.unsent} of {format_count(sent, 'message')} that were read")
        raise
    created = "".join(
        f" (new topic, {format_count(len(meta.partitions), 'partition')})" for meta in producer.created_topics
    )
    print_note(f"sent [bold]{format_count(sent, 'message')}[/] to {topic}{created}")
    for meta in producer.created_topics:
        print_invisible(server, meta.name, len(meta.partitions))


def _make_encoder(
    schema: str | None, registry: str | None, topic: str, message: str, strategy: str | None
) -> Callable[[bytes | None], bytes | None]:
    """Return the function that encodes a payload from its text, by a schema or unchanged; None without a payload."""
    if schema is None:
        if registry is not None:
            raise LocalError("--registry needs a schema; name one with --schema FILE or --schema SUBJECT")
        if message:
            raise LocalError("--schema-message is that of a .proto file; name the file with --schema")
        if strategy is not None:
            raise LocalError("--subject-strategy is for a schema of a file; name the file with --schema")
        return lambda payload: payload
    from ..registry.payload_encoder import find_writer_schema

    writer = find_writer_schema(schema, topic, registry=registry, subject_strategy=strategy, message=message)
    encode = writer.make_encoder()
    return lambda payload: None if payload is None else encode(payload)


def _parse_id(text: str) -> bytes | int | UUID:
    """Parse the option --id; 32 digits are hexadecimal, as ids are printed."""
    with suppress(ValueError):
        return UUID(text)
    if text.isascii() and text.isdigit():
        return int(text)
    raise LocalError(f"--id {text}: write a UUID, 32 hexadecimal digits, or a number")


def _is_stdin_wired() -> bool:
    """Whether standard input is a pipe or a file, as in ``echo hi | lading message send t``; kcat reads it too."""
    with suppress(OSError, ValueError):
        mode = os.fstat(sys.stdin.fileno()).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
    return False


def _to_send(
    payload: str | None, file: Path | None, lines: bool, json: bool
) -> Iterator[bytes | None] | Iterator[MessageToSend]:
    if sum((payload is not None, file is not None, lines, json)) > 1:
        raise LocalError("give the payload once: as an argument, as --file, or as --lines or --json from stdin")
    return parse_lines(sys.stdin.buffer) if json else _read_payloads(payload, file, lines)


def _read_payloads(payload: str | None, file: Path | None, lines: bool) -> Iterator[bytes | None]:
    if lines:
        for text in sys.stdin.buffer:
            yield text.rstrip(b"\r\n")
    elif file is not None:
        yield file.read_bytes()
    elif payload == "-":
        yield sys.stdin.buffer.read()
    elif payload is None:
        # `echo hi |` sends hi; but many programs start others with an empty pipe, which means no payload
        text = sys.stdin.buffer.read() if _is_stdin_wired() else b""
        yield text.removesuffix(b"\n").removesuffix(b"\r") or None
    else:
        yield payload.encode()


@app.command()
def poll(
    topic: TopicName,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of messages.")] = 10,
    offset: Annotated[
        str,
        typer.Option("--offset", help="earliest, latest, a number, -N for the last N of each partition, or a time."),
    ] = "earliest",
    partition: Partition = None,
    where: Where = None,
    states: States = "available",
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Consumer group (NSQ: channel) to read as; commits its offsets."),
    ] = None,
    form: Form = None,
    headers_only: HeadersOnly = False,
    payload_format: PayloadFormat = None,
    payload_schema: PayloadSchema = None,
    payload_message: PayloadMessage = None,
    registry: PayloadRegistry = None,
    from_: From = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Read messages and exit. With --output json, prints one object per line.

    Examples:

        lading message poll flights --where "carrier = 'UA' AND payload.order.fare > 100"

        lading message poll flights --offset -5 --output json | jq .headers

        lading message poll flights --format '%o %k %h{carrier} %p{order.fare}'

        lading message poll orders --registry http://127.0.0.1:8081 --where "payload.amount > 100"
    """
    found = 0
    payload = gather_payload(payload_format, payload_schema, payload_message, registry)
    print_message = _make_printer(output, form, headers_only, payload)
    from ..transports.open import is_queue

    # messages of a log are there at once; a queue delivers them after it has noticed the reader
    wait_s = QUEUE_WAIT_S if is_queue(from_) else 0
    for message in _read_messages(topic, from_, offset, partition, where, states, group, payload, timeout_s=wait_s):
        print_message(message)
        found += 1
        if found >= count:
            break
    if where is not None:
        from .connection import absent_headers

        for sentence in absent_headers(from_, topic, where, states, found=found > 0, reads_json=payload is None):
            print_note(sentence)
    if output is Output.TEXT and form is None:
        print_note(format_count(found, "message") + ("" if found else f"; nothing in {topic} from {offset} on matches"))
        if found < count and states == "available" and (sentence := _describe_hidden(from_, topic, partition)):
            print_note(sentence)


def _describe_hidden(from_: str, topic: str, partition: int | None) -> str:
    """Return a sentence about the messages whose state hides them; empty without any, or if counting fails."""
    from ..model.errors import LadingError
    from ..transports.interface import Marking
    from .connection import open_source

    hidden: Counter[str] = Counter()
    # the messages are printed already: a login without the right to count states must not make the command fail
    with suppress(LadingError), open_source(from_) as transport:
        if isinstance(transport, Marking):
            for row in transport.state_counts(topic):
                if partition in (None, row["partition"]):
                    hidden.update({state: number for state, number in row["states"].items() if state != "available"})
    parts = [f"{number:,} {state.replace('_', ' ')}" for state, number in hidden.items() if number]
    if not parts:
        return ""
    messages, verb = format_count(hidden.total(), "message"), "is" if hidden.total() == 1 else "are"
    return f"{messages} of {topic} {verb} hidden: {', '.join(parts)}; --states all shows them"


@app.command()
def tail(
    topic: TopicName,
    offset: Annotated[
        str, typer.Option("--offset", help="Where to start: latest, earliest, an offset, or -N for the last N.")
    ] = "latest",
    partition: Partition = None,
    where: Where = None,
    states: States = "available",
    form: Form = None,
    headers_only: HeadersOnly = False,
    payload_format: PayloadFormat = None,
    payload_schema: PayloadSchema = None,
    payload_message: PayloadMessage = None,
    registry: PayloadRegistry = None,
    from_: From = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Follow a topic until Ctrl-C.

    Example:

        lading message tail flights --where "delay > 60"
    """
    payload = gather_payload(payload_format, payload_schema, payload_message, registry)
    print_message = _make_printer(output, form, headers_only, payload)
    for message in _read_messages(topic, from_, offset, partition, where, states, None, payload, timeout_s=None):
        print_message(message)


def _read_messages(
    topic: str, from_: str, offset: str, partition: int | None, where: str | None, states: States, group: str | None,
    payload: Mapping[str, str] | None, *, timeout_s: float | None,
) -> Iterator[Message]:  # fmt: skip
    from ..client.consumer import Consumer

    bound = parse_bound("--offset", offset)
    start = bound if partition is None else {partition: bound}
    with Consumer(
        from_, topic, group=group, where=where, states=states, start=start, timeout_s=timeout_s, payload=payload
    ) as consumer:
        yield from consumer


def _make_printer(
    output: Output, form: str | None, headers_only: bool, payload: Mapping[str, str] | None
) -> Callable[[Message], None]:
    """Return the function that prints a message: as ``--format`` says, or as text or JSON, shortened by
    ``--headers-only``.
    """
    from ..registry.payload_form import parse_payload_form

    if form is not None:
        if output is Output.JSON or headers_only:
            raise LocalError("--format says all that is printed; leave --output json and --headers-only out")
        to_text = compile_format(form, parse_payload_form(payload))

        def print_message(message: Message) -> None:
            sys.stdout.write(to_text(message) + "\n")
            sys.stdout.flush()

        return print_message
    schemas = None if payload is None else parse_payload_form(payload)
    decode = None if schemas is None else _PayloadDecoder(schemas)
    return lambda message: show(message, output, headers_only=headers_only, decode=decode)


def show(
    message: Message, output: Output, *, headers_only: bool = False, decode: _PayloadDecoder | None = None
) -> None:
    """Print one message to stdout; with ``headers_only`` without its payload.

    In text the payload is decoded by ``decode``, in JSON it is the payload that was sent.
    """
    if output is Output.JSON:
        document = to_json(message)
        if headers_only:
            del document["payload"]
        json_line(document)
        return
    from rich.console import Console

    from ..model.message import format_time
    from ..model.values import format_value

    moment = format_time(message.timestamp_us)
    place = f"[bold]{literal(message.topic)}[/] {message.partition}:{message.offset}  [dim]{moment}[/]"
    state = "" if message.state == 1 else f"  [red]{message.state.word}[/]"
    key = "" if message.key is None else f"  key={literal(_shorten_text(message.key))}"
    console = Console(highlight=False, soft_wrap=True)
    console.print(place + state + key)
    for name, kind, value in message.headers:
        word, _, text = format_value(kind, value).partition(": ")
        console.print(f"  {literal(name)} = [dim]{word}:[/] {literal(_shorten_text(text))}")
    if headers_only:
        return
    if message.payload is None:
        console.print("  [dim]no payload[/]")
        return
    payload, note = message.payload, ""
    if decode is not None:
        payload, note = decode(message, payload)
    if note:
        console.print(f"  [dim]{literal(note)}[/]")
    indented = indent_json(payload, JSON_LINES) if len(payload) > JSON_LINE_BYTES else None
    if indented is None:
        console.print(f"  {literal(_shorten_text(payload))}")
        return
    lines, count = indented
    for line in lines:
        console.print(f"  {literal(_shorten_text(line))}")
    if count > JSON_LINES:
        console.print(f"  [dim]… ({count:,} lines; --output json shows all)[/]")


REGISTRY_PAUSE_S: Final = 5.0
"""After a registry did not respond, it is not asked again for this time."""


class _PayloadDecoder:
    """Payloads that name a schema, as JSON; unchanged while the registry does not respond."""

    def __init__(self, schemas: PayloadForm) -> None:
        self._schemas = schemas
        self._pause_until_s = 0.0

    def __call__(self, message: Message, payload: bytes) -> tuple[bytes, str]:
        """Return a payload as JSON with the schema that it names; if it cannot be decoded, the payload itself and the
        reason.
        """
        from ..model.errors import RemoteError
        from ..payloads.decoded import decode_message

        if time.monotonic() < self._pause_until_s:
            return payload, ""
        try:
            found = decode_message(self._schemas, message)
        except RemoteError as error:
            # messages are shown anyway: each attempt takes a second, or half a minute without a response
            self._pause_until_s = time.monotonic() + REGISTRY_PAUSE_S
            print_note(f"payloads are shown as they are: {error}")
            return payload, ""
        if found is None:
            return payload, ""
        if found.text is None:
            return payload, f"schema {found.schema}: {found.problem}"
        return found.text.encode(), f"{found.kind} by schema {found.schema}"


def _shorten_text(value: Any, most: int = 500) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = "0x" + value.hex()
    elif isinstance(value, dict):
        value = "0x" + base64.b64decode(value["base64"]).hex()
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
