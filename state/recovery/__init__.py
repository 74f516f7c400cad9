"""Changelogs, positions, and the decision where a restore starts. Pure."""
