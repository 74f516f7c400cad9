"""The exit codes of Penstock's processes. A supervisor should start a process again after ``FAILED`` and after a
signal, but not after ``USER_ERROR``, which would happen again. Pure."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""A failure that may be gone at the next start: the disk, the network, another worker in its place."""
USER_ERROR: Final = 2
"""An error that the user must correct first: settings, arguments, topology, topics, or a record under the policy
``fail``."""
INTERRUPTED: Final = 130
"""As in shells: 128 plus the number of the signal."""
BROKEN_PIPE: Final = 141
