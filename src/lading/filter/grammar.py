"""The grammar: text to a syntax tree of sqlglot that holds nothing but what the filter knows.

Tokens are checked before parsing: every word that is not a keyword of the filter becomes a quoted name, so that headers
may be called ``order`` or ``date``, and nesting is bounded before the recursive parser sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokens import Token, Tokenizer, TokenType  # type: ignore[attr-defined]

from ..model.errors import FilterError
from ..payloads.paths import PATH_MARK, PAYLOAD, write_path

TEXT_CHARACTERS_MAX: Final = 65_536
TOKENS_MAX: Final = 10_000
DEPTH_MAX: Final = 16
"""Limit of nested parentheses and NOTs; the parser takes about 20 stack frames for each."""

FUNCTIONS: Final = frozenset({"header", "any", "present", "cast"})
_KEYWORDS: Final = {
    TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.IN, TokenType.LIKE, TokenType.IS, TokenType.NULL,
    TokenType.BETWEEN, TokenType.TRUE, TokenType.FALSE,
}  # fmt: skip
_SYMBOLS: Final = {
    TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE,
    TokenType.GT, TokenType.GTE, TokenType.DASH,
}  # fmt: skip
_LITERALS: Final = {TokenType.STRING, TokenType.NUMBER}
_ENDS_PREFIX: Final = {TokenType.AND, TokenType.OR, TokenType.COMMA}
_HINTS: Final = {
    TokenType.PLUS: "arithmetic is not supported; write a name with signs as header('a+b')",
    TokenType.STAR: "arithmetic is not supported",
    TokenType.SLASH: "arithmetic is not supported; write a name with signs as header('a/b')",
    TokenType.DCOLON: "a cast is written CAST(name AS type)",
    TokenType.SEMICOLON: "a filter is one condition",
}


def syntax(text: str) -> exp.Expr:
    """Return the syntax tree of a condition. Raises FilterError with the position of the first error in the text."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise FilterError(f"the filter has {len(text):,} characters; at most {TEXT_CHARACTERS_MAX:,} are read")
    if not text.strip():
        raise FilterError("the filter is empty; for example: carrier = 'UA' AND delay > 15", at=0)
    tokens = list(_screen_tokens(text, _split_tokens(text)))
    _check_depth(text, tokens)
    try:
        tree = Parser(error_level=ErrorLevel.IMMEDIATE).parse_into(exp.Condition, tokens, text)[0]
    except ParseError as error:
        at = min(error.errors[0].get("col") or 0, len(text)) if error.errors else len(text)
        end = next((token.end for token in tokens if token.start == at), at)
        refuse(text, "syntax error in the filter", at, end + 1)
    except RecursionError:
        raise FilterError("the filter is nested too deeply for the stack that is left", at=0) from None
    if tree is None:
        raise FilterError("the filter is empty; for example: carrier = 'UA' AND delay > 15", at=0)
    return tree


