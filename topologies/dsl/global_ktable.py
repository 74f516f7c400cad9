"""Global tables: every task has all rows, so a stream can look up any row, whatever its own key.

The topic is copied to every partition of a repartition topic of the join, and read from there as a bootstrap input: the
stream begins when all rows that existed at the start have arrived. There is one copy per join, so each joining
sub-topology keeps the rows in its own order of events, and every run of it gives the same answer. A task applies later
updates in the order in which it takes them; they emit nothing. The price is one copy of the table per task. If the
table is too large for that, co-partition it, or join by a foreign key.
"""

from __future__ import annotations

from penstock.state.type_parameters import K, V
from penstock.topologies.dsl.handle import Handle


class GlobalKTable(Handle[K, V]):
    """A handle on a global table, for ``KStream.join_global`` and ``KStream.map_with_side``."""
