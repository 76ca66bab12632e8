"""Iggy's routes over HTTP that a command handles, and the fields that their paths name (iggy.md A5, M5)."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from ....dialects.iggy.classic import commands as c
from ....dialects.iggy.classic import later_commands as later
from ....dialects.iggy.http.commands import identifier
from ....dialects.iggy.http.documents import U32
from ....dialects.iggy.http.errors import BodyError
from ....model.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from ...http_shared.routing import Parameters
    from .callers import HttpCaller

TOPIC: Final = "/streams/{stream}/topics/{topic}"
"""The path of a topic."""


@lazy_dataclass(frozen=True, slots=True)
class CommandRoute:
    """One route that a command handles; ``source`` is the other source of its fields, besides the path."""

    method: str
    pattern: str
    command: type[Any]
    status: int = 200
    source: str = "path"


COMMAND_ROUTES: Final = (
    CommandRoute("GET", "/stats", c.Stats),
    CommandRoute("GET", "/users", later.GetUsers),
    CommandRoute("POST", "/users", later.CreateUser, 201, "body"),
    CommandRoute("GET", "/users/{user}", later.GetUser),
    CommandRoute("PUT", "/users/{user}", later.UpdateUser, 204, "body"),
    CommandRoute("DELETE", "/users/{user}", later.DeleteUser, 204),
    CommandRoute("PUT", "/users/{user}/permissions", later.UpdatePermissions, 204, "body"),
    CommandRoute("PUT", "/users/{user}/password", later.ChangePassword, 204, "body"),
    CommandRoute("GET", "/personal-access-tokens", later.GetTokens),
    CommandRoute("POST", "/personal-access-tokens", later.CreateToken, 200, "body"),
    CommandRoute("DELETE", "/personal-access-tokens/{name}", later.DeleteToken, 204),
    CommandRoute("GET", "/clients", c.GetClients),
    CommandRoute("GET", "/clients/{client_id}", c.GetClient),
    CommandRoute("GET", "/streams", c.GetStreams),
    CommandRoute("POST", "/streams", c.CreateStream, 201, "body"),
    CommandRoute("GET", "/streams/{stream}", c.GetStream),
    CommandRoute("PUT", "/streams/{stream}", later.UpdateStream, 204, "body"),
    CommandRoute("DELETE", "/streams/{stream}", c.DeleteStream, 204),
    CommandRoute("DELETE", "/streams/{stream}/purge", later.PurgeStream, 204),
    CommandRoute("GET", "/streams/{stream}/topics", c.GetTopics),
    CommandRoute("POST", "/streams/{stream}/topics", c.CreateTopic, 201, "body"),
    CommandRoute("GET", TOPIC, c.GetTopic),
    CommandRoute("PUT", TOPIC, later.UpdateTopic, 204, "body"),
    CommandRoute("DELETE", TOPIC, c.DeleteTopic, 204),
    CommandRoute("DELETE", f"{TOPIC}/purge", later.PurgeTopic, 204),
    CommandRoute("POST", f"{TOPIC}/partitions", c.CreatePartitions, 201, "body"),
    CommandRoute("DELETE", f"{TOPIC}/partitions", c.DeletePartitions, 204, "query"),
    CommandRoute("DELETE", f"{TOPIC}/partitions/{{partition_id}}", later.DeleteSegments, 204, "query"),
    CommandRoute("GET", f"{TOPIC}/consumer-offsets", c.GetOffset, 200, "query"),
    CommandRoute("PUT", f"{TOPIC}/consumer-offsets", c.StoreOffset, 204, "body"),
    CommandRoute("DELETE", f"{TOPIC}/consumer-offsets/{{consumer}}", later.DeleteOffset, 204, "query"),
    CommandRoute("GET", f"{TOPIC}/consumer-groups", c.GetGroups),
    CommandRoute("POST", f"{TOPIC}/consumer-groups", c.CreateGroup, 201, "body"),
    CommandRoute("GET", f"{TOPIC}/consumer-groups/{{group_id}}", c.GetGroup),
    CommandRoute("DELETE", f"{TOPIC}/consumer-groups/{{group_id}}", c.DeleteGroup, 204),
)
"""Every route that a command handles (iggy.md A5, iggy-current.md B5)."""


def _parse_number(text: str) -> int:
    try:
        return int(U32.from_text(text))
    except ValueError as error:
        raise BodyError(f"Invalid URL: Cannot parse {error}", status=HTTPStatus.BAD_REQUEST) from None


_PATH_FORMS: Final[dict[str, Callable[[str], Any]]] = {
    "stream": identifier,
    "topic": identifier,
    "group_id": _parse_number,
    "client_id": _parse_number,
    "partition_id": _parse_number,
    "consumer": identifier,
    "user": identifier,
    "name": str,
}
"""Parser of each field in a path, unless the command itself parses it."""
_NAMING: Final = frozenset({"stream", "topic", "group_id", "user"})


def read_fields(path: Parameters, caller: HttpCaller) -> dict[str, Any]:
    """Return the fields that the path names, as the broker counts them."""
    release = caller.release
    if not release.has_users:
        return {name: _PATH_FORMS[name](text) for name, text in path.items()}
    return {name: release.identify(text) if name in _NAMING else _PATH_FORMS[name](text) for name, text in path.items()}
