"""Reading parts of a JSON document or a query: each part has a form, and an error names its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ....model.lazy_dataclass import lazy_dataclass
from .errors import not_json, wrong_document
from .text import Members, load

T = TypeVar("T")

_TYPE_WORD: dict[type, str] = {Members: "a map", list: "a sequence", str: "a string", bool: "a boolean"}


def load_body(body: bytes) -> Any:
    """Parse a body. Raises BodyError 400 if it is not JSON."""
    try:
        return load(body)
    except ValueError as error:
        raise not_json(str(error)) from None


def form_of(value: Any, where: str, kind: type[T]) -> T:
    """Return ``value`` if it is of ``kind``. Raises BodyError 422 otherwise."""
    if not isinstance(value, kind):
        raise wrong_document(f"{where}: invalid type, expected {_TYPE_WORD[kind]}")
    return value


def fields_of(value: Any, where: str) -> Members:
    """Return the members of an object. Raises BodyError 422 if it is not an object, or a name occurs twice."""
    members = form_of(value, where, Members)
    if members.repeated is not None:
        raise wrong_document(f"{where}: duplicate field `{members.repeated}`")
    return members


def member(document: dict[str, Any], name: str, where: str = "") -> Any:
    """Return a required member. Raises BodyError 422 if it is missing."""
    if name not in document:
        raise wrong_document(f"{where}: missing field `{name}`" if where else f"missing field `{name}`")
    return document[name]


@lazy_dataclass(frozen=True, slots=True)
class Form:
    """Form of one value: ``of(value, where)`` for JSON, ``from_text(text, where)`` for a query parameter."""

    of: Callable[[Any, str], Any]
    from_text: Callable[[str], Any]


def number(low: int, high: int, word: str) -> Form:
    """Return the Form of an integer from ``low`` to ``high``; errors call it ``word``."""

    def of(value: Any, where: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise wrong_document(f"{where}: invalid value, expected {word}")
        return value

    def from_text(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 39 and low <= int(text) <= high):
            raise ValueError(f"{text!r} is no {word}")
        return int(text)

    return Form(of, from_text)


U32, U64 = number(0, (1 << 32) - 1, "u32"), number(0, (1 << 64) - 1, "u64")


def _id_of(value: Any, where: str) -> int:
    try:
        return int(U32.from_text(value)) if isinstance(value, str) else int(U32.of(value, where))
    except ValueError as error:
        raise wrong_document(f"{where}: {error}") from None


ID_TEXT = Form(_id_of, U32.from_text)
"""A consumer id, which the real server wants as text and clients also send as a number."""


def _text_of(value: Any, where: str) -> str:
    text = form_of(value, where, str)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise wrong_document(f"{where}: the text holds a lone surrogate") from None
    return text


TEXT = Form(_text_of, str)


def word(words: dict[str, T]) -> Form:
    """Return the Form of a word among ``words``, whose value is the one that the word stands for."""

    def from_text(text: str) -> T:
        if text not in words:
            raise ValueError(f"unknown variant `{text}`, expected one of {', '.join(words)}")
        return words[text]

    def of(value: Any, where: str) -> T:
        try:
            return from_text(form_of(value, where, str))
        except ValueError as error:
            raise wrong_document(f"{where}: {error}") from None

    return Form(of, from_text)


def list_of(form: Form) -> Form:
    """Return the Form of a list of such values; its errors name the place of the wrong value."""

    def of(value: Any, where: str) -> tuple[Any, ...]:
        return tuple(form.of(one, f"{where}[{at}]") for at, one in enumerate(form_of(value, where, list)))

    return Form(of, lambda text: tuple(map(form.from_text, text.split(","))))


YES_OR_NO = word({"true": True, "false": False})


def optional(form: Form, default: Any = None) -> Form:
    """Return ``form`` with null allowed, which stands for ``default``."""
    return Form(lambda value, where: default if value is None else form.of(value, where), form.from_text)


def convert_form(form: Form, change: Callable[[Any], Any]) -> Form:
    """Return a form whose values are those of ``form``, converted by ``change``."""
    return Form(lambda value, where: change(form.of(value, where)), lambda text: change(form.from_text(text)))


def _identifier_of(value: Any, where: str) -> int | str:
    if isinstance(value, str):
        return _identifier_from_text(_text_of(value, where))
    return int(U32.of(value, where))


def _identifier_from_text(text: str) -> int | str:
    try:
        return int(U32.from_text(text))
    except ValueError:
        return text


IDENTIFIER = Form(_identifier_of, _identifier_from_text)
"""A number, also as text, or a name: decimal text that fits u32 is a number."""


def _flag_of(value: Any, where: str) -> bool:
    return bool(form_of(value, where, bool))


FLAG = Form(_flag_of, YES_OR_NO.from_text)
"""true or false, as JSON has them."""
