"""State: log values, serdes, stores, changelogs, positions and snapshots. Imports no other package of Penstock."""
