"""A typed filter over a batch in Arrow compute, in three-valued logic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..columns.assemble import to_decoded
from ..columns.contract import INTEGER_DECIMAL
from ..model.run import Decoded
from ..payloads.form import JSON_FORM, PayloadForm
from .like import match_like
from .tree import (
    And,
    AnyHeader,
    Between,
    Cast,
    Compare,
    Condition,
    Domain,
    HeaderRef,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    Present,
    Truth,
    list_paths,
    operands,
)  # fmt: skip
from .values import Messages, Numbers, Source, Values, equal_bytes, is_null, numbers, values

ABSENT: Final = -1
"""The length of a located value that is absent; a null value has another length."""
_PLAIN: Final[dict[Operator, Callable[[Values, Values], Values]]] = {
    Operator.EQ: pc.equal,
    Operator.NE: pc.not_equal,
    Operator.LT: pc.less,
    Operator.LE: pc.less_equal,
    Operator.GT: pc.greater,
    Operator.GE: pc.greater_equal,
}


def evaluate(
    tree: Condition,
    header_keys: Sequence[str],
    source: pa.RecordBatch | Decoded | Messages,
    form: PayloadForm = JSON_FORM,
) -> pa.BooleanArray:
    """Return per message true, false or null (unknown); ``header_keys`` are the headers that ``tree`` reads.

    ``form`` says how payloads are read, unless ``source`` does.
    """
    if isinstance(source, pa.RecordBatch):
        source = to_decoded(source, header_keys)
    messages = Messages(source, form=form) if isinstance(source, Decoded) else source
    return _spread_result(_evaluate_condition(messages, tree), messages.rows)


def _evaluate_condition(messages: Messages, node: Condition) -> Values:
    match node:
        case And(terms):
            return _evaluate_chain(messages, terms, pc.and_kleene, decided=False)
        case Or(terms):
            return _evaluate_chain(messages, terms, pc.or_kleene, decided=True)
        case Not(term):
            return pc.invert(_evaluate_condition(messages, term))
        case Present():
            # among distinct values, which are typed, null and absent look the same
            return _evaluate_predicate(messages, node)
        case _:
            found = {operand for operand in operands(node) if not isinstance(operand, Literal | Cast)}
            every = next((operand for operand in found if isinstance(operand, AnyHeader)), None)
            if every is not None:
                return _for_any(messages, every, node)
            one = found.pop() if len(found) == 1 else None
            distinct = messages.distinct(one) if isinstance(one, HeaderRef) else None
            if distinct is not None:
                return distinct.spread(_spread_result(_evaluate_predicate(distinct, node), distinct.rows))
            return _evaluate_predicate(messages, node)


def _evaluate_chain(
    messages: Messages, terms: Sequence[Condition], combine: Callable[..., Values], *, decided: bool
) -> Values:
    """Return AND or OR of ``terms``. Payloads are parsed only for messages that the other terms have not decided."""
    paths = [list_paths(term) for term in terms]
    if not any(paths):
        return reduce(combine, (_evaluate_condition(messages, term) for term in terms))
    plain = [term for term, read in zip(terms, paths, strict=True) if not read]
    others = [term for term, read in zip(terms, paths, strict=True) if read]
    result: Values | None = None
    if plain:
        result = _spread_result(reduce(combine, (_evaluate_condition(messages, term) for term in plain)), messages.rows)
        other: Values = pc.fill_null(pc.not_equal(result, pa.scalar(decided)), pa.scalar(True))
        undecided = other.to_numpy(zero_copy_only=False)
        if not undecided.any():
            return result
        if not undecided.all():
            messages = messages.look_at(undecided)
    # terms inside of a nested AND or OR are evaluated after the headers of that one
    messages.walk_payloads(path for term in others if not isinstance(term, And | Or | Not) for path in list_paths(term))
    found = reduce(combine, (_evaluate_condition(messages, term) for term in others))
    return found if result is None else combine(result, found)


def _for_any(messages: Messages, header: AnyHeader, node: Predicate) -> Values:
    """Return true if the predicate is true for a value of the header, else null if it is unknown for a value."""
    entries = messages.every(header)
    found = _spread_result(_evaluate_predicate(entries, node), entries.rows)
    true = found.fill_null(False).to_numpy(zero_copy_only=False)
    unknown = found.is_null().to_numpy(zero_copy_only=False)
    holds, open_ = np.zeros(messages.rows, bool), np.zeros(messages.rows, bool)
    holds[entries.parents[true]] = True
    open_[entries.parents[unknown]] = True
    return pa.array(holds, mask=open_ & ~holds)


def _evaluate_predicate(source: Source, node: Predicate) -> Values:
    match node:
        case Compare(operator, left, right, Domain.NUMBER):
            return _compare_numbers(operator, numbers(source, left), numbers(source, right))
        case Compare(
            Operator.EQ | Operator.NE as operator, left, Literal() as right, Domain.TEXT | Domain.BYTES as domain
        ):
            same = equal_bytes(source, left, right, domain)
            if same is None:
                return _PLAIN[operator](values(source, left, domain), values(source, right, domain))
            return same if operator is Operator.EQ else pc.invert(same)
        case Compare(operator, left, right, domain):
            return _choose_comparison(domain)(operator, values(source, left, domain), values(source, right, domain))
        case Between(operand, low, high, domain):
            above = Compare(Operator.GE, operand, low, domain)
            below = Compare(Operator.LE, operand, high, domain)
            return pc.and_kleene(_evaluate_predicate(source, above), _evaluate_predicate(source, below))
        case In(operand, items, domain):
            return _evaluate_in(source, operand, [item.value for item in items], domain)
        case Like(operand, pattern):
            return match_like(values(source, operand, Domain.TEXT), pattern)
        case IsNull(operand):
            return is_null(source, operand)
        case Present(header):
            return pa.array(source.locate(header).length != ABSENT)
        case Truth(operand):
            return values(source, operand, Domain.BOOLEAN)


def _choose_comparison(domain: Domain) -> Callable[[Operator, Values, Values], Values]:
    return _compare_doubles if domain is Domain.DOUBLE else lambda operator, left, right: _PLAIN[operator](left, right)


def _compare_numbers(operator: Operator, left: Numbers, right: Numbers) -> Values:
    whole_left, whole_right = _same_type(left.whole, right.whole)
    exact = _PLAIN[operator](whole_left, whole_right)
    if left.double is None and right.double is None:
        return exact
    return pc.coalesce(exact, _compare_doubles(operator, left.as_double(), right.as_double()))


def _same_type(left: Values, right: Values) -> tuple[Values, Values]:
    if left.type == right.type:
        return left, right
    wide = left.type if pa.types.is_decimal(left.type) else right.type
    return left.cast(wide), right.cast(wide)


def _compare_doubles(operator: Operator, left: Values, right: Values) -> Values:
    """Compare doubles in the order of SQL: NaN equals NaN and is greater than all other values; 0.0 equals -0.0."""
    if not _has_nan(left) and not _has_nan(right):
        return _PLAIN[operator](left, right)
    nan_left, nan_right = pc.is_nan(left), pc.is_nan(right)
    equal = pc.or_(pc.and_(nan_left, nan_right), pc.equal(left, right))
    less = pc.and_(pc.invert(nan_left), pc.or_(nan_right, pc.less(left, right)))
    match operator:
        case Operator.EQ:
            return equal
        case Operator.NE:
            return pc.invert(equal)
        case Operator.LT:
            return less
        case Operator.LE:
            return pc.or_(less, equal)
        case Operator.GT:
            return pc.invert(pc.or_(less, equal))
        case Operator.GE:
            return pc.invert(less)


def _has_nan(side: Values) -> bool:
    found = pc.is_nan(side)
    return bool(found.as_py() if isinstance(found, pa.Scalar) else pc.any(found).as_py())


def _evaluate_in(source: Source, operand: Operand, items: list[Any], domain: Domain) -> Values:
    if domain is Domain.NUMBER:
        held = numbers(source, operand)
        wide = any(item is not None and abs(item) > (1 << 63) - 1 for item in items)
        if wide and not pa.types.is_decimal(held.whole.type):
            held = Numbers(held.whole.cast(INTEGER_DECIMAL), held.double)
        exact = _are_members(held.whole, items)
        return exact if held.double is None else pc.coalesce(exact, _are_members(held.double, items))
    return _are_members(values(source, operand, domain), items)


def _are_members(held: Values, items: list[Any]) -> Values:
    """Return whether ``held`` equals one of ``items``. Null for a null, and if none is equal and an item is null."""
    wanted: list[Any] = [item for item in items if item is not None]
    if held.type == pa.float64():
        # add zero, which turns -0.0 into 0.0: is_in does not find the two equal
        held, wanted = pc.add(held, 0.0), [float(item) + 0.0 for item in wanted]
    found = pc.is_in(held, value_set=_array_of(wanted, held.type))
    unknown = pc.is_null(held)
    if len(wanted) < len(items):
        unknown = pc.or_(unknown, pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _array_of(items: list[Any], type_: pa.DataType) -> Values:
    return pa.array(map(Decimal, items) if pa.types.is_decimal(type_) else items, type_)


def _spread_result(result: Values, rows: int) -> pa.BooleanArray:
    """Return an array of ``rows`` booleans, also if the result is one constant."""
    if isinstance(result, pa.Scalar):
        constant: Any = result
        result = pa.repeat(constant, rows)
    spread: pa.BooleanArray = result
    return spread
