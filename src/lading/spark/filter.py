"""A typed filter as a Spark Column, equal to its evaluation on Arrow (docs/reference/filter).

Operands are converted by the evaluator's own typing, in one Arrow function each; comparisons, lists, patterns and
three-valued logic are Spark's expressions. Evaluation does not fail: a value that does not convert is null.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, Literal, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ..columns.contract import INTEGER_DECIMAL, Projection
from ..columns.locate import locate
from ..filter import tree
from ..filter.evaluate import ABSENT
from ..filter.filter import Filter
from ..filter.parse import parse
from ..filter.tree import (
    And,
    AnyHeader,
    Between,
    Compare,
    Condition,
    Domain,
    In,
    IsNull,
    Like,
    Not,
    Operand,
    Or,
    Present,
    Truth,
    operands,
)
from ..filter.values import DOMAIN_TYPES, Messages, Source, is_null, numbers, values
from ..model.run import Decoded
from ..payloads.form import find_fields
from .functions import arrow_function, as_headers

Form = Domain | Literal["null", "present"]
"""Need of an operand: its value in a domain, whether it is null, or whether the message has the header."""

NUMBER: Final = pa.struct([("whole", INTEGER_DECIMAL), ("double", pa.float64())])
"""A number in a comparison: two integers are compared exactly, any other numbers as doubles."""
TYPES: Final[dict[str, pa.DataType]] = {
    **{str(domain): type_ for domain, type_ in DOMAIN_TYPES.items()},
    Domain.NUMBER: NUMBER,
    "null": pa.bool_(),
    "present": pa.bool_(),
}
_OPERATORS: Final[dict[tree.Operator, Callable[[Column, Column], Column]]] = {
    tree.Operator.EQ: operator.eq,
    tree.Operator.NE: operator.ne,
    tree.Operator.LT: operator.lt,
    tree.Operator.LE: operator.le,
    tree.Operator.GT: operator.gt,
    tree.Operator.GE: operator.ge,
}


def column(condition: Filter | str, contract: Projection | None = None, headers: str = "headers") -> Column:
    """Return the condition for a frame with the message fields that it reads and the header array ``headers``.

    Raises FilterError for an invalid text. Example: ``frame.where(column("delay > 15 AND carrier = 'UA'"))``.
    """
    made = condition if isinstance(condition, Filter) else parse(condition, contract)
    return _condition_column(made.tree, headers)


def _condition_column(node: Condition, headers: str) -> Column:
    match node:
        case And(terms):
            return reduce(operator.and_, (_condition_column(term, headers) for term in terms))
        case Or(terms):
            return reduce(operator.or_, (_condition_column(term, headers) for term in terms))
        case Not(term):
            return ~_condition_column(term, headers)
    if any(isinstance(operand, AnyHeader) for operand in operands(node)):
        return _whole_predicate(node, headers)
    return _predicate_column(node, headers)


def _predicate_column(node: tree.Predicate, headers: str) -> Column:
    match node:
        case Compare(how, left, right, domain):
            return _compare(how, _read(left, domain, headers), _read(right, domain, headers), domain)
        case Between(operand, low, high, domain):
            held = _read(operand, domain, headers)
            above = _compare(tree.Operator.GE, held, _read(low, domain, headers), domain)
            return above & _compare(tree.Operator.LE, held, _read(high, domain, headers), domain)
        case In(operand, items, domain):
            held = _read(operand, domain, headers)
            equal = (_compare(tree.Operator.EQ, held, _read(item, domain, headers), domain) for item in items)
            return reduce(operator.or_, equal)
        case Like(operand, pattern):
            return _read(operand, Domain.TEXT, headers).like(pattern)
        case IsNull(operand):
            return _read(operand, "null", headers)
        case Present(header):
            return _read(header, "present", headers)
        case Truth(operand):
            return _read(operand, Domain.BOOLEAN, headers)


def _whole_predicate(node: tree.Predicate, headers: str) -> Column:
    """Return a predicate over every value of a header, wholly in Arrow: Spark's lambdas accept no Python functions."""
    condition = Filter("", node)
    fields = sorted(condition.fields - {"headers"})

    def mask(*held: pa.Array[Any]) -> pa.Array[Any]:
        lists = as_headers(held[0])
        columns = {"headers": lists, **dict(zip(fields, held[1:], strict=True))}
        return condition.mask(Decoded(len(lists), columns, locate(lists, condition.header_keys)))

    made: Column = arrow_function(mask, pa.bool_())(*(F.col(name) for name in (headers, *fields)))
    return made


