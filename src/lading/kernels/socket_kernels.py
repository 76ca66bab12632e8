"""The same response to many sockets; ``socket_fallback.py`` says the same in plain Python."""

from __future__ import annotations

from .arrays import Bytes, Longs, Table
from .signature import BYTES, LONG, LONGS, OUT_TABLE, int32, kernel
from .system_calls import send


@kernel(LONG(LONGS, BYTES, OUT_TABLE))
def send_alike(files: Longs, data: Bytes, unsent: Table) -> int:
    """See ``socket_fallback.send_alike``."""
    failed = 0
    # in bounds: ``unsent`` has a row for each of ``files``, which is tested, and all of ``data`` is sent
    if unsent.shape[0] < files.size or unsent.shape[1] < 2:
        return -1
    for index in range(files.size):
        sent = send(int32(files[index]), data, data.size)
        if sent != data.size:
            unsent[failed, 0] = files[index]
            unsent[failed, 1] = max(sent, 0)
            failed += 1
    return failed
