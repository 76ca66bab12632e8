"""Tables that a pass over lent sockets shares with its kernels: a row for each socket, and the bytes read."""

from __future__ import annotations

import platform
from typing import Final

IS_LENT, LINE, OWED, COUNT, HEARD_US = range(5)
"""Columns of a row: 1 if the socket is lent; the number of the line that its requests begin with; the number of the
group of responses that it waits for, or 0; its requests, and the time of the last one, since they were looked at."""
ROW_COLUMNS: Final = 5

FILE, START, END, STATE = range(4)
"""Columns of what is not a request of the lent line: file number, place of its bytes, and why."""
OTHER_COLUMNS: Final = 4
UNKNOWN, ENDED, BUSY = range(3)
"""It is something else; nothing more comes, or the read failed; the socket still waits for its last response and
was not read."""

READ_BYTES_MAX: Final = 16 << 10
"""Bytes that are read of a socket at once: what the buffer of a connection holds at first. Longer requests are never
taken."""
PASS_BYTES_MAX: Final = 256 << 10
"""Bytes that a pass reads at most; sockets that were not read are ready in the next one."""
SCRATCH_BYTES: Final = PASS_BYTES_MAX + 2 * READ_BYTES_MAX
SOCKETS_MAX: Final = 512
"""Sockets that a pass serves at most."""
LINE_BYTES_MAX: Final = 256
"""Room of a line in the table of lines."""

_IS_PACKED: Final = platform.machine() in ("x86_64", "AMD64", "i386", "i686")
EVENT_BYTES: Final = 12 if _IS_PACKED else 16
"""Size of an ``epoll_event`` of Linux."""
EVENT_FD: Final = 4 if _IS_PACKED else 8
"""Place of the file number in it."""
