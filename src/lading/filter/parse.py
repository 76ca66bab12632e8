"""``parse``: text to a typed filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from ..columns.contract import (
    ARRAY,
    ARRAY_WORD,
    TIMESTAMP,
    HeaderColumn,
    PayloadColumn,
    Projection,
    did_you_mean,
    parse_type,
    type_word,
)
from ..columns.rules import DECIMAL_MAX
from ..model.errors import FilterError, LocalError
from ..payloads.form import JSON_FORM, PayloadForm
from ..payloads.paths import PATH_MARK, parse_path
from .filter import Filter
from .like import PATTERN_CHARACTERS_MAX
from .tree import (
    And,
    AnyHeader,
    Between,
    Cast,
    Compare,
    Condition,
    Domain,
    Field,
    HeaderRef,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Operator,
    Or,
    PayloadRef,
    Present,
    Truth,
)
from .typing import FIELD_DOMAINS, common_domain, constant, nature

if TYPE_CHECKING:
    from sqlglot import exp

_REASONS: Final = {
    "Sub": "arithmetic is not supported; write a name with signs as header('a-b')",
    "Tuple": "a list is allowed only after IN",
}
_ORDERED: Final = frozenset({Operator.LT, Operator.LE, Operator.GT, Operator.GE})
_OPERATORS: Final = {
    "EQ": Operator.EQ, "NEQ": Operator.NE, "LT": Operator.LT, "LTE": Operator.LE, "GT": Operator.GT, "GTE": Operator.GE,
}  # fmt: skip


def parse(
    text: str, contract: Projection | None = None, *, closed: bool = True, form: PayloadForm = JSON_FORM
) -> Filter:
    """Parse ``text``. Raises FilterError with the place in the text and the nearest name, if there is one.

    With a contract its header columns have their types and encodings, by column name, and a plain name that is
    neither declared nor a message field is refused; ``header('name')`` reads any header. With ``closed`` False it is
    the header of that name, as without a contract: the columns of a query say what to show, not all there is.
    ``form`` says how payloads are read, unless there is a contract.
    """
    from .grammar import syntax

    reader = _Reader(text, contract, closed)
    tree = reader.condition(syntax(text))
    form = form if contract is None else contract.form
    return Filter(text, tree, tuple(dict.fromkeys(reader.unquoted)), form)


class _Reader:
    """Builds the typed tree from sqlglot's. Nodes that are not in a closed list are refused, with their position."""

    def __init__(self, text: str, contract: Projection | None, closed: bool) -> None:
        self._text = text
        typed = contract.typed if contract else ()
        self._columns = {column.name: column for column in typed}
        self._by_path = {column.path: column for column in contract.payload} if contract else {}
        self._by_header = {column.header: column for column in contract.headers} if contract else {}
        self._closed = closed and contract is not None
        self.unquoted: list[str] = []

    def condition(self, node: exp.Expr) -> Condition:
        name = type(node).__name__
        if name in _OPERATORS:
            return self._compare(node, _OPERATORS[name])
        return _CONDITIONS.get(name, _Reader._parse_truth)(self, node)

    def _parse_paren(self, node: exp.Expr) -> Condition:
        return self.condition(node.this)

    def _parse_chain(self, node: exp.Expr) -> Condition:
        """Convert AND and OR in a loop: the parser nests chains of any length to the left, and recursion would
        overflow."""
        kind, terms = type(node), []
        while type(node) is kind:
            terms.append(node.expression)
            node = node.this
        terms.append(node)
        make: Any = {"And": And, "Or": Or}[kind.__name__]
        chain: Condition = make(tuple(self.condition(term) for term in reversed(terms)))
        return chain

    def _parse_not(self, node: exp.Expr) -> Condition:
        return Not(self.condition(node.this))

    def _compare(self, node: exp.Expr, operator: Operator) -> Condition:
        sides = self._parse_sides(node, node.this, node.expression)
        self._note_unquoted(node.expression)
        (left, right), domain = self._type_sides(node, sides, ordered=operator in _ORDERED)
        return Compare(operator, left, right, domain)

    def _parse_between(self, node: exp.Expr) -> Condition:
        sides = self._parse_sides(node, node.this, node.args["low"], node.args["high"])
        self._note_unquoted(node.args["low"], node.args["high"])
        (operand, low, high), domain = self._type_sides(node, sides, ordered=True)
        return Between(operand, low, high, domain)

    def _parse_in(self, node: exp.Expr) -> Condition:
        sides = self._parse_sides(node, node.this, *(node.args.get("expressions") or ()))
        if len(sides) == 1 or not all(isinstance(side, Literal) for side in sides[1:]):
            self._refuse("IN takes a list of constants, such as IN ('UA', 'AA')", node)
        (operand, *items), domain = self._type_sides(node, sides, ordered=False)
        return In(operand, tuple(item for item in items if isinstance(item, Literal)), domain)

    def _parse_like(self, node: exp.Expr) -> Condition:
        operand, pattern = self._parse_single(node.this), self._parse_operand(node.expression)
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            self._refuse("LIKE takes a pattern in quotes, such as LIKE 'N14%'", node)
        if len(pattern.value) > PATTERN_CHARACTERS_MAX:
            self._refuse(
                f"a LIKE pattern of {len(pattern.value):,} characters; at most {PATTERN_CHARACTERS_MAX:,} are read",
                node.expression,
            )
        if nature(operand) not in ("open", "null", Domain.TEXT):
            self._refuse("LIKE reads texts; convert with CAST(name AS string)", node)
        if _escapes_wrongly(pattern.value):
            self._refuse(r"in a LIKE pattern a backslash is allowed before %, _ or another backslash only", node)
        return Like(operand, pattern.value)

    def _parse_is(self, node: exp.Expr) -> Condition:
        if type(node.expression).__name__ != "Null":
            self._refuse("IS is followed by NULL or NOT NULL", node)
        operand = self._parse_operand(node.this)
        if isinstance(operand, HeaderRef) and operand.type == ARRAY:
            return Not(Present(operand))
        return IsNull(operand)

    def _call(self, node: exp.Expr) -> Condition:
        if node.name != "present":
            return self._parse_truth(node)
        named = [self._parse_operand(argument) for argument in node.expressions]
        if len(named) != 1 or not isinstance(named[0], HeaderRef):
            self._refuse("present takes one header, such as present(via) or present(header('trace-id'))", node)
        return Present(named[0])

    def _parse_truth(self, node: exp.Expr) -> Condition:
        operand = self._parse_single(node)
        if nature(operand) not in ("open", "null", Domain.BOOLEAN):
            self._refuse("not a condition; compare it, for example: delay > 15", node)
        return Truth(operand)

    def _parse_operand(self, node: exp.Expr) -> Operand:
        build = _OPERANDS.get(type(node).__name__)
        if build is None:
            known = "this cannot be compared: a filter compares headers, message fields and constants"
            self._refuse(_REASONS.get(type(node).__name__, known), node)
        return build(self, node)

    def _parse_single(self, node: exp.Expr) -> Operand:
        """Return an operand that is one value."""
        operand = self._parse_operand(node)
        if isinstance(operand, HeaderRef) and operand.type == ARRAY:
            self._refuse(f"this is an {ARRAY_WORD}; any(…) around it compares each of its values", node)
        return operand

    def _parse_inside(self, node: exp.Expr) -> Operand:
        return self._parse_operand(node.this)

    def _name(self, node: exp.Expr) -> Operand:
        name: str = node.name
        if column := self._columns.get(name):
            return self._refer(node, column)
        if name.startswith(PATH_MARK) and (path := parse_path(name.removeprefix(PATH_MARK))) is not None:
            declared = self._by_path.get(path)
            return PayloadRef(path) if declared is None else self._refer(node, declared)
        if name in FIELD_DOMAINS:
            return Field(name)
        if name == "headers":
            self._refuse("the headers as a whole cannot be compared; name one, or write header('headers')", node)
        if self._closed:
            near = did_you_mean(name, [*self._columns, *FIELD_DOMAINS])
            self._refuse(
                f"unknown header {name!r}{near}; header('{name}') reads one that is not declared, and a text is "
                f"written in quotes: '{name}'",
                node,
            )
        return HeaderRef(name)

    def _refer(self, node: exp.Expr, column: HeaderColumn | PayloadColumn) -> Operand:
        """Return the operand for a column of the contract."""
        if isinstance(column, HeaderColumn):
            return _reference_to(column)
        if pa.types.is_nested(column.type):
            self._refuse(
                f"{column.text} is declared as {column.word}, and a filter compares single values; compare one inside "
                f"of it, such as {column.text}.NAME, or declare it as json",
                node,
            )
        return PayloadRef(column.path, column.type, column.json)

    def _note_unquoted(self, *right: exp.Expr) -> None:
        for node in right:
            while type(node).__name__ == "Paren":
                node = node.this
            is_name = type(node).__name__ == "Column" and not node.name.startswith(PATH_MARK)
            if is_name and node.name not in self._columns and node.name not in FIELD_DOMAINS:
                self.unquoted.append(node.name)

    def _parse_function(self, node: exp.Expr) -> Operand:
        """Return the operand for ``header('key')``: any header by its key, typed if it is declared."""
        if node.name == "present":
            self._refuse(
                "present(...) is a condition by itself and cannot be compared; NOT present(...) negates it", node
            )
        arguments = node.expressions
        if len(arguments) != 1 or not _is_text(arguments[0]):
            self._refuse("header takes one header key in quotes, such as header('trace-id')", node)
        column: HeaderColumn | None = self._by_header.get(arguments[0].name)
        return _reference_to(column) if column else HeaderRef(arguments[0].name)

    def _parse_any(self, node: exp.Expr) -> Operand:
        named = self._parse_operand(node.this)
        if not isinstance(named, HeaderRef):
            self._refuse("any takes one header, such as any(via) or any(header('trace-id'))", node)
        return AnyHeader(named.key, pa.string() if named.type == ARRAY else named.type, named.encoding)

    def _parse_cast(self, node: exp.Expr) -> Operand:
        with self._place_errors(node):
            type_ = parse_type(node.args["to"].sql())
            if type_ == ARRAY:
                raise LocalError(f"a filter compares single values, and an {ARRAY_WORD} is a list; use any(name)")
        operand = self._parse_single(node.this)
        if isinstance(operand, Literal):
            return self._cast_constant(node, operand, type_)
        instants = (nature(operand) is Domain.INSTANT) + (type_ == TIMESTAMP)
        if instants == 1 and nature(operand) not in ("open", Domain.TEXT):
            self._refuse("a timestamp can be made from a header or text only, and cannot become another type", node)
        return Cast(operand, type_)

    def _cast_constant(self, node: exp.Expr, literal: Literal, type_: pa.DataType) -> Operand:
        from .values import constant_as

        value = constant_as(literal, type_)
        if value is None and literal.value is not None:
            self._refuse(f"{literal.value!r} cannot be read as {type_word(type_)}", node)
        return Cast(Literal(value), type_)

    def _parse_negative(self, node: exp.Expr) -> Operand:
        inner = self._parse_operand(node.this)
        if not isinstance(inner, Literal) or isinstance(inner.value, bool | str | bytes) or inner.value is None:
            self._refuse("arithmetic is not supported; '-' is allowed only before a number", node)
        return Literal(-inner.value)

    def _parse_literal(self, node: exp.Expr) -> Operand:
        text: str = node.this
        if node.is_string:
            try:
                text.encode()
            except UnicodeEncodeError:
                self._refuse("this text is not valid UTF-8", node)
            return Literal(text)
        if text.isascii() and text.isdigit():
            digits = text.lstrip("0") or "0"
            if len(digits) > len(str(DECIMAL_MAX)):
                self._refuse("a whole number has at most 38 digits; write it as a float, such as 1e40", node)
            return Literal(int(digits))
        try:
            return Literal(float(text))
        except ValueError:
            self._refuse("this is not a number", node)

    def _parse_boolean(self, node: exp.Expr) -> Operand:
        return Literal(bool(node.this))

    def _parse_null(self, node: exp.Expr) -> Operand:
        return Literal(None)

    def _parse_sides(self, node: exp.Expr, *parts: exp.Expr) -> list[Operand]:
        """Return the operands of one predicate, of which one at most is ``any``: it means one value at a time."""
        sides = [self._parse_single(part) for part in parts]
        if sum(isinstance(_strip_casts(side), AnyHeader) for side in sides) > 1:
            self._refuse("any(...) may appear only once per comparison", node)
        return sides

    def _type_sides(self, node: exp.Expr, sides: list[Operand], *, ordered: bool) -> tuple[list[Operand], Domain]:
        """Return the sides with their constants in the form of their common domain, and that domain."""
        with self._place_errors(node):
            domain = common_domain(sides, ordered=ordered)
            return [constant(side, domain, sides) if isinstance(side, Literal) else side for side in sides], domain

    @contextmanager
    def _place_errors(self, node: exp.Expr) -> Iterator[None]:
        """Raise an error of the typing rules as a FilterError that shows its place in the filter's text."""
        try:
            yield
        except FilterError:
            raise
        except LocalError as error:
            self._refuse(str(error), node)

    def _refuse(self, message: str, node: exp.Expr) -> NoReturn:
        from .grammar import refuse_node

        refuse_node(self._text, message, node)


