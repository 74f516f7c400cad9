"""What a process of Penstock ends with. A supervisor of any kind may go by these: start again after ``FAILED`` and after a
signal, and leave alone what ended with ``USER_ERROR``, which would end so again. Pure."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""Something failed that another start may find gone: the disk, the network, another worker in its place."""
USER_ERROR: Final = 2
"""Settings, arguments, topology, topics, or a record under the policy ``fail``: to be corrected first."""
INTERRUPTED: Final = 130
"""As shells have it: 128 and the number of the signal."""
BROKEN_PIPE: Final = 141
