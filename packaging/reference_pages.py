"""Writes what pages take from the code: commands, settings, metrics, benchmarks. `make reference` runs it.

Pages keep their own words; a table stands between two comments, `<!-- NAME: … -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Final, Literal, get_args, get_origin

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ROOT / "docs" / "reference"
PERFORMANCE: Final = "../explanation/performance.md"
MARK: Final = "written by `make reference` from the code: change it there"
LINKS: Final = {
    "carrier with": "[carrier](carrier.md#switching-it-off) with",
    "as the user named": "as the [user](../how-to/secure.md#users-by-certificate) named",
    "release of Iggy of": "[release of Iggy](protocols/iggy.md#releases) of",
    "see listeners": "see [below](#listeners)",
    "See tokens": "See [below](#tokens)",
    "see log lines": "see [below](#log-lines)",
    "see who may send HTTP requests": "see [below](#who-may-send-http-requests)",
    "the claim `iss`": "the claim `iss`, see [tokens of another issuer](../how-to/secure.md#tokens-of-another-issuer)",
}
"""Phrases of docstrings that a page shows as links."""


def main() -> int:
    """Write the pages, or with --check tell those that are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    is_check = parser.parse_args().check
    stale = [name for name, text in pages().items() if (PAGES / name).read_text() != text]
    if not is_check:
        for name, text in pages().items():
            (PAGES / name).write_text(text)
    if stale:
        print(f"{'stale, run `make reference`' if is_check else 'written'}: {', '.join(stale)}", file=sys.stderr)
    return int(bool(stale) and is_check)


def pages() -> dict[str, str]:
    """Return the text that each page should have, by its name."""
    parts: dict[str, dict[str, str]] = {
        "commands.md": {"commands": "\n".join(describe_commands())},
        "command-line.md": {"summary": table(("command", "what it does"), summarize_commands())},
        "settings.md": {"settings": table(("key", "default", "values", "meaning"), describe_settings())},
        "metrics.md": {
            "broker": table(("name", "type", "labels", "meaning"), asyncio.run(describe_metrics())),
            "pipeline": table(("name", "type", "labels", "meaning"), describe_pipeline_metrics()),
            "mirrors": table(("name", "type", "labels", "meaning"), describe_mirror_metrics()),
        },
    }
    parts["kafka.md"] = {
        "not served": table(("not served", "APIs", "why", "instead"), describe_missing_kafka_apis()),
        "newer versions": table(("API", "served up to", "not served", "what these change"), describe_newer_versions()),
    }
    for page, protocol in (("iggy-differences.md", "iggy"), ("nsq.md", "nsq")):
        parts[page] = {"not served": table(("not served", "why", "instead"), describe_not_served(protocol))}
    parts[PERFORMANCE] = {"benches": table(("benchmark", "what it asks"), describe_benches())}
    return {name: fill(name, found) for name, found in parts.items()}


def fill(name: str, parts: Mapping[str, str]) -> str:
    """Return a page with these parts in place of those that it has."""
    text = (PAGES / name).read_text()
    for part, written in parts.items():
        between = re.compile(rf"<!-- {part}: [^\n]* -->\n.*?<!-- end -->", re.DOTALL)
        if len(between.findall(text)) != 1:
            raise ValueError(f"{name}: there is no place for {part!r}")
        whole = f"<!-- {part}: {MARK} -->\n\n{written}\n\n<!-- end -->"
        text = between.sub(lambda _, whole=whole: whole, text)
    return text


def table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(lines[0])} |" if number == 0 else f"|{'|'.join(line)}|" if number == 1
                     else f"| {' | '.join(line)} |" for number, line in enumerate(lines))  # fmt: skip


# protocols


def describe_missing_kafka_apis() -> Iterator[Sequence[str]]:
    """Yield a row for each group of APIs that the broker does not serve."""
    from lading.dialects.kafka.not_served import NOT_SERVED

    for apis, row in NOT_SERVED:
        yield row.subject, ", ".join(f"{name} ({key})" for key, name in apis.items()), row.reason, row.instead


def describe_newer_versions() -> Iterator[Sequence[str]]:
    """Yield a row for each served API of which Kafka has newer versions."""
    from lading.dialects.kafka.not_served import NEWER
    from lading.dialects.kafka.versions import SERVED

    for key, row in NEWER.items():
        versions = str(row.first) if row.first == row.last else f"{row.first}–{row.last}"
        yield SERVED[key].name, str(SERVED[key].high), versions, row.change


