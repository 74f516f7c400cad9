"""The native part is optional, and cannot be tried where it was not built."""

from __future__ import annotations

import importlib.util

collect_ignore = (
    [] if importlib.util.find_spec("penstock_native") else ["test_client_check.py", "test_native_handle.py"]
)