def refuse(text: str, message: str, start: int, end: int) -> NoReturn:
    """Raise FilterError with ``message``, the line of ``text`` that holds ``start``, and a mark under start to end."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : None if line_end < 0 else line_end]
    first = max(0, start - line_start - 60)
    shown = line[first : first + 110]
    mark = " " * (start - line_start - first) + "^" * max(1, min(end, line_start + first + len(shown)) - start)
    raise FilterError(f"{message}\n    {shown}\n    {mark}", at=start)


def refuse_node(text: str, message: str, node: exp.Expr) -> NoReturn:
    """Raise FilterError that points at a syntax node."""
    places = [part.meta for part in node.walk() if "start" in part.meta]
    if not places:
        refuse(text, message, 0, len(text))
    start, end = min(place["start"] for place in places), max(place["end"] for place in places) + 1
    while text[start:end].count("(") > text[start:end].count(")") and text[end : end + 1] == ")":
        end += 1
    refuse(text, message, start, end)


def _split_tokens(text: str) -> list[Token]:
    try:
        tokens = Tokenizer().tokenize(text)
    except TokenError:
        # the tokenizer reports no position; only an open quotation makes it fail
        at = next((at for at in range(len(text) - 1, -1, -1) if text[at] in "'\"`"), 0)
        refuse(text, "a quotation is not closed", at, at + 1)
    if len(tokens) > TOKENS_MAX:
        raise FilterError(f"the filter has {len(tokens):,} words; at most {TOKENS_MAX:,} are read")
    return tokens


def _screen_tokens(text: str, tokens: list[Token]) -> Iterator[Token]:
    """Yield the tokens with names quoted. Raises FilterError at the first that the filter does not know."""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        kind, word, end = token.token_type, token.text, token.end
        if kind in _KEYWORDS or kind in _SYMBOLS or kind in _LITERALS:
            yield _place_token(kind, word, token.start, end)
        elif kind is TokenType.ALIAS:
            yield _place_token(kind, word, token.start, end)
            # what follows AS is a type, which the parser knows
            if following is not None:
                position += 1
                yield _place_token(following.token_type, following.text, following.start, following.end)
        elif kind is TokenType.IDENTIFIER or _is_word(word):
            if following is not None and following.token_type is TokenType.L_PAREN and kind is not TokenType.IDENTIFIER:
                if word.lower() not in FUNCTIONS:
                    refuse(
                        text,
                        f"function {word!r} does not exist; functions are header, any, present and CAST",
                        token.start,
                        end + 1,
                    )
                yield _place_token(TokenType.VAR, word.lower(), token.start, end)
            else:
                first = position
                names, position = _join_dotted(tokens, position)
                name = ".".join(names)
                if kind is not TokenType.IDENTIFIER and names[0] == PAYLOAD and len(names) > 1:
                    name = PATH_MARK + write_path(tuple(names[1:]))
                token = tokens[first]
                yield _place_token(TokenType.IDENTIFIER, name, token.start, tokens[position].end)
        else:
            hint = _HINTS.get(kind, "an awkward name is written header('...')")
            refuse(text, f"{word!r} has no meaning in a filter; {hint}", token.start, end + 1)
        position += 1


def _join_dotted(tokens: list[Token], position: int) -> tuple[list[str], int]:
    """Return the parts of a dotted name such as ``trace.id``, and the position of its last token."""
    names = [tokens[position].text]
    while position + 2 < len(tokens) and tokens[position + 1].token_type is TokenType.DOT:
        dot, part = tokens[position + 1], tokens[position + 2]
        touching = dot.start == tokens[position].end + 1 and part.start == dot.end + 1
        if not touching or not (part.token_type is TokenType.IDENTIFIER or _is_word(part.text)):
            break
        names.append(part.text)
        position += 2
    return names, position


def _is_word(text: str) -> bool:
    return text.isidentifier()


def _place_token(kind: TokenType, text: str, start: int, end: int) -> Token:
    """Return a token whose column is its position in the text, so that a parse error shows it."""
    return Token(kind, text, line=1, col=start, start=start, end=end)


def _check_depth(text: str, tokens: list[Token]) -> None:
    """Raise FilterError if a filter is too deep for the recursive parser. Parentheses, NOT and minus signs nest."""
    waiting = [0]
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            waiting.append(0)
        elif token.token_type is TokenType.R_PAREN:
            if len(waiting) == 1:
                refuse(text, "this parenthesis closes nothing", token.start, token.end + 1)
            waiting.pop()
        elif token.token_type in (TokenType.NOT, TokenType.DASH):
            waiting[-1] += 1
        elif token.token_type in _ENDS_PREFIX:
            waiting[-1] = 0
        if len(waiting) - 1 + sum(waiting) > DEPTH_MAX:
            refuse(text, f"the filter is nested more than {DEPTH_MAX} deep", token.start, token.end + 1)
