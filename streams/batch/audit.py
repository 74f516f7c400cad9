"""How far an application was verified: the savepoint up to which nothing differed, kept in its repository."""

from __future__ import annotations

import msgspec

from penstock.state.machine.state_directory import safe_name
from penstock.state.snapshots.storage import open_storage
from penstock.streams.batch.replay_plan import SAVEPOINT, START
from penstock.streams.batch.savepoint import SavepointRepository


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """``savepoint``: its name. ``pinned``: it was pinned for the next verification, and not by a user before."""

    savepoint: str
    pinned: bool


class Audit:
    """The verifications of one application, each from where the last one without a difference ended."""

    def __init__(self, repository: str, application_id: str) -> None:
        self._storage = open_storage(repository)
        self._path = f"{safe_name(application_id)}/verified.json"
        self._savepoints = SavepointRepository(repository)
        self._application_id = application_id

    def verified(self) -> Verified | None:
        """Where the last one ended; ``None`` before the first, or when that savepoint is gone."""
        data = self._storage.read(self._path)
        found = None if data is None else msgspec.json.decode(data, type=Verified)
        if found is None or found.savepoint not in self._savepoints.names(self._application_id):
            return None
        return found

    def begin(self) -> str:
        """Where the next one begins, as a replay takes it."""
        found = self.verified()
        return START if found is None else f"{SAVEPOINT}{found.savepoint}"

    def passed(self, savepoint: str) -> None:
        """Up to this savepoint nothing differed. It stays until the next one has passed, which begins with it."""
        before = self.verified()
        if before is not None and before.savepoint == savepoint:
            return
        pinned = savepoint not in self._savepoints.pinned(self._application_id)
        if pinned:
            self._savepoints.pin(self._application_id, savepoint)
        self._storage.write(self._path, msgspec.json.encode(Verified(savepoint=savepoint, pinned=pinned)))
        if before is not None and before.pinned:
            self._savepoints.pin(self._application_id, before.savepoint, pinned=False)