_CONDITIONS: Final[dict[str, Callable[[_Reader, Any], Condition]]] = {
    "Paren": _Reader._parse_paren,
    "And": _Reader._parse_chain,
    "Or": _Reader._parse_chain,
    "Not": _Reader._parse_not,
    "Between": _Reader._parse_between,
    "In": _Reader._parse_in,
    "Like": _Reader._parse_like,
    "Is": _Reader._parse_is,
    "Anonymous": _Reader._call,
}
_OPERANDS: Final[dict[str, Callable[[_Reader, Any], Operand]]] = {
    "Paren": _Reader._parse_inside,
    "Column": _Reader._name,
    "Anonymous": _Reader._parse_function,
    "Any": _Reader._parse_any,
    "Cast": _Reader._parse_cast,
    "Neg": _Reader._parse_negative,
    "Literal": _Reader._parse_literal,
    "Boolean": _Reader._parse_boolean,
    "Null": _Reader._parse_null,
}


def _reference_to(column: HeaderColumn) -> HeaderRef:
    return HeaderRef(column.header, column.type, column.encoding)


def _strip_casts(operand: Operand) -> Operand:
    while isinstance(operand, Cast):
        operand = operand.operand
    return operand


def _is_text(node: exp.Expr) -> bool:
    return type(node).__name__ == "Literal" and bool(node.is_string)


def _escapes_wrongly(pattern: str) -> bool:
    at = 0
    while (at := pattern.find("\\", at)) >= 0:
        if pattern[at + 1 : at + 2] not in ("%", "_", "\\"):
            return True
        at += 2
    return False
