"""Values of ``/config/OPTION`` of upstream's nsqd: limits and addresses, by the names of nsqd's flags.

Times are nanoseconds. They are read only here: what can be set is set when the broker starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ....dialects.nsq import limits
from ....dialects.nsq.identify import OUTPUT_BUFFER_BYTES_MAX, OUTPUT_BUFFER_MS_MAX
from .http_responses import HttpFault

if TYPE_CHECKING:
    from .node import Node

_MS_NS: Final = 1_000_000

OPTIONS: Final[Mapping[str, Callable[[Node], Any]]] = {
    "auth_http_addresses": lambda node: [],
    "broadcast_address": lambda node: address.host if (address := node.tcp_address()) else "",
    "deflate": lambda node: node.services.settings.endpoints.nsqd_tcp.deflate,
    "http_address": lambda node: str(node.http or ""),
    "max_body_size": lambda node: limits.REQUEST_BYTES_MAX,
    "max_deflate_level": lambda node: node.services.settings.endpoints.nsqd_tcp.deflate_level_max,
    "max_heartbeat_interval": lambda node: limits.HEARTBEAT_MS_MAX * _MS_NS,
    "max_msg_size": lambda node: limits.MESSAGE_BYTES_MAX,
    "max_msg_timeout": lambda node: limits.MESSAGE_TIMEOUT_MS_MAX * _MS_NS,
    "max_output_buffer_size": lambda node: OUTPUT_BUFFER_BYTES_MAX,
    "max_output_buffer_timeout": lambda node: OUTPUT_BUFFER_MS_MAX * _MS_NS,
    "max_rdy_count": lambda node: limits.READY_MAX,
    "max_req_timeout": lambda node: limits.REQUEUE_MS_MAX * _MS_NS,
    "msg_timeout": lambda node: limits.MESSAGE_TIMEOUT_MS * _MS_NS,
    "nsqlookupd_tcp_addresses": lambda node: [],
    "snappy": lambda node: node.services.settings.endpoints.nsqd_tcp.snappy,
    "tcp_address": lambda node: str(node.tcp or ""),
}


def option(node: Node, name: str) -> Any:
    """Return the value of an option. Raises HttpFault for an unknown one."""
    if name not in OPTIONS:
        raise HttpFault("INVALID_OPTION")
    return OPTIONS[name](node)
