"""What is remembered: words of the log, serdes, stores, changelogs, positions, snapshots. Imports nothing of ours."""