def describe_not_served(protocol: str) -> Iterator[Sequence[str]]:
    """Yield the rows of a protocol's page."""
    yield from resolve_name(f"lading.dialects.{protocol}.not_served:NOT_SERVED")


# commands


def list_commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the commands that do something, with their words."""
    for name, one in getattr(command, "commands", {}).items():
        if not one.hidden:
            yield from list_commands(one, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


def _root() -> Any:
    from typer.main import get_command

    from lading.cli.app import build_app

    return get_command(build_app())


def _commands() -> Iterator[tuple[str, Any]]:
    return list_commands(_root())


def summarize_commands() -> Iterator[Sequence[str]]:
    """Yield a row for each command."""
    for path, command in _commands():
        first = (command.help or "").partition(". ")[0].partition("\n")[0].removesuffix(".")
        yield f"[`lading {path}`](commands.md#lading-{path.replace(' ', '-')})", _plain(first)


def describe_commands() -> Iterator[str]:
    """Yield the paragraphs of all commands."""
    shared = [one for one in _root().params if not one.hidden]
    yield table(("option before the command", "what it is"), ((_option(one), _cell(one.help)) for one in shared))
    for path, command in _commands():
        said, _, examples = (command.help or "").partition("Examples:")
        shown = [param for param in command.params if not param.hidden]
        arguments = [param for param in shown if not param.opts[0].startswith("-")]
        options = [param for param in shown if param.opts[0].startswith("-")]
        yield ""
        yield f"## lading {path}"
        yield ""
        words = " ".join(["lading", path, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
        yield f"`{words}`"
        for paragraph in re.split(r"\n\s*\n", said.strip()):
            yield ""
            yield from textwrap.wrap(_plain(paragraph), 120, break_long_words=False, break_on_hyphens=False)
        rows = [(f"`{_argument(one)}`", _cell(one.help)) for one in arguments]
        rows += [(_option(one), _cell(one.help) + _default(one)) for one in options]
        if rows:
            yield ""
            yield table(("argument or option" if arguments else "option", "what it is"), iter(rows))
        if examples.strip():
            yield ""
            yield from (f"    {line}" for line in examples.split("\n\n") for line in [line.strip()] if line)


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    # several words, such as "[SRC] TOPIC", say by themselves what may be left out
    if " " in name:
        return str(name)
    many = "…" if param.nargs == -1 or param.multiple else ""
    return f"{name}{many}" if param.required else f"[{name}]{many}"


def _option(param: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    value = (param.metavar or _value(param.type_descriptor.annotation)).replace("|", "\\|")
    return names if param.is_flag else f"{names} `{value}`"


def _value(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if hasattr(annotation, "__members__"):
        return "|".join(str(one.value) for one in annotation)
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(annotation, "TEXT")


def _default(param: Any) -> str:
    value = getattr(param.default, "value", param.default)
    told = [f"Default: `{value}`."] if value not in (None, False, True, (), [], "") and not callable(value) else []
    if param.envvar:
        told.append(f"Variable: `{param.envvar}`.")
    return "".join(f" {one}" for one in told)


def _plain(text: str) -> str:
    """Return a help text as Markdown: without the marks of a terminal, in one line."""
    return " ".join(re.sub(r"\[/?(?:bold|dim|italic)?\]", "", text).split())


def _cell(text: str | None) -> str:
    return _plain(text or "").replace("|", "\\|").replace("<", "\\<")


# settings


def describe_settings() -> Iterator[Sequence[str]]:
    """Yield a row for each key, in the order of `lading config show`."""
    from lading.settings.loading import keys
    from lading.settings.settings import Settings

    meanings = read_meanings()
    for key in keys():
        model: Any = Settings
        *tables, name = key.split(".")
        for part in tables:
            model = model.model_fields[part].annotation
        field = model.model_fields[name]
        owner = next((one for one in model.__mro__ if (one.__name__, name) in meanings), None)
        if owner is None:
            raise ValueError(f"{key}: no docstring says what it means")
        meaning = meanings[owner.__name__, name]
        if len(tables) == 2 and name == "enabled":
            meaning = f"whether it listens: {_inline(model.__doc__)}"
        yield f"`{key}`", _shown_default(field.default, name), _values(field), _linked(meaning)


def read_meanings() -> dict[tuple[str, str], str]:
    """Return what stands below each key of a class of settings, by names of class and key."""
    found = {}
    for name in ("settings", "endpoints", "sections"):
        tree = ast.parse((ROOT / "src" / "lading" / "settings" / f"{name}.py").read_text())
        for node in tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            for key, below in zip(node.body, node.body[1:], strict=False):
                if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name) and isinstance(below, ast.Expr):
                    assert isinstance(below.value, ast.Constant)
                    found[node.name, key.target.id] = _text(str(below.value.value))
    return found


def _text(docstring: str) -> str:
    text = _inline(docstring)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _inline(docstring: str) -> str:
    return " ".join(docstring.replace("``", "`").split()).removesuffix(".")


def _linked(meaning: str) -> str:
    for words, link in LINKS.items():
        meaning = meaning.replace(words, link, 1)
    return meaning.replace("|", "\\|")


def _shown_default(value: Any, name: str) -> str:
    from pydantic import ByteSize

    if value is None or value in ((), {}):
        return "–"
    if isinstance(value, ByteSize):
        return f"`{_size(int(value))}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


WORDS: Final = {
    "bool": "true, false", "int": "number", "float": "number", "ByteSize": "size", "Path": "path", "SecretStr": "text",
    "Address": "HOST:PORT", "str": "text",
}  # fmt: skip
"""What the reference calls the type of a setting."""


def _values(field: Any) -> str:
    """Return which values a setting takes: a word for its type, and its bounds."""
    from pydantic import ByteSize

    annotation = field.annotation
    kinds = [one for one in get_args(annotation) if one is not type(None)] if type(None) in get_args(annotation) else []
    kind = kinds[0] if kinds else annotation
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return ", ".join(f"`{one}`" for one in get_args(kind))
    bounds = {
        type(one).__name__: getattr(one, "ge", getattr(one, "gt", getattr(one, "le", None))) for one in field.metadata
    }
    show = _size if kind is ByteSize else "{:,}".format
    low, above, high = (bounds.get(name) for name in ("Ge", "Gt", "Le"))
    words = WORDS.get(getattr(kind, "__name__", ""), "words" if get_origin(kind) is tuple else "table")
    if low is not None and high is not None:
        return f"{words}, {show(low)} to {show(high)}"
    if high is not None and above is not None:
        return f"{words}, above {show(above)}, to {show(high)}"
    return words if low is None else f"{words}, from {show(low)}"


# metrics


async def describe_metrics() -> list[Sequence[str]]:
    """Return a row for each metric of a broker, in the order in which it shows them."""
    from lading.broker.broker import Broker
    from lading.dialects.protocols import ENDPOINTS
    from lading.endpoints.base.services import Services
    from lading.endpoints.encryption.renewal import CertificateRenewal
    from lading.runtime.metrics import Metrics
    from lading.serve.duties import make_duty_timer
    from lading.settings.settings import Settings

    metrics, settings = Metrics(), Settings()
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(1) as workers:
        broker = Broker.open(Path(directory), now_us=0)
        services = Services(broker, settings, metrics, workers)
        make_duty_timer(services)
        for name, spec in ENDPOINTS.items():
            resolve_name(spec.factory)(services, name)
        CertificateRenewal.of(services)
        sources = (await metrics.snapshot()).sources
        rows = [_metric(one) for one in sources]
        services.begin_stop()
        broker.stop()
    rows.append(("`process_…`", "gauge, counter", "–", "memory, CPU and open files of the process"))
    return rows


def describe_pipeline_metrics() -> Iterator[Sequence[str]]:
    """Yield a row for each metric of a running pipeline."""
    from lading.pipeline.metrics import PipelineMetrics

    for one in PipelineMetrics("")._sources:
        yield _metric(one)


def describe_mirror_metrics() -> Iterator[Sequence[str]]:
    """Yield a row for each metric of a service of mirrors."""
    from lading.mirror.service import MirrorService

    for one in MirrorService([]).list_metrics():
        yield _metric(one)


def _metric(one: Any) -> Sequence[str]:
    kind = type(one).__name__.lower()
    name = f"{one.name}_total" if kind == "counter" else one.name
    labels = ", ".join(getattr(one, "labels", ())) or "–"
    return f"`{name}`", kind, labels, _text(one.help.replace("|", "\\|"))


# benchmarks


def describe_benches() -> Iterator[Sequence[str]]:
    """Yield a row for each benchmark."""
    for path in sorted((ROOT / "bench").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "QUESTION":
                yield f"`{path.stem}`", _cell(ast.literal_eval(node.value))


if __name__ == "__main__":
    sys.exit(main())
