"""Query parameters of NSQ's HTTP endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from ....dialects.nsq import limits
from ....model.errors import Refusal
from .http_responses import HttpFault, find_parameter, read_parameter

if TYPE_CHECKING:
    from ....broker.channels import Channel
    from ....broker.core.topology import Topic
    from .node import Node

_NUMBER_DIGITS_MAX: Final = 9


def require_parameter(request: Request, name: str) -> str:
    """Return a parameter as it is, even if it is empty. Raises HttpFault MISSING_ARG_… if it is missing."""
    value = find_parameter(request, name)
    if value is None:
        raise HttpFault(f"MISSING_ARG_{name.upper()}")
    return value


def topic_name(request: Request, fault: str = "INVALID_ARG_TOPIC") -> str:
    """Return the ``topic`` parameter. Raises HttpFault if it is missing, and ``fault`` if it is not a valid name."""
    name = require_parameter(request, "topic")
    if not limits.is_name(name):
        raise HttpFault(fault)
    return name


def channel_name(request: Request) -> str:
    """Return the ``channel`` parameter."""
    name = require_parameter(request, "channel")
    if not limits.is_name(name):
        raise HttpFault("INVALID_ARG_CHANNEL")
    return name


def topic_of(node: Node, name: str) -> Topic:
    """Return the topic of a name. Raises HttpFault if it does not exist."""
    try:
        return node.find(name)
    except Refusal:
        raise HttpFault("E_TOPIC_NOT_EXIST" if node.strict else "TOPIC_NOT_FOUND", 404) from None


def channel_of(node: Node, request: Request) -> Channel:
    """Return the channel that a request names."""
    # as in nsqd: both names are checked before either is looked up
    topic, name = topic_name(request), channel_name(request)
    channel = node.find_channel(topic_of(node, topic), name)
    if channel is None:
        raise HttpFault("CHANNEL_NOT_FOUND")
    return channel


def number(request: Request, name: str, fault: str, default: int | None = None) -> int:
    """Return a whole number, at least 0.

    Raises HttpFault ``fault`` if it is not one, MISSING_… if it is missing without default.
    """
    text = read_parameter(request, name)
    if not text:
        if default is None:
            raise HttpFault(fault.replace("INVALID_", "MISSING_", 1))
        return default
    if not text.isascii() or not text.isdigit() or len(text) > _NUMBER_DIGITS_MAX:
        raise HttpFault(fault)
    return int(text)
