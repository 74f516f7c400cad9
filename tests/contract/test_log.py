"""The contract of a log, held against ours: the in-memory log, and Kafka plainly and natively."""

from __future__ import annotations

from penstock.testing import LogContract


class TestLog(LogContract):
    pass
