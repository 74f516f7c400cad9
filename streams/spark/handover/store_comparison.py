"""The stores of two applications at savepoints of the same input positions, entry by entry."""

from __future__ import annotations

import dataclasses
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.savepoint import Savepoint, SavepointRepository
from penstock.streams.batch.values_as_text import Tolerance
from penstock.streams.spark.difference_table import Forms, texts, write_table
from penstock.streams.spark.failures import translated
from penstock.streams.spark.handover.job import Handover
from penstock.streams.spark.shipping import ship
from penstock.streams.spark.snapshot_frames import stored_entries
from penstock.streams.spark.what_if import (
    METADATA,
    Example,
    Subject,
    examples_of,
    marked,
    side_by_side,
    subjects_of,
)
from penstock.topologies.graph.topology import Topology


@dataclasses.dataclass(frozen=True)
class ComparedStores:
    """``changes``: stores that only one application has, or that cannot be compared. ``table``: where all differing
    entries are."""

    subjects: tuple[Subject, ...]
    examples: tuple[Example, ...]
    changes: tuple[str, ...]
    table: str | None

    @property
    def same(self) -> bool:
        """Whether no entry differs, and no store was added, removed or given another form."""
        return not self.changes and not any(s.differing_rows for s in self.subjects)


def compare_stores(
    spark: SparkSession, old: tuple[Handover, str], new: tuple[Handover, str], differences: str | None
) -> ComparedStores:
    """Compare the stores of an old and a new application as their savepoints (named) hold them, in one repository.
    ``differences``: a folder or URL for the differing entries; what is there is replaced."""
    repository = new[0].repository
    assert repository is not None, "savepoints are in a repository"
    kept = SavepointRepository(repository)
    saved = [kept.load(side.application_id, name) for side, name in (old, new)]
    topologies = (old[0].topology(), new[0].topology())
    names, changes = comparable(topologies, (saved[0], saved[1]))
    forms = Forms(ship(old[0].topology_ref), old[0].application_id, ship(new[0].topology_ref), new[0].application_id)
    if not names:
        return ComparedStores((), (), tuple(changes), None)
    with translated("the comparison"):
        sides = [
            _rows(stored_entries(spark, repository, savepoint, names), side)
            for savepoint, side in zip(saved, ("left", "right"), strict=True)
        ]
        parts = [side_by_side("store", name, [side.where(F.col("name") == name) for side in sides]) for name in names]
        rows = marked(reduce(DataFrame.unionByName, parts), forms, Tolerance()).cache()
        subjects, examples = subjects_of(rows), examples_of(rows, forms)
        if differences is not None:
            write_table(texts(rows.where("differs"), forms, "old", "new"), differences)
        rows.unpersist()
    return ComparedStores(tuple(subjects), tuple(examples), tuple(changes), differences)


def comparable(
    topologies: tuple[Topology, Topology], saved: tuple[Savepoint, Savepoint]
) -> tuple[list[str], list[str]]:
    """The stores whose entries can be compared, and why others cannot."""
    old, new = ({s.name: s for s in topology.stores if _kept(s)} for topology in topologies)
    counts = [{name: sum(s.store == name for s in point.stores) for name in old.keys() | new.keys()} for point in saved]
    names: list[str] = []
    changes = [f"store {name} is the old topology's alone" for name in sorted(old.keys() - new.keys())]
    changes += [f"store {name} is the new topology's alone" for name in sorted(new.keys() - old.keys())]
    for name in sorted(old.keys() & new.keys()):
        forms = [(s.kind, s.segment_ms, s.key_serde.name, s.value_serde.name) for s in (old[name], new[name])]
        if forms[0] != forms[1]:
            changes.append(f"store {name} is not compared: its kind, windows or serdes were changed")
        elif counts[0][name] != counts[1][name]:
            changes.append(
                f"store {name} is not compared: it had {counts[0][name]} partitions, and has {counts[1][name]}"
            )
        else:
            names.append(name)
    return names, changes


def _kept(spec: StoreSpec) -> bool:
    return bool(spec.changelog) or spec.source_topic is not None


def _rows(entries: DataFrame, side: str) -> DataFrame:
    return entries.select(
        "name",
        F.col("store_key").alias("key"),
        F.lit(1).cast("long").alias("place"),
        "partition",
        F.col("value").alias(side),
        F.lit(None).cast(METADATA).alias(f"{side}_metadata"),
    )
