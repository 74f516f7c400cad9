"""Sales per shop in windows of five minutes: by the clock and by the time of the sale.

By the clock, a sale counts when it arrives. The answer is ready when the five minutes are over and nothing is ever
late, but if a shop's line was down, its sales are in the wrong window. By the time of the sale, the answer waits for
the watermark, 30 s behind the newest sale. A later sale corrects it for up to an hour; after that it goes to a topic
for late sales.
"""

from __future__ import annotations

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.triggers import after_count, after_watermark
from penstock.topologies.windows import tumbling


def build(source: str = "sales") -> Topology:
    """Sales are amounts (longs) under their shop; the record's timestamp is the time of the sale. Totals are longs under
    shop and window, in ``sales-by-clock`` and ``sales-by-time``; sales that are too late go to ``sales-too-late``."""
    builder = StreamsBuilder("five-minutes", value=int)
    sales = builder.stream(source, watermark=bounded_out_of_orderness("30s", idle="1m")).group_by_key()

    by_clock = sales.windowed_by(tumbling("5m", time="processing")).triggered(after_watermark())
    by_clock.reduce(lambda total, amount: total + amount, name="by-clock").to("sales-by-clock")

    by_time = sales.windowed_by(tumbling("5m", grace="1h")).triggered(after_watermark(late=after_count(1)))
    totals = by_time.reduce(lambda total, amount: total + amount, name="by-time")
    totals.to("sales-by-time")
    totals.late.to("sales-too-late")
    return builder.build()
