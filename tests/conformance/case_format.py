"""Case files: one JSON object per line, one file per group. This module knows the fields that all kinds share."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.state.errors import UserError

PORTABLE = "portable"
BUNDLE_DEPENDENT = "bundle_dependent"


class CaseError(UserError):
    """A file or a case that does not follow the format, or asks for what the format does not have."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of a file. ``data`` is the whole object; its kind-specific fields are read by the kind's module."""

    id: str
    group: str
    kind: str
    portability: str
    data: dict[str, Any]

    @property
    def judged(self) -> bool:
        """Whether an engine is bound to pass: other cases hold what one system does and others need not."""
        return self.portability in (PORTABLE, BUNDLE_DEPENDENT)

    @property
    def input(self) -> list[dict[str, Any]]:
        """Records and events, in order."""
        return list(self.data["input"])

    @property
    def keeps_windows_before_epoch(self) -> bool:
        """Whether the system that the case comes from has windows that start before 1970. Kafka Streams has none."""
        return bool(self.data.get("source", {}).get("repo") != "apache/kafka")

    def expectations(self, name: str = "expected") -> Any:
        """The expectation called ``name``; that of single elements where the case depends on bundles."""
        if self.portability == BUNDLE_DEPENDENT and f"{name}_per_element" in self.data:
            return self.data[f"{name}_per_element"]
        return self.data.get(name)


def read_cases(lines: Iterable[str], where: str) -> Iterator[Case]:
    """The cases of a file called ``where``; empty lines are skipped. Raises ``CaseError`` with the line's number."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError as exc:
            raise CaseError(f"{where}, line {number}: no JSON ({exc}); a case file has one object per line") from exc
        missing = [f for f in ("id", "group", "kind", "portability", "input") if f not in data]
        if missing:
            raise CaseError(f"{where}, line {number}: the case has no {', '.join(missing)}")
        yield Case(data["id"], data["group"], data["kind"], data["portability"], data)
