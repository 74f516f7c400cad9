"""Joins of a stream with a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.handle import Function, Handle
from penstock.topologies.dsl.table import KTable
from penstock.topologies.dsl.wiring import check_function
from penstock.topologies.operators.join import StreamTableJoin

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class StreamTableJoinMethods(Handle):
    """Methods of ``KStream``."""

    def _join_table(
        self,
        table: Any,
        joiner: Function,
        value: Any,
        name: str,
        *,
        left: bool,
        grace: int | str | None = None,
    ) -> KStream:
        """``joiner(left, row)`` for each record that meets a row of the table when it is processed (``left``: also for
        those that meet none, or have no key). The table's own updates emit nothing. Null values, and null keys of an
        inner join, are dropped and counted."""
        wiring = self._flow.wiring
        if not isinstance(table, KTable):
            raise TopologyError(f"operator {name!r} joins {table!r:.100}; the right side must be a KTable")
        wiring.check_own(table._flow, name)
        if table.windowed:
            raise TopologyError(
                f"operator {name!r} joins the windowed table {table.name!r}, whose rows no stream key can "
                "name; join a table per key, or read the store in a processor"
            )
        if self.key_serde.name != table.key_serde.name:
            raise TopologyError(
                f"operator {name!r}: keys of {self.out!r} are {self.key_serde.name}, those of table "
                f"{table.name!r} are {table.key_serde.name}, and would never meet; bring the stream to the "
                "table's with select_key(…, key=…)"
            )
        flow = wiring.by_key(self._flow)
        wiring.check_together((flow, table._flow), name)
        spec = StreamTableJoin(stores=(table.store,), joiner=check_function(joiner, name), left=left)
        wiring.add(name, spec, flow)
        return self._stream(self._stream(flow)._behind(name, value=value))