def _compare(how: tree.Operator, left: Column, right: Column, domain: Domain) -> Column:
    compare = _OPERATORS[how]
    if domain is not Domain.NUMBER:
        return compare(left, right)
    whole = left.getField("whole").isNotNull() & right.getField("whole").isNotNull()
    exact = compare(left.getField("whole"), right.getField("whole"))
    return F.when(whole, exact).otherwise(compare(left.getField("double"), right.getField("double")))


def _strip_casts(operand: Operand) -> Operand:
    while isinstance(operand, tree.Cast):
        operand = operand.operand
    return operand


# constants


def _constant_column(operand: Operand, form: Form) -> Column | None:
    """Return a constant operand as a literal; None for others."""
    if not isinstance(_strip_casts(operand), tree.Literal):
        return None
    nothing = Messages(Decoded(0, {}, {}))
    if form == "null":
        return F.lit(is_null(nothing, operand).as_py())
    if form is Domain.NUMBER:
        whole = numbers(nothing, operand).whole.as_py()
        text = None if whole is None else str(whole)
        return F.struct(F.lit(text).cast("decimal(38,0)").alias("whole"), F.lit(text).cast("double").alias("double"))
    assert form != "present", "constants are no headers"
    scalar = values(nothing, operand, form)
    return _literal_column(scalar.as_py() if form is not Domain.INSTANT else scalar.cast(pa.int64()).as_py(), form)


def _literal_column(value: Any, form: Form) -> Column:
    if form is Domain.INSTANT:
        return F.timestamp_micros(F.lit(value).cast("bigint"))
    words = {Domain.DOUBLE: "double", Domain.TEXT: "string", Domain.BOOLEAN: "boolean", Domain.BYTES: "binary"}
    assert isinstance(form, Domain)
    return F.lit(bytearray(value) if isinstance(value, bytes) else value).cast(words[form])


# operands read from messages


def _read(operand: Operand, form: Form, headers: str) -> Column:
    """Return the operand in a form: a literal, or one Arrow function of the column that it is based on."""
    constant = _constant_column(operand, form)
    if constant is not None:
        return constant
    inner = _strip_casts(operand)
    source = inner.name if isinstance(inner, tree.Field) else headers
    if isinstance(inner, tree.PayloadRef):
        source = find_fields((inner.path,))[0]

    def read(held: pa.Array[Any]) -> pa.Array[Any]:
        return _evaluate_array(_to_messages(inner, held), operand, form)

    made: Column = arrow_function(read, TYPES[form])(F.col(source))
    return made


def _to_messages(inner: Operand, held: pa.Array[Any]) -> Messages:
    if isinstance(inner, tree.Field):
        return Messages(Decoded(len(held), {inner.name: held}, {}))
    if isinstance(inner, tree.PayloadRef):
        return Messages(Decoded(len(held), {find_fields((inner.path,))[0]: held}, {}))
    assert isinstance(inner, tree.HeaderRef)
    return Messages(Decoded(len(held), {}, locate(as_headers(held), [inner.key])))


def _evaluate_array(source: Source, operand: Operand, form: Form) -> pa.Array[Any]:
    if form == "null":
        made: Any = is_null(source, operand)
    elif form == "present":
        assert isinstance(operand, tree.HeaderRef)
        made = pa.array(source.locate(operand).length != ABSENT)
    elif form is Domain.NUMBER:
        found = numbers(source, operand)
        made = pa.StructArray.from_arrays([found.whole.cast(INTEGER_DECIMAL), found.as_double()], fields=list(NUMBER))
    else:
        made = values(source, operand, form)
    return cast("pa.Array[Any]", made)
