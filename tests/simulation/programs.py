"""The applications that the simulations run, and their input."""

from __future__ import annotations

import random

import orjson

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import celsius
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import tumbling
from tests.simulation.world import World

Records = list[tuple[bytes | None, bytes | None, int]]
REGIONS = ("north", "south", "east")


def clicks_per_region() -> Topology:
    """A join of clicks with a table of users, and a count per region behind a repartition: a store on its own topic, a
    store with a changelog, a journal, an internal topic and two outputs."""
    builder = StreamsBuilder("clicks", key=str, value=dict)
    users = builder.table("users", name="users")
    joined = builder.stream("clicks").left_join(users, lambda click, user: {**click, "region": (user or {}).get("r")})
    joined.to("joined")
    counts = joined.group_by(lambda _, click: str(click["region"])).count(name="counts")
    counts.to_stream().map_values(str, value=str).to("counted")
    return builder.build()


def combined_clicks() -> Topology:
    """A count per region that is combined before its repartition."""
    builder = StreamsBuilder("combined", key=str, value=dict, emission="per_commit")
    clicks = builder.stream("clicks").group_by(lambda _, click: REGIONS[click["n"] % 3])
    clicks.count(name="counts").to_stream().map_values(str, value=str).to("counted")
    return builder.build()


def windowed_clicks(size: str) -> Topology:
    """The same per window, whose partials are for windows of this size."""
    builder = StreamsBuilder("windowed", key=str, value=dict, emission="per_commit")
    clicks = builder.stream("clicks").group_by(lambda _, click: REGIONS[click["n"] % 3])
    counts = clicks.windowed_by(tumbling(size, grace="1m")).count(name="counts")
    counts.to_stream(lambda window, count: window.key, key=str).map_values(str, value=str).to("counted")
    return builder.build()


def combined_world(guarantee: str, *, count: int = 120, partitions: int = 2) -> World:
    """The combined count with its input written."""
    world = World(
        combined_clicks(),
        guarantee,  # type: ignore[arg-type]  # one of the guarantees
        inputs=["clicks"],
        outputs=["counted"],
        partitions=partitions,
    )
    world.write("clicks", clicks(random.Random(1), count)[1])
    return world


def clicks(rng: random.Random, count: int, *, users: int = 8) -> tuple[Records, Records]:
    """Table rows and clicks, in ascending time, so that the order does not depend on where a run was interrupted."""
    table: Records = [(b"u%d" % u, orjson.dumps({"r": REGIONS[u % 3]}), 10 * u) for u in range(users)]
    stream: Records = [(b"u%d" % rng.randrange(users), orjson.dumps({"n": i}), 1_000 + 10 * i) for i in range(count)]
    later: Records = [(b"u%d" % u, orjson.dumps({"r": REGIONS[(u + 1) % 3]}), 1_000 + 5 * count) for u in range(users)]
    return table + later, stream


def clicks_world(guarantee: str, *, seed: int = 1, count: int = 120, partitions: int = 2, **options: object) -> World:
    """The join with its input written."""
    world = World(
        clicks_per_region(),
        guarantee,  # type: ignore[arg-type]  # one of the guarantees
        inputs=["users", "clicks"],
        outputs=["joined", "counted"],
        seed=seed,
        partitions=partitions,
        **options,  # type: ignore[arg-type]  # those of World
    )
    users, stream = clicks(random.Random(seed), count)
    world.write("users", users)
    world.write("clicks", stream)
    return world


def stateless_world(guarantee: str, *, count: int = 60, **options: object) -> World:
    """Celsius to Fahrenheit."""
    world = World(
        celsius.build("in", "out"),
        guarantee,  # type: ignore[arg-type]  # one of the guarantees
        inputs=["in"],
        outputs=["out"],
        **options,  # type: ignore[arg-type]  # those of World
    )
    world.write("in", [(b"k%d" % i, b"%d" % i, 1_000 + i) for i in range(count)])
    return world
