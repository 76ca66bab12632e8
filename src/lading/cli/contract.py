"""``lading contract``: a contract inferred from the headers of a topic, and drift from an existing one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from ..schemas.subjects import TOPIC
from .options import DEFAULT_SERVER, AsOutput, From, States, TopicName, word
from .output import Output, format_count, json_line, meter, print_document, print_note, print_table
from .payload_options import SubjectStrategy

if TYPE_CHECKING:
    from ..payloads.form import PayloadForm

Form = Literal["odcs"]
app = typer.Typer(name="contract", help="Infer, check and export header contracts.", no_args_is_help=True)
DRIFT = {
    "header": "header or member", "kind": "drift", "messages": "messages", "sentence": "it", "breaks": "breaks",
    "table": "the table",
}  # fmt: skip


@app.callback()
def root() -> None:
    """Group of the contract commands."""


@app.command()
def infer(
    topic: TopicName,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Report drift from the contract in this file, of a pipeline or [headers] alone; exit 1 if any.",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE|SUBJECT|ID",
            help="Take columns of the payload from a schema: an .avsc, .json, .proto or .desc file, or one of "
            "--registry.",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="URL",
            help="Schema registry. Without --schema columns are those of the newest version of TOPIC-value.",
        ),
    ] = None,
    subject_strategy: SubjectStrategy = None,
    schema_message: Annotated[
        str | None,
        typer.Option(
            "--schema-message",
            metavar="NAME",
            help="The message of Protobuf. Default: of a file its first, of a registry the one that messages are.",
        ),
    ] = None,
    from_: From = DEFAULT_SERVER,
    states: States = "available",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Read at most this many messages.")] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Infer a contract from headers and JSON payloads of a topic, or report drift from an existing one.

    With --against the exit code is 1 if the topic has drifted; the changes are listed, and whether they break a table.

    Examples:

        lading contract infer flights >> flights.toml

        lading contract infer flights --against flights.toml

        lading contract infer orders --schema order.avsc

        lading contract infer orders --registry http://127.0.0.1:8081
    """
    from ..model.errors import LocalError
    from ..pipeline.contract import compare_newest_schema, drift, headers_section, profile_topic
    from ..pipeline.settings import load_contract
    from ..tables.schema_columns import (
        add_schema_columns,
        fetch_field_schema,
        find_used_message,
        find_used_records,
        find_used_subject,
        read_field_schema,
    )
    from .connection import open_source

    if against is not None and (schema is not None or registry is not None):
        raise LocalError(
            "--against compares with a contract, and --schema and --registry write one; leave one of them out"
        )
    contract = None if against is None else load_contract(against)
    parsed, source, words, record = None, {}, "", ""

    def find_used(form: PayloadForm) -> str:
        return schema_message or record or find_used_message(from_, topic, form, states)

    def find_records(form: PayloadForm) -> list[str]:
        return find_used_records(from_, topic, form, states)

    if subject_strategy is not None and (registry is None or schema is not None):
        raise LocalError("--subject-strategy names the subject of --registry, and --schema names a schema; see --help")
    if registry is not None and not (schema is not None and Path(schema).is_file()):
        strategy = subject_strategy or TOPIC
        if schema is None and strategy != TOPIC:
            schema, record = find_used_subject(registry, topic, strategy, find_records)
        parsed, words = fetch_field_schema(registry, schema or f"{topic}-value", find_used)
        source = {"registry": registry} | ({} if strategy == TOPIC else {"subject_strategy": strategy})
    elif schema is not None:
        parsed = read_field_schema(Path(schema), schema_message or "")
        # a contract may be kept in another directory than this one
        source = {"schema": str(Path(schema).absolute())} | ({} if registry is None else {"registry": registry})
    with open_source(from_) as transport:
        total = sum(part.end_offset - part.first_offset for part in transport.topic(topic).partitions)
    with meter("reading headers", min(total, limit or total)) as progress:
        found = profile_topic(from_, topic, contract=contract, states=states, limit=limit, on_rows=progress.advance)
    if not found.statistics.messages:
        raise LocalError(
            f"topic {topic!r} holds no messages that can be read, so nothing can be said of its headers; "
            "send messages first, or name another topic"
        )
    if contract is None:
        if output is Output.JSON:
            document = {"messages": found.statistics.messages, "headers": found.statistics.rows()}
            json_line(document | {"payload": found.members.document()})
        elif parsed is not None:
            if words:
                print_note(f"columns of the payload are those of {words}")
            section = headers_section(found.statistics, topic)
            typer.echo(add_schema_columns(section, parsed, source, schema_message or ""), nl=False)
        else:
            typer.echo(headers_section(found.statistics, topic, members=found.members), nl=False)
            for sentence in found.members.describe():
                print_note(sentence)
        return
    differences = [*drift(found, contract), *compare_newest_schema(contract, topic, find_used, find_records)]
    if differences:
        print_table([asdict(one) for one in differences], DRIFT, output=output)
    if differences and output is Output.TEXT:
        broken = sum(one.breaks for one in differences)
        changes = format_count(len(differences), "change")
        print_note(f"{broken} of {changes} would break a table" if broken else "no table breaks by that")
    if differences:
        raise typer.Exit(1)
    if output is Output.JSON:
        json_line({"topic": topic, "messages": found.statistics.messages, "changes": 0})
        return
    messages = format_count(found.statistics.messages, "message")
    print_note(f"no drift: {messages} of {topic!r}, as {against} says")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's TOML file.")],
    form: Annotated[
        Form, typer.Option("--format", parser=word(get_args(Form)), metavar="odcs", help="The standard to write.")
    ] = "odcs",
    version: Annotated[str, typer.Option("--contract-version", help="The version of the contract itself.")] = "1.0.0",
) -> None:
    """Write the contract of a pipeline in the Open Data Contract Standard, as JSON, which is YAML too.

    Example:

        lading contract export flights.toml --format odcs > flights.odcs.yaml
    """
    from ..pipeline.odcs import to_odcs
    from ..pipeline.settings import PipelineSettings

    assert form == "odcs", "another form is refused before"
    print_document(to_odcs(PipelineSettings.load(file), version))
