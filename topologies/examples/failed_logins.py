"""Failed logins per address: find out who guesses passwords.

The alert is five failures from one address within a minute, for any users. Windows of a minute begin every ten
seconds, so that few attacks are split between two of them. An address is reported at most once in ten minutes.
"""

from __future__ import annotations

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, count, key, window_start
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import hopping

FAILURES = 5


class Login(msgspec.Struct, frozen=True, gc=False):
    """An attempt to log in as the user that is the record's key."""

    address: str
    user: str
    success: bool


def build(source: str = "logins", output: str = "guessing-addresses") -> Topology:
    """Under the address: the number of failures and of users in the minute that began at ``since`` (milliseconds), as
    of the alert. Logins may be 30 s late."""
    builder = StreamsBuilder("failed-logins", value=Login)
    failed = builder.stream(source).filter_values(~col("success"))
    minutes = failed.group_by(col("address")).windowed_by(hopping("1m", "10s", grace="30s"))
    seen = minutes.agg(failures=count(), users=col("user").count_distinct()).to_stream()
    many = seen.filter_values(col("failures") >= FAILURES).with_columns(since=window_start())
    many.select_key(key()["key"]).deduplicate("10m").to(output)
    return builder.build()
