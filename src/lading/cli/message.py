"""``lading message``: send, poll and tail messages with typed headers."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..model.errors import CorruptError, LocalError
from .options import DEFAULT_SERVER, AsOutput, From, Server, States, Where
from .output import Output, json_line, literal, meter, print_note

if TYPE_CHECKING:
    from ..model.message import Message

app = typer.Typer(help="Send and read messages.", no_args_is_help=True)
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition (from 0).")]
QUEUE_WAIT_S = 2.0
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
    topic: str,
    payload: Annotated[str | None, typer.Argument(help="Payload; '-' reads stdin. Omit for an empty payload.")] = None,
    header: HeaderOptions = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", help="Message key; messages with the same key go to the same partition."),
    ] = None,
    partition: Partition = None,
    lines: Annotated[bool, typer.Option("--lines", "-l", help="Send each line of stdin as one message.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="Read the payload from a file.")
    ] = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Send one message, or one per line of stdin.

    Examples:

        lading message send flights '{"tail":"N14228"}' -H carrier=UA -H delay:uint16=12 -H via

        seq 1000 | lading message send numbers --lines -H source=seq
    """
    from ..client.producer import Producer
    from .headers_option import parse_headers

    headers = parse_headers(header or [])
    sent = 0
    with Producer(server) as producer, meter("sending", None) as progress:
        for body in _payloads(payload, file, lines):
            producer.send(
                topic, body, key=key.encode() if key is not None else None, headers=list(headers), partition=partition
            )
            sent += 1
            progress.advance(1)
    print_note(f"sent [bold]{sent:,}[/] message(s) to {topic}")


def _payloads(payload: str | None, file: Path | None, lines: bool) -> Iterator[bytes | None]:
    if sum((payload is not None, file is not None, lines)) > 1:
        raise LocalError("give the payload once: as an argument, as --file, or as --lines from stdin")
    if lines:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
    elif file is not None:
        yield file.read_bytes()
    elif payload == "-":
        yield sys.stdin.buffer.read()
    else:
        yield None if payload is None else payload.encode()


@app.command()
def poll(
    topic: str,
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
    from_: From = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Read messages and exit. With --output json, prints one object per line.

    Examples:

        lading message poll flights --where "carrier = 'UA' AND delay > 15"

        lading message poll flights --offset -5 --output json | jq .headers
    """
    found = 0
    from ..transports.open import is_queue

    # what a log has is there at once; a queue gives it when it has seen the reader
    wait_s = QUEUE_WAIT_S if is_queue(from_) else 0
    for message in _messages(topic, from_, offset, partition, where, states, group, timeout_s=wait_s):
        show(message, output)
        found += 1
        if found >= count:
            break
    if output is Output.TEXT:
        print_note(f"{found} message(s)" + ("" if found else f"; nothing in {topic} from {offset} on matches"))
    if where is not None:
        from .connection import absent_headers

        for sentence in absent_headers(from_, topic, where, states, found=found > 0):
            print_note(sentence)


@app.command()
def tail(
    topic: str,
    offset: Annotated[
        str, typer.Option("--offset", help="Where to start: latest, earliest, an offset, or -N for the last N.")
    ] = "latest",
    partition: Partition = None,
    where: Where = None,
    states: States = "available",
    from_: From = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Follow a topic until Ctrl-C.

    Example:

        lading message tail flights --where "delay > 60"
    """
    for message in _messages(topic, from_, offset, partition, where, states, None, timeout_s=None):
        show(message, output)


def _messages(
    topic: str, from_: str, offset: str, partition: int | None, where: str | None, states: States, group: str | None,
    *, timeout_s: float | None,
) -> Iterator[Message]:  # fmt: skip
    from ..client.consumer import Consumer

    bound = _bound(offset)
    start = bound if partition is None else {partition: bound}
    with Consumer(from_, topic, group=group, where=where, states=states, start=start, timeout_s=timeout_s) as consumer:
        yield from consumer


def _bound(offset: str) -> str | int | datetime:
    if offset in ("earliest", "latest"):
        return offset
    if offset.removeprefix("-").isdigit():
        return int(offset)
    try:
        return datetime.fromisoformat(offset).astimezone()
    except ValueError:
        raise LocalError(
            f"--offset {offset!r}: write earliest, latest, a number, -N for the last N, or a time like 2026-01-31T12:00"
        ) from None


def as_json(message: Message) -> dict[str, Any]:
    """Return a message as one JSON object; bytes that are not UTF-8 become ``{"base64": …}``."""
    return {
        "stream": message.stream, "topic": message.topic, "partition": message.partition, "offset": message.offset,
        "state": message.state.word, "timestamp_us": message.timestamp_us,
        "id": message.id.hex() if message.id is not None else None, "checksum": message.checksum,
        "key": _json_bytes(message.key),
        "headers": [
            {"key": key, "kind": _kind_word(kind), "value": _json_value(kind, data)}
            for key, kind, data in message.headers
        ],
        "payload": _json_bytes(message.payload),
    }  # fmt: skip


def _kind_word(kind: int) -> str | int:
    from ..model.kinds import Kind

    return Kind(kind).word if kind in Kind._value2member_map_ else kind


def _json_value(kind: int, data: bytes | None) -> Any:
    from ..model.kinds import decode_value

    try:
        value = decode_value(kind, data)
    except CorruptError:
        value = data
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return _json_bytes(value) if isinstance(value, bytes) else value


def _json_bytes(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def show(message: Message, output: Output) -> None:
    """Print one message to stdout."""
    if output is Output.JSON:
        json_line(as_json(message))
        return
    from rich.console import Console

    from ..model.values import format_value

    moment = f"{message.timestamp:%Y-%m-%d %H:%M:%S.%f}"
    place = f"[bold]{literal(message.topic)}[/] {message.partition}:{message.offset}  [dim]{moment}[/]"
    state = "" if message.state == 1 else f"  [red]{message.state.word}[/]"
    key = "" if message.key is None else f"  key={literal(_text(message.key))}"
    console = Console(highlight=False, soft_wrap=True)
    console.print(place + state + key)
    for name, kind, value in message.headers:
        word, _, text = format_value(kind, value).partition(": ")
        console.print(f"  {literal(name)} = [dim]{word}:[/] {literal(_text(text))}")
    console.print("  [dim]no payload[/]" if message.payload is None else f"  {literal(_text(message.payload))}")


def _text(value: Any, most: int = 500) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = "0x" + value.hex()
    elif isinstance(value, dict):
        value = "0x" + base64.b64decode(value["base64"]).hex()
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
