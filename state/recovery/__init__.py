"""Changelogs, positions, and the decision from where to restore. Pure."""
