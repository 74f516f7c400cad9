"""``python -m tests.conformance FILE…``: see ``tests.conformance.command``."""

from __future__ import annotations

import sys

from tests.conformance.command import main

if __name__ == "__main__":
    sys.exit(main())
