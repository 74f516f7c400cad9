"""Errors inside a Spark job, as Penstock's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.state import errors
from penstock.state.errors import EnvironmentFault, PenstockError

_OURS = re.compile(r"^(?:penstock\.state\.errors\.)(\w+): (.*)", re.MULTILINE)
_LOST = ("failOnDataLoss", "data may have been lost", "data was lost", "KAFKA_DATA_LOSS", "OffsetOutOfRange")
_NETWORK = ("TimeoutException", "Failed to construct kafka consumer", "Failed to create new KafkaAdminClient")


@contextmanager
def translated(job: str, ended: str = "published nothing") -> Iterator[None]:
    """Raise the error that a Spark job failed with: one of ours as it was in the executor, any other as
    ``EnvironmentFault``. ``job`` names it, as in "the compaction", and ``ended`` says how far it came."""
    try:
        yield
    except (PySparkException, Py4JError) as exc:
        raise translate(str(exc), job, ended) from exc


def translate(text: str, job: str, ended: str = "published nothing") -> PenstockError:
    """The error of ours in the text of a failed Spark job."""
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PenstockError):
            return kind(message)
    for words, advice in (
        (
            ("ModuleNotFoundError",),
            "the executors' Python lacks a module. Install penstock[spark] and the topology's modules there, or set "
            "PYSPARK_PYTHON to a Python that has them",
        ),
        (
            _LOST,
            "records of its range are no longer in Kafka. Start from a newer snapshot, and keep the topics longer "
            "(retention.ms)",
        ),
        (_NETWORK, "the brokers did not answer. Check bootstrap_servers and the kafka.* options, as seen from Spark"),
    ):
        line = next((x for x in text.splitlines() if any(w in x for w in words)), None)
        if line is not None:
            return EnvironmentFault(f"{job} {ended}: {advice}. Spark said: {line.strip()[:500]}")
    shown = text.strip()
    return EnvironmentFault(f"{job} {ended}: the Spark job failed: {shown[:300]} … {shown[-1200:]}")
