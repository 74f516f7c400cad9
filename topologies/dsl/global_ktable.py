"""Global tables: every task has all rows, so that a stream may look up any row, whatever its own key.

The topic is copied to every partition of a repartition topic of the join (one per join, so that each joining sub-topology
keeps the rows in its own order of events and every run of it gives the same answer), and read from there as a bootstrap:
the stream begins when all rows that were there at the start have arrived. Updates afterwards are met in the order in which
the task takes them; they emit nothing. The price is a copy of the table per task; for tables too large for that,
co-partition instead, or join by a foreign key.
"""

from __future__ import annotations

from penstock.state.type_parameters import K, V
from penstock.topologies.dsl.handle import Handle


class GlobalKTable(Handle[K, V]):
    """A handle on a global table; ``KStream.join_global`` and ``KStream.map_with_side`` take it."""
