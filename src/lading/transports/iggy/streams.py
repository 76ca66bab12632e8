"""The streams of one Iggy server: each is a namespace of topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic.responses import StreamInfo
from ...model.errors import Reason
from ...model.names import DEFAULT_STREAM, DEFAULT_STREAM_ID
from .addresses import check_name, find_free_id
from .socket import IggyRefusal, IggySocket

_EXISTS: Final = (Reason.STREAM_ID_EXISTS, Reason.STREAM_NAME_EXISTS)
ID_TRIES: Final = 8
"""How often another id is tried: other clients may take an id that was free a moment ago."""


class IggyStreams:
    """Lists, creates and deletes the streams of one server."""

    def __init__(self, socket: IggySocket) -> None:
        self._socket = socket

    def list_all(self) -> Sequence[StreamInfo]:
        """Return all streams as the server describes them."""
        streams: Sequence[StreamInfo] = self._socket.ask(c.GetStreams())
        return streams

    def describe(self) -> list[dict[str, Any]]:
        """Return the ``id``, ``name``, number of ``topics``, ``size_bytes`` and ``messages`` of each stream."""
        return [
            {
                "id": stream.id,
                "name": stream.name,
                "topics": stream.topics_count,
                "size_bytes": stream.size_bytes,
                "messages": stream.messages_count,
            }
            for stream in self.list_all()
        ]

    def create(self, name: str, stream_id: int | None = None, *, exist_ok: bool = False) -> None:
        """Create a stream; its id is the next free one unless given."""
        check_name(name)
        for _ in range(ID_TRIES):
            known = self.list_all()
            if exist_ok and any(stream.name == name for stream in known):
                return
            taken = {stream.id for stream in known}
            chosen = stream_id or (DEFAULT_STREAM_ID if name == DEFAULT_STREAM else find_free_id(taken))
            try:
                self._socket.ask(c.CreateStream(chosen, name), again=False)
            except IggyRefusal as refusal:
                taken_meanwhile = stream_id is None and refusal.reason is Reason.STREAM_ID_EXISTS
                if not (taken_meanwhile or (exist_ok and refusal.reason in _EXISTS)):
                    raise
                continue
            return

    def delete(self, name: str) -> None:
        """Delete the stream with all its topics."""
        self._socket.ask(c.DeleteStream(name), again=False)
