"""Which topologies have something to do when nothing comes."""

from __future__ import annotations

import penstock as ps
from penstock.streams.spark.streaming.batch_runner import reads_clock


def test_timers_of_the_clock_and_inputs_that_become_idle_need_a_turn() -> None:
    plain = ps.StreamsBuilder("plain", key=str, value=str)
    plain.stream("in").group_by_key().windowed_by(ps.tumbling("1m", grace=0)).count(name="n").to_stream().to("out")
    assert not reads_clock(plain.build())

    by_clock = ps.StreamsBuilder("clock", key=str, value=str)
    windows = ps.tumbling("1m", time="processing")
    by_clock.stream("in").group_by_key().windowed_by(windows).count(name="n", emission="on_close").to_stream().to("out")
    assert reads_clock(by_clock.build())

    idle = ps.StreamsBuilder("idle", key=str, value=str)
    idle.stream("in", watermark=ps.bounded_out_of_orderness("1s", idle="10s")).to("out")
    assert reads_clock(idle.build())
