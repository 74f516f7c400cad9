"""The jars of Spark's packages. Ivy resolves and fetches them when they are first asked for; later sessions take them from
the cache, which is quicker and prints nothing: PySpark would resolve them again, and copy each twice, at every start."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec

from penstock.state.machine.atomic_files import replace_file


class _Resolved(msgspec.Struct):
    """Jars that Ivy found for these packages: their names in the cache, with their sizes."""

    packages: str
    jars: dict[str, int]


def known_jars(cache: Path, packages: Sequence[str]) -> list[Path] | None:
    """The jars of these packages, if they were resolved before and all are there, whole; else ``None``."""
    try:
        found = msgspec.json.decode(_record(cache, packages).read_bytes(), type=_Resolved)
        jars = [cache / "jars" / name for name in found.jars]
        whole = all(jar.stat().st_size == size for jar, size in zip(jars, found.jars.values(), strict=True))
    except (OSError, msgspec.MsgspecError):
        return None
    return jars if jars and whole and found.packages == ",".join(packages) else None


def note_jars(cache: Path, packages: Sequence[str], spark_jars: str, of_spark: Path) -> None:
    """Note what a session got: ``spark_jars`` is its setting ``spark.jars``. Jars that are not the cache's are left out, and
    those that Spark has itself, in ``of_spark``."""
    paths = [Path(unquote(urlparse(url).path)) for url in spark_jars.split(",")]
    mine = [p for p in paths if p.parent == cache / "jars" and not (of_spark / p.name.partition("_")[2]).exists()]
    jars = {p.name: p.stat().st_size for p in mine if p.exists()}
    if jars:
        replace_file(_record(cache, packages), msgspec.json.encode(_Resolved(",".join(packages), jars)))


def class_path(jars: Sequence[Path], *, in_this_process: bool) -> Mapping[str, str]:
    """The settings by which a session has these jars. ``in_this_process``: its executors are threads of the driver, whose
    class path is enough."""
    if in_this_process:
        return {"spark.driver.extraClassPath": ":".join(map(str, jars))}
    return {"spark.jars": ",".join(jar.as_uri() for jar in jars)}


@contextmanager
def resolving(cache: Path) -> Iterator[None]:
    """Resolve packages in one process at a time: Ivy's downloads into one cache fail if there are two."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "resolving.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _record(cache: Path, packages: Sequence[str]) -> Path:
    name = hashlib.sha256(",".join(packages).encode()).hexdigest()[:16]
    return cache / f"resolved-{name}.json"
