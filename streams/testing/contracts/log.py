"""The contract of a log: consumers, producers and admin clients of one cluster."""

from __future__ import annotations

from penstock.streams.testing.contracts.log_groups import LogGroupsContract
from penstock.streams.testing.contracts.log_positions import LogPositionsContract
from penstock.streams.testing.contracts.log_records import LogRecordsContract
from penstock.streams.testing.contracts.log_transactions import LogTransactionsContract


class LogContract(LogRecordsContract, LogPositionsContract, LogGroupsContract, LogTransactionsContract):
    """The contract of every log. Subclass it, with a fixture ``world`` that gives a ``World`` and closes it::

    class TestMyLog(LogContract):
        @pytest.fixture
        def world(self):
            world = MyWorld()
            yield world
            world.close()
    """
