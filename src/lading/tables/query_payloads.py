"""Members of JSON payloads in SQL: ``payload.order.amount`` and ``payload ->> 'x'`` as functions over the bytes.

DuckDB reads members of text only, stops at the first text that is not JSON, and knows nothing of paths into bytes. Each
of these places becomes a call of a function that types members by the rules of payload columns. Unreadable values are
null and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..columns.contract import PayloadColumn, did_you_mean, parse_payload_type
from ..columns.seen_members import PayloadStatistics
from ..model.errors import LocalError
from ..payloads.paths import PAYLOAD, Path, write_path

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger("lading.tables")
TEXT_FUNCTION: Final = "payload_text"
_MEMBER_FUNCTION: Final = "payload_member_"
_JSON_WORD: Final = "json"


class PayloadUse(NamedTuple):
    """A place of a query that reads members of a payload: characters, the column, and the path unless SQL has it."""

    start: int
    end: int
    column: str
    path: Path | None
    topic: str | None
    """The topic that its qualifier names; None if it has none."""
    is_item: bool
    """Whether it is a column of the result without a name of its own."""


@dataclass
class _Function:
    """A function of DuckDB over payloads, and what it met that cannot be read."""

    name: str
    sentence: str
    convert: Callable[[Any], tuple[Any, int, int]]
    unreadable: int = 0
    malformed: int = 0

    def apply(self, payloads: Any) -> Any:
        """Return the values of a chunk of payloads."""
        values, unreadable, malformed = self.convert(payloads.combine_chunks())
        self.unreadable += unreadable
        self.malformed += malformed
        return values


@dataclass
class PayloadFunctions:
    """The functions that a query calls."""

    connection: Any
    functions: list[_Function] = field(default_factory=list)

    def rewrite(
        self,
        sql: str,
        uses: list[PayloadUse],
        sample: Callable[[str | None], Mapping[str, PayloadStatistics]],
        declared: Mapping[Path, str],
    ) -> str:
        """Return the query with calls of functions, which are created, in the place of ``uses``.

        ``declared`` are columns of topics by the path that they are from; ``sample`` returns what the payloads of a
        topic, or of all of the query, have in them. Raises LocalError for a path that no payload has.
        """
        names: dict[tuple[Path | None, str | None], str] = {}
        for use in sorted(uses, reverse=True):
            if use.path is not None and use.path in declared:
                call = '"' + declared[use.path].replace('"', '""') + '"'
                qualifier = use.column.rpartition(".")[0]
                call = f"{qualifier}.{call}" if qualifier else call
            else:
                key = use.path, use.topic if use.path is not None else None
                if key not in names:
                    names[key] = self._create(use, sample)
                call = f"{names[key]}({use.column})"
            if use.is_item and use.path is not None:
                call += ' as "' + write_path(use.path).replace('"', '""') + '"'
            sql = sql[: use.start] + call + sql[use.end :]
        return sql

    def warn(self) -> None:
        """Log a sentence for each function that met values which cannot be read."""
        # functions may see the same payloads
        if malformed := max((function.malformed for function in self.functions), default=0):
            LOG.warning("payloads that are not JSON objects, and have no members: %s", f"{malformed:,}")
        for function in self.functions:
            if function.unreadable:
                LOG.warning("%s", function.sentence.format(count=f"{function.unreadable:,}"))

    def _create(self, use: PayloadUse, sample: Callable[[str | None], Mapping[str, PayloadStatistics]]) -> str:
        import pyarrow as pa

        if use.path is None:
            function = _Function(TEXT_FUNCTION, "", _to_text)
            type_: pa.DataType = pa.string()
        else:
            word = _propose_type(use.path, sample(use.topic))
            type_, is_json = parse_payload_type(word)
            column = PayloadColumn("member", use.path, type_, json=is_json)
            text = write_path(use.path)
            sentence = (
                f"values of {text} that are not {column.word}, as those of the first messages are, and are null: "
                f"{{count}}; read them by payload ->> '…', or declare a type by --columns 'NAME TYPE from {text}'"
            )
            name = f"{_MEMBER_FUNCTION}{len(self.functions) + 1}"
            function = _Function(name, sentence, lambda payloads: _to_member(payloads, column))
        empty = pa.table({"member": pa.array([], type_)})
        duckdb_type = str(self.connection.from_arrow(empty).types[0])
        # DuckDB evaluates the annotations of what it is given: a lambda has none
        self.connection.create_function(
            function.name,
            lambda payloads: function.apply(payloads),
            ["BLOB"],
            duckdb_type,
            type="arrow",
            null_handling="special",
        )
        self.functions.append(function)
        return function.name


def find_payload_uses(tree: Any, topics: Mapping[str, str], tables: frozenset[str], texts: bool) -> list[PayloadUse]:
    """Return the places of a parsed query that read members of the payload of a topic.

    ``topics`` are the topics by alias; ``tables`` are the aliases of all else that has columns. With ``texts`` the
    payload is text already, which SQL itself can read. Raises LocalError for one that may be of a topic or a table.
    """
    from sqlglot import exp

    uses = []
    for column in tree.find_all(exp.Column):
        node: Any = column
        names = list(column.parts)
        while isinstance(node.parent, exp.Dot) and node.parent.this is node:
            node = node.parent
            names.append(node.expression)
        position = next((at for at, name in enumerate(names[:2]) if name.name.lower() == PAYLOAD), None)
        if position is None or any("start" not in name.meta for name in names):
            continue
        qualifier = names[0].name.lower() if position else None
        if PAYLOAD in topics or PAYLOAD in tables or (qualifier is not None and qualifier not in topics):
            # the name is that of a table, or the column is of another table
            continue
        path = tuple(name.name for name in names[position + 1 :]) or None
        if path is None and (texts or not _is_opened(node)):
            continue
        text = ".".join(name.sql(dialect="duckdb") for name in names[: position + 1])
        if qualifier is None and tables and topics:
            first = next(iter(topics))
            raise LocalError(
                f"query: {text} may be of a topic or of a table; write the name before it, such as {first}.{text}"
            )
        if not topics:
            continue
        # a payload that SQL opens itself keeps all else
        end = names[-1].meta["end"] + 1 if path else names[position].meta["end"] + 1
        is_item = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        topic = None if qualifier is None else topics[qualifier]
        uses.append(PayloadUse(names[0].meta["start"], end, text, path, topic, is_item))
    return uses


def _is_opened(node: Any) -> bool:
    """Return whether SQL takes a column for JSON: an arrow, a function of JSON, or a cast to it."""
    from sqlglot import exp

    parent = node.parent
    if isinstance(parent, exp.Cast):
        return bool(parent.to.is_type("json"))
    if not isinstance(parent, exp.Func) or (parent.this is not node and node.arg_key != "expressions"):
        return False
    name = parent.name if isinstance(parent, exp.Anonymous) else parent.sql_name()
    return str(name).lower().startswith(_JSON_WORD) and str(name).lower() != "json_valid"


def _propose_type(path: Path, samples: Mapping[str, PayloadStatistics]) -> str:
    """Return the type of a member in the topics of a query. Raises LocalError if no payload has it."""
    words = []
    for statistics in samples.values():
        member = statistics.root
        for name in path:
            if name not in member.members:
                break
            member = member.members[name]
        else:
            words.append(member.propose())
    if words:
        # members that are alike in name only are compared as their text
        return words[0] if len(set(words)) == 1 else "string"
    topic, statistics = next(iter(samples.items()))
    if not statistics.objects:
        raise LocalError(
            f"query: {write_path(path)}: topic {topic!r} has no JSON objects as payloads; "
            f"{next(iter(statistics.describe()), 'it has no messages with a payload')}"
        )
    known = [write_path(leaf) for leaf, _ in statistics.leaves()]
    text = write_path(path)
    raise LocalError(
        f"query: none of the first {statistics.objects:,} payloads of {topic!r} has {text}{did_you_mean(text, known)}; "
        f"for a member that is rare declare it by --columns '…, {path[-1]} string from {text}'"
    )


def _to_text(payloads: Any) -> tuple[Any, int, int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from ..payloads.walk import walk_json

    walked = walk_json(payloads, (("",),))
    # those that were validated are UTF-8
    texts = pc.if_else(pa.array(walked.good), payloads, pa.scalar(None, payloads.type)).cast(pa.string())
    return texts, 0, int(walked.malformed.sum())


def _to_member(payloads: Any, column: PayloadColumn) -> tuple[Any, int, int]:
    from ..columns.members import build_column
    from ..payloads.walk import walk_json

    walked = walk_json(payloads, (column.path,))
    values, wrong = build_column(walked.values[column.path], column)
    return values, int((wrong & ~walked.malformed).sum()), int(walked.malformed.sum())
